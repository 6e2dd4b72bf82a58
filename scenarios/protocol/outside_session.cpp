#include "scenarios/protocol/outside_session.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/declare.h"
#include "contract/core/scenario.h"

namespace kvfence {
namespace {

/// Text of a child between quotes, cut where it grows long, with what is not ASCII as \xNN.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShownMax = 120;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "'";
  for (const char character : text.substr(0, kShownMax)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7f) {
      out += character;
    } else {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
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

OutsideSession::OutsideSession(std::string command, OutsideOptions options)
    : command_(std::move(command)), options_(options), name_(command_) {}

std::optional<ImplementationFailure> OutsideSession::start(
    std::string_view target, const std::vector<std::string_view>& members) {
  child_.reset();
  outgoing_.clear();
  has_answered_ = false;
  child_ = std::make_unique<ChildProcess>(command_, options_.child);
  outgoing_.append("target ").append(target).append("\n");
  if (auto failure = read_parsed(options_.start_timeout)) return failure;
  has_answered_ = true;
  if (auto failure = read_unsupported()) {
    child_.reset();
    failure->kind = ImplementationFailure::Kind::kUnavailable;
    return failure;
  }
  return read_handshake(members);
}

std::optional<ImplementationFailure> OutsideSession::read_handshake(
    const std::vector<std::string_view>& members) {
  std::string implementation;
  std::string version;
  reports_.assign(members.size(), true);
  for (const Field& field : *reply_.expectation) {
    std::string expected;
    if (field.key == "implementation") {
      from_value(field.value, implementation, expected);
    } else if (field.key == "version") {
      from_value(field.value, version, expected);
    } else if (field.key != "observes") {
      expected = "only implementation, version, observes";
    } else if (const auto* names = field.value.get_if<Value::List>()) {
      reports_.assign(members.size(), false);
      for (const Value& value : *names) {
        const auto* name = value.get_if<std::string>();
        const auto member = name ? std::find(members.begin(), members.end(), *name) : members.end();
        if (member == members.end()) {
          return babbled("observes with " + print(value), detail::one_of(members));
        }
        reports_[static_cast<std::size_t>(member - members.begin())] = true;
      }
      if (names->empty()) expected = "a list with " + detail::one_of(members);
    } else {
      expected = "a list such as [error blocks]";
    }
    if (!expected.empty()) return babbled(field.key + "=" + print(field.value), expected);
  }
  if (implementation.empty()) {
    return babbled("no name in the answer to 'target'", "implementation=...");
  }
  name_ = version.empty() ? implementation : implementation + " " + version;
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideSession::configure(const Line& config) {
  if (auto failure = check_nothing_unasked()) return failure;
  print_to(outgoing_, config);
  outgoing_ += '\n';
  if (auto failure = read_parsed(options_.answer_timeout)) return failure;
  if (auto failure = read_unsupported()) return failure;
  if (!reply_.expectation->empty()) {
    return babbled(in_quotes(print(reply_)), "a bare '->' to 'config', or unsupported=\"why\"");
  }
  return std::nullopt;
}

void OutsideSession::flush() {
  if (child_) child_->send(outgoing_);
  outgoing_.clear();
}

std::optional<ImplementationFailure> OutsideSession::read_reply(const std::vector<Field>*& fields) {
  if (auto failure = read_parsed(options_.answer_timeout)) return failure;
  fields = &*reply_.expectation;
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideSession::read_bare_reply() {
  if (auto failure = read_parsed(options_.answer_timeout)) return failure;
  if (reply_.expectation->empty()) return std::nullopt;
  return babbled(in_quotes(print(reply_)), "a bare '->' to 'observe'");
}

std::optional<ImplementationFailure> OutsideSession::check_nothing_unasked() {
  if (!child_ || !child_->has_line()) return std::nullopt;
  const auto line = child_->read_line(options_.answer_timeout);
  return babbled(in_quotes(*line), "no answer to nothing");
}

std::optional<ImplementationFailure> OutsideSession::read_parsed(
    std::chrono::milliseconds timeout) {
  if (!child_) return ImplementationFailure{"is not running"};
  if (!child_->has_line()) flush();
  const std::optional<std::string_view> text = child_->read_line(timeout);
  if (!text) return ended();
  Parsed<Line> parsed = parse_line(*text);
  if (!parsed) {
    return babbled(in_quotes(*text) + " (column " + std::to_string(parsed.error().position.column) +
                       ": " + parsed.error().found + ", expected " + parsed.error().expected + ")",
                   kReplyExpected);
  }
  if (!parsed->verb.empty() || !parsed->expectation)
    return babbled(in_quotes(*text), kReplyExpected);
  reply_ = std::move(*parsed);
  if (const Field* malformed = find_field(*reply_.expectation, "malformed")) {
    return fail("did not understand a line: " + print(malformed->value));
  }
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideSession::read_unsupported() const {
  const Field* field = find_field(*reply_.expectation, "unsupported");
  if (!field) return std::nullopt;
  const auto* why = field->value.get_if<std::string>();
  return ImplementationFailure{why ? *why : print(field->value),
                               ImplementationFailure::Kind::kUnsupported};
}

ImplementationFailure OutsideSession::babbled(std::string_view found, std::string_view expected) {
  return fail("babbled: found " + std::string(found) + ", expected " + std::string(expected));
}

ImplementationFailure OutsideSession::unknown_key(const std::vector<std::string_view>& members) {
  std::vector<std::string_view> reported;
  for (std::size_t index = 0; index < members.size(); ++index) {
    if (reports_[index]) reported.push_back(members[index]);
  }
  const std::vector<Field>& fields = *reply_.expectation;
  const auto unknown = std::find_if(fields.begin(), fields.end(), [&](const Field& field) {
    return std::find(reported.begin(), reported.end(), field.key) == reported.end();
  });
  KVFENCE_CHECK(unknown != fields.end(), "every key of the answer is reported");
  return babbled("key '" + unknown->key + "' in " + in_quotes(print(reply_)),
                 detail::one_of(reported));
}

ImplementationFailure OutsideSession::ended() {
  const ChildEnd end = *child_->end();
  std::string message = end.to_text() + " while an answer was expected";
  if (!child_->stderr_lines().empty()) {
    message += "; last on its stderr: " + in_quotes(child_->stderr_lines().back());
  }
  ImplementationFailure failure = fail(std::move(message));
  // By which a shell says that there is no such command, or that it is none.
  constexpr int kNotExecutable = 126;
  constexpr int kNotFound = 127;
  const bool is_no_command = end.kind == ChildEnd::Kind::kNotStarted ||
                             (end.kind == ChildEnd::Kind::kExited &&
                              (end.number == kNotExecutable || end.number == kNotFound));
  if (!has_answered_ && is_no_command) failure.kind = ImplementationFailure::Kind::kUnavailable;
  return failure;
}

ImplementationFailure OutsideSession::fail(std::string message) {
  child_.reset();
  return {std::move(message)};
}

}  // namespace kvfence
