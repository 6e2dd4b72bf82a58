#include "scenarios/protocol/outside_implementation.h"

#include <utility>

#include "contract/core/check.h"
#include "contract/core/declare.h"
#include "contract/core/hex.h"
#include "contract/core/lists.h"
#include "contract/core/scenario.h"

namespace kvfence {
namespace {

/// Text of a child in quotes, cut if it is long, with bytes that are not ASCII as \xNN.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShownMax = 120;
  std::string out = "'";
  for (const char character : text.substr(0, kShownMax)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f) {
      out += character;
    } else {
      out += "\\x";
      append_hex(out, character);
    }
  }
  out += "'";
  if (text.size() > kShownMax) {
    out += "... (" + std::to_string(text.size()) + " bytes)";
  }
  return out;
}

constexpr std::string_view kReplyExpected = "an answer, '-> key=value ...'";

}  // namespace

OutsideImplementation::OutsideImplementation(const Target& target, std::string command,
                                             OutsideOptions options)
    : target_(target),
      command_(std::move(command)),
      options_(options),
      name_(command_),
      members_(observation_names(target)) {}

std::optional<SelfDescription> OutsideImplementation::described() const {
  if (!child_) return std::nullopt;
  SelfDescription described;
  for (const std::string_view member : members_) {
    auto& names = contains(reported_, member) ? described.reported : described.unreported;
    names.emplace_back(member);
  }
  described.corrections = corrections_;
  return described;
}

// ---- The conversation ----

std::optional<ImplementationFailure> OutsideImplementation::start() {
  if (child_) return std::nullopt;
  has_answered_ = false;
  child_ = std::make_unique<ChildProcess>(command_, options_.child);
  outgoing_ = "target " + std::string(target_.name) + "\n";
  if (auto failure = read_reply(options_.start_timeout)) return failure;
  has_answered_ = true;
  if (auto failure = read_unsupported()) {
    child_.reset();
    failure->kind = ImplementationFailure::Kind::kUnavailable;
    return failure;
  }
  if (auto failure = read_handshake()) return failure;
  observes_state_ = true;
  return check_reported();
}

std::optional<ImplementationFailure> OutsideImplementation::read_handshake() {
  std::string implementation;
  std::string version;
  reported_ = members_;
  corrections_ = 0;
  for (const Field& field : *reply_.expectation) {
    std::string expected;
    if (field.key == "implementation") {
      from_value(field.value, implementation, expected);
    } else if (field.key == "version") {
      from_value(field.value, version, expected);
    } else if (field.key == "corrections") {
      from_value(field.value, corrections_, expected);
    } else if (field.key != "observes") {
      expected = "only implementation, version, corrections, observes";
    } else if (const auto* values = field.value.get_if<Value::List>()) {
      std::vector<std::string_view> names;
      for (const Value& value : *values) {
        const auto* name = value.get_if<std::string>();
        if (!name || !contains(members_, *name)) {
          return malformed_output("observes with " + print(value), detail::one_of(members_));
        }
        names.push_back(*name);
      }
      std::erase_if(reported_, [&](std::string_view member) { return !contains(names, member); });
      if (values->empty()) expected = "a list with " + detail::one_of(members_);
    } else {
      expected = "a list such as [error blocks]";
    }
    if (!expected.empty()) return malformed_output(field.key + "=" + print(field.value), expected);
  }
  if (implementation.empty()) {
    return malformed_output("no name in the answer to 'target'", "implementation=...");
  }
  name_ = version.empty() ? implementation : implementation + " " + version;
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::check_reported() {
  bool has_answer = false;
  bool has_state = false;
  const Observation observation = default_observation(target_);
  for (const DeclaredMember& member : observation.declared().type().members) {
    if (!contains(reported_, member.name)) continue;
    has_answer |= member.name != "error" && member.domain == Domain::kResult;
    has_state |= member.domain == Domain::kState;
  }
  const bool has_error = contains(reported_, "error");
  if (has_error && has_answer && has_state) return std::nullopt;
  return malformed_output(
      std::string("observes without ") + (!has_error    ? "error"
                                          : !has_answer ? "any answer"
                                                        : "anything of the state"),
      "error, and at least one member of an answer and one of the state");
}

void OutsideImplementation::flush() {
  if (child_) child_->send(outgoing_);
  outgoing_.clear();
}

std::optional<ImplementationFailure> OutsideImplementation::read_reply(
    std::chrono::milliseconds timeout) {
  if (!child_) return ImplementationFailure{"is not running"};
  if (!child_->has_line()) flush();
  const std::optional<std::string_view> text = child_->read_line(timeout);
  if (!text) return ended();
  Parsed<Line> parsed = parse_line(*text);
  if (!parsed) {
    return malformed_output(
        in_quotes(*text) + " (column " + std::to_string(parsed.error().position.column) + ": " +
            parsed.error().found + ", expected " + parsed.error().expected + ")",
        kReplyExpected);
  }
  if (!parsed->verb.empty() || !parsed->expectation)
    return malformed_output(in_quotes(*text), kReplyExpected);
  reply_ = std::move(*parsed);
  if (const Field* malformed = find_field(*reply_.expectation, "malformed")) {
    return fail("did not understand a line: " + print(malformed->value));
  }
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::read_bare_reply() {
  if (auto failure = read_reply(options_.answer_timeout)) return failure;
  if (reply_.expectation->empty()) return std::nullopt;
  return malformed_output(in_quotes(print(reply_)), "a bare '->' to 'observe'");
}

std::optional<ImplementationFailure> OutsideImplementation::check_nothing_unasked() {
  if (!child_ || !child_->has_line()) return std::nullopt;
  const auto line = child_->read_line(options_.answer_timeout);
  return malformed_output(in_quotes(*line), "no answer without a command");
}

std::optional<ImplementationFailure> OutsideImplementation::read_unsupported() const {
  const Field* field = find_field(*reply_.expectation, "unsupported");
  if (!field) return std::nullopt;
  const auto* why = field->value.get_if<std::string>();
  return ImplementationFailure{why ? *why : print(field->value),
                               ImplementationFailure::Kind::kUnsupported};
}

ImplementationFailure OutsideImplementation::malformed_output(std::string_view found,
                                                              std::string_view expected) {
  return fail("sent malformed output: found " + std::string(found) + ", expected " +
              std::string(expected));
}

ImplementationFailure OutsideImplementation::ended() {
  const ChildEnd end = *child_->end();
  std::string message = end.to_text() + " while an answer was expected";
  if (!has_answered_ && end.kind == ChildEnd::Kind::kTimedOut) {
    message += ", the first one: does it flush what it writes?";
  }
  if (!child_->stderr_lines().empty()) {
    message += "; last on its stderr: " + in_quotes(child_->stderr_lines().back());
  }
  ImplementationFailure failure = fail(std::move(message));
  // A shell's exit codes for a missing command and for one that cannot be executed.
  constexpr int kNotExecutable = 126;
  constexpr int kNotFound = 127;
  const bool is_no_command = end.kind == ChildEnd::Kind::kNotStarted ||
                             (end.kind == ChildEnd::Kind::kExited &&
                              (end.number == kNotExecutable || end.number == kNotFound));
  if (!has_answered_ && is_no_command) failure.kind = ImplementationFailure::Kind::kUnavailable;
  return failure;
}

ImplementationFailure OutsideImplementation::fail(std::string message) {
  last_stderr_.clear();
  if (child_) last_stderr_ = child_->stderr_lines();
  child_.reset();
  return {std::move(message)};
}

// ---- Commands and observations ----

std::optional<ImplementationFailure> OutsideImplementation::reset(const Setup& setup) {
  discard_outstanding();
  if (auto failure = start()) return failure;
  if (auto failure = check_nothing_unasked()) return failure;
  print_to(outgoing_, config_line(setup.config()));
  outgoing_ += '\n';
  if (auto failure = read_reply(options_.answer_timeout)) return failure;
  if (auto failure = read_unsupported()) return failure;
  if (reply_.expectation->empty()) return std::nullopt;
  return malformed_output(in_quotes(print(reply_)),
                          "a bare '->' to 'config', or unsupported=\"why\"");
}

std::optional<ImplementationFailure> OutsideImplementation::submit(const Command& command,
                                                                   Observe observe) {
  KVFENCE_CHECK(follow_observe_.size() < window(), "more commands than the window holds");
  if (follow_observe_.empty()) {
    if (auto failure = check_nothing_unasked()) return failure;
  }
  const bool wants_state = observe == Observe::kState;
  const bool says_observe = wants_state != observes_state_;
  if (says_observe) {
    outgoing_ += wants_state ? "observe state=true\n" : "observe state=false\n";
    observes_state_ = wants_state;
  }
  print_to(outgoing_, to_line(command));
  outgoing_ += '\n';
  follow_observe_.push_back(says_observe);
  // Well before the window is full, so that the child works in parallel with the caller.
  constexpr std::size_t kFlushBytes = 4096;
  if (outgoing_.size() >= kFlushBytes) flush();
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::collect(Observation& observation) {
  KVFENCE_CHECK(!follow_observe_.empty(), "no command is outstanding");
  const bool follows_observe = follow_observe_.front();
  follow_observe_.pop_front();
  if (follows_observe) {
    if (auto failure = read_bare_reply()) return failure;
  }
  if (auto failure = read_reply(options_.answer_timeout)) return failure;
  return read_observation(observation);
}

std::optional<ImplementationFailure> OutsideImplementation::apply(const Command& command,
                                                                  const World&, Observe observe,
                                                                  Observation& observation) {
  if (auto failure = submit(command, observe)) return failure;
  observation = default_observation(target_);
  return collect(observation);
}

void OutsideImplementation::discard_outstanding() {
  for (; !follow_observe_.empty(); follow_observe_.pop_front()) {
    if (!child_) continue;
    if (follow_observe_.front() && read_bare_reply()) continue;
    static_cast<void>(read_reply(options_.answer_timeout));
  }
}

std::optional<ImplementationFailure> OutsideImplementation::read_observation(
    Observation& observation) {
  if (!observation.has_value()) observation.emplace(*target_.observation);
  if (auto failure = read_members(observation.declared())) return failure;
  for (const Field& field : *reply_.expectation) {
    if (contains(reported_, field.key)) continue;
    return malformed_output("key '" + field.key + "' in " + in_quotes(print(reply_)),
                            detail::one_of(reported_));
  }
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::read_members(
    const DeclaredObject& observed) {
  for (std::size_t index = 0; index < observed.size(); ++index) {
    const MemberRef member = observed[index];
    const std::string& name = member.declaration().name;
    if (!contains(reported_, name)) continue;
    std::string expected;
    if (const Field* field = find_field(*reply_.expectation, name)) {
      if (!member.assign(field->value, expected)) {
        return malformed_output(field->key + "=" + print(field->value), expected);
      }
    } else if (member.declaration().is_optional) {
      // A member that is absent by default has no default value to assign.
      if (!member.assign(member.default_value(), expected)) member.reset();
    } else if (!member.reset()) {
      return malformed_output("an answer to a command without " + name, name + "=...");
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
