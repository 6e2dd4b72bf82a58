#include "scenarios/protocol/serve.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "contract/core/limits.h"
#include "scenarios/protocol/child_process.h"

namespace kvfence {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 16;
constexpr std::size_t kWriteBytes = std::size_t{1} << 16;

int failed(const std::string& what) {
  std::fprintf(stderr, "serve: %s\n", what.c_str());
  return 1;
}

/// `-> key="why"` and a newline.
void answer_with(std::string& out, std::string_view key, const std::string& why) {
  out += "-> ";
  print_to(out, Field{std::string(key), to_value(why), {}});
  out += '\n';
}

}  // namespace

bool Server::answer(std::string_view text, std::string& out) {
  const Parsed<Line> line = parse_line(text);
  if (!line) {
    answer_with(out, "malformed", line.error().to_text());
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

void Server::answer_target(const Line& line, std::string& out) {
  if (line.subject != target_.name) {
    answer_with(out, "unsupported", "only target " + std::string(target_.name));
  } else {
    answer_with(out, "implementation", implementation_.name());
  }
}

bool Server::answer_config(const Line& line, std::string& out) {
  Parsed<Config> config = config_from_line(target_, line);
  if (!config) {
    answer_with(out, "malformed", config.error().to_text());
    return true;
  }
  const Parsed<Setup> setup = target_.prepare(std::move(*config), {}, line.position);
  if (!setup) {
    answer_with(out, "unsupported", setup.error().to_text());
    return true;
  }
  world_ = target_.make_world(*setup);
  if (const auto failure = implementation_.reset(*setup)) {
    failure_ = failure->message;
    if (failure->kind != ImplementationFailure::Kind::kUnsupported) return false;
    world_.reset();
    answer_with(out, "unsupported", failure->message);
    return true;
  }
  out += "->\n";
  return true;
}

void Server::answer_observe(const Line& line, std::string& out) {
  const Field* state = find_field(line.fields, "state");
  const bool* flag = state ? state->value.get_if<bool>() : nullptr;
  if (!flag || line.fields.size() != 1) {
    answer_with(out, "malformed", "expected observe state=true or state=false");
    return;
  }
  observe_ = *flag ? Observe::kState : Observe::kNumbers;
  out += "->\n";
}

bool Server::answer_command(const Line& line, std::string& out) {
  const Parsed<Command> command = command_from_line(target_, line);
  if (!command) {
    answer_with(out, "malformed", command.error().to_text());
    return true;
  }
  if (!world_) {
    answer_with(out, "malformed", "a command before config");
    return true;
  }
  world_->apply(*command);
  if (const auto failure = implementation_.apply(*command, *world_, observe_, observation_)) {
    failure_ = failure->message;
    return false;
  }
  out += "->";
  for (const Field& field : fields_of(observation_.declared())) {
    out += ' ';
    print_to(out, field);
  }
  out += '\n';
  return true;
}

int serve(const Target& target, Implementation& implementation, int input, int output) {
  Server server(target, implementation);
  std::string chunk(kChunkBytes, '\0');
  std::string incoming;
  std::string out;
  // Keeps the storage of `out`.
  const auto flush = [&] {
    const bool is_written = write_all(output, out);
    out.clear();
    return is_written;
  };
  while (true) {
    const ssize_t num_bytes = ::read(input, chunk.data(), chunk.size());
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0) return failed("cannot read");
    if (num_bytes == 0) break;
    std::size_t begin = 0;
    // The bytes from before hold no newline.
    std::size_t searched = incoming.size();
    incoming.append(chunk, 0, static_cast<std::size_t>(num_bytes));
    for (std::size_t newline = incoming.find('\n', searched); newline != std::string::npos;
         newline = incoming.find('\n', searched)) {
      const std::string_view line = std::string_view(incoming).substr(begin, newline - begin);
      if (!server.answer(line, out)) {
        flush();
        return failed("the implementation failed: " + server.failure());
      }
      if (out.size() >= kWriteBytes && !flush()) return failed("cannot write");
      begin = searched = newline + 1;
    }
    incoming.erase(0, begin);
    if (incoming.size() > limits::kLineBytesMax) return failed("a line is too long");
    if (!flush()) return failed("cannot write");
  }
  return incoming.empty() ? 0 : failed("the input ends within a line");
}

}  // namespace kvfence
