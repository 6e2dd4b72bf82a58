#pragma once

/// The child's side of the protocol to outside implementations (outside_session.h): puts any
/// implementation in this process at the other end of a pipe. Also the pattern for writing one in
/// another language.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "contract/core/line.h"
#include "contract/core/scenario.h"

namespace kvfence {

/// Answers one line: appends a whole answer line to `out`, or nothing to a blank line. False ends
/// the service.
using AnswerLine = std::function<bool(std::string_view line, std::string& out)>;

/// Answers every line of one file descriptor on another until the end of input. All that has
/// arrived is answered before waiting for more.
///
/// Returns an exit status: 0 at the end of input; 1 where input or output fails, a line is longer
///         than limits::kLineBytesMax, or an answer ends the service (stderr says which).
int serve_lines(int input, int output, const AnswerLine& answer_line);

namespace detail {

/// `-> key="why"` and a newline.
void answer_with(std::string& out, std::string_view key, const std::string& why);

}  // namespace detail

/// What a child of the protocol remembers between lines.
template <class Target>
class Server {
 public:
  using Config = typename Target::Config;
  using World = typename Target::World;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;

  explicit Server(Implementation<Target>& implementation) : implementation_(implementation) {}

  /// An AnswerLine.
  bool answer(std::string_view text, std::string& out) {
    const Parsed<Line> line = parse_line(text);
    if (!line) {
      detail::answer_with(out, "malformed", line.error().to_text());
    } else if (line->verb == "target") {
      answer_target(*line, out);
    } else if (line->verb == "config") {
      return answer_config(*line, out);
    } else if (line->verb == "observe") {
      answer_observe(*line, out);
    } else if (!line->verb.empty()) {
      return answer_command(*line, out);
    }
    return true;
  }

 private:
  void answer_target(const Line& line, std::string& out) {
    if (line.subject != Target::kName) {
      detail::answer_with(out, "unsupported", "only target " + std::string(Target::kName));
      return;
    }
    out += "-> ";
    print_to(out, Field{"implementation", to_value(implementation_.name()), {}});
    out += '\n';
  }

  bool answer_config(const Line& line, std::string& out) {
    const Parsed<Config> config = config_from_line<Target>(line);
    if (!config) {
      detail::answer_with(out, "malformed", config.error().to_text());
      return true;
    }
    if (const auto error = Target::validate(*config, {}, line.position)) {
      detail::answer_with(out, "unsupported", error->to_text());
      return true;
    }
    world_.emplace(Target::make_world(*config));
    if (const auto failure = implementation_.reset(*config)) return false;
    out += "->\n";
    return true;
  }

  void answer_observe(const Line& line, std::string& out) {
    const Field* state = find_field(line.fields, "state");
    const bool* flag = state ? state->value.get_if<bool>() : nullptr;
    if (!flag || line.fields.size() != 1) {
      detail::answer_with(out, "malformed", "expected observe state=true or state=false");
      return;
    }
    observe_ = *flag ? Observe::kState : Observe::kNumbers;
    out += "->\n";
  }

  bool answer_command(const Line& line, std::string& out) {
    const Parsed<Command> command = command_from_line<Command>(line);
    if (!command) {
      detail::answer_with(out, "malformed", command.error().to_text());
      return true;
    }
    if (!world_) {
      detail::answer_with(out, "malformed", "a command before config");
      return true;
    }
    world_->apply(*command);
    if (implementation_.submit(*command, *world_, observe_)) return false;
    if (implementation_.collect(observation_)) return false;
    out += "->";
    const DeclaredObject observation = object_of(std::as_const(observation_));
    for (std::size_t index = 0; index < observation.size(); ++index) {
      const MemberRef member = observation[index];
      if (!member.is_present()) continue;
      out.append(" ").append(member.declaration().name).append("=");
      print_to(out, member.value());
    }
    out += '\n';
    return true;
  }

  Implementation<Target>& implementation_;
  std::optional<World> world_;
  Observe observe_ = Observe::kState;
  Observation observation_;
};

/// Serves an implementation over two file descriptors, by default stdin and stdout. Returns an exit
/// status, as serve_lines.
template <class Target>
int serve(Implementation<Target>& implementation, int input = 0, int output = 1) {
  Server<Target> server(implementation);
  return serve_lines(input, output, [&server](std::string_view line, std::string& out) {
    return server.answer(line, out);
  });
}

}  // namespace kvfence
