#include "scenarios/protocol/outside_implementation.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence {

OutsideImplementation::OutsideImplementation(const Target& target, std::string command,
                                             OutsideOptions options)
    : target_(target), session_(std::move(command), options), members_(observation_names(target)) {}

std::vector<std::string> OutsideImplementation::unreported() const {
  std::vector<std::string> names;
  for (std::size_t index = 0; session_.is_running() && index < members_.size(); ++index) {
    if (!session_.reports(index)) names.emplace_back(members_[index]);
  }
  return names;
}

std::optional<ImplementationFailure> OutsideImplementation::start() {
  if (session_.is_running()) return std::nullopt;
  if (auto failure = session_.start(target_.name, members_)) return failure;
  observes_state_ = true;
  return check_reported();
}

std::optional<ImplementationFailure> OutsideImplementation::check_reported() {
  bool has_error = false;
  bool has_answer = false;
  bool has_state = false;
  const Observation observation = default_observation(target_);
  for (const DeclaredObject& part : parts_of(observation)) {
    for (std::size_t index = 0; index < part.size(); ++index) {
      const auto& declaration = part[index].declaration();
      const auto at = std::find(members_.begin(), members_.end(), declaration.name);
      if (!session_.reports(static_cast<std::size_t>(at - members_.begin()))) continue;
      has_error |= declaration.name == "error";
      has_answer |= declaration.name != "error" && declaration.domain == Domain::kResult;
      has_state |= declaration.domain == Domain::kState;
    }
  }
  if (has_error && has_answer && has_state) return std::nullopt;
  return session_.babbled(
      std::string("observes without ") + (!has_error    ? "error"
                                          : !has_answer ? "any answer"
                                                        : "anything of the state"),
      "error, and at least one member of an answer and one of the state");
}

std::optional<ImplementationFailure> OutsideImplementation::reset(const Setup& setup) {
  discard_outstanding();
  if (auto failure = start()) return failure;
  return session_.configure(config_line(setup.config()));
}

std::optional<ImplementationFailure> OutsideImplementation::submit(const Command& command,
                                                                   Observe observe) {
  KVFENCE_CHECK(follow_observe_.size() < window(), "more commands than the window holds");
  if (follow_observe_.empty()) {
    if (auto failure = session_.check_nothing_unasked()) return failure;
  }
  std::string& out = session_.outgoing();
  const bool wants_state = observe == Observe::kState;
  const bool says_observe = wants_state != observes_state_;
  if (says_observe) {
    out += wants_state ? "observe state=true\n" : "observe state=false\n";
    observes_state_ = wants_state;
  }
  print_to(out, to_line(command));
  out += '\n';
  follow_observe_.push_back(says_observe);
  // Well before the window is full, so that the child works while the caller goes on.
  constexpr std::size_t kFlushBytes = 4096;
  if (out.size() >= kFlushBytes) session_.flush();
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::collect(Observation& observation) {
  KVFENCE_CHECK(!follow_observe_.empty(), "no command is outstanding");
  const bool follows_observe = follow_observe_.front();
  follow_observe_.pop_front();
  if (follows_observe) {
    if (auto failure = session_.read_bare_reply()) return failure;
  }
  const std::vector<Field>* fields = nullptr;
  if (auto failure = session_.read_reply(fields)) return failure;
  return read_observation(*fields, observation);
}

std::optional<ImplementationFailure> OutsideImplementation::apply(const Command& command,
                                                                  const World&, Observe observe,
                                                                  Observation& observation) {
  if (auto failure = submit(command, observe)) return failure;
  observation = default_observation(target_);
  return collect(observation);
}

void OutsideImplementation::discard_outstanding() {
  const std::vector<Field>* fields = nullptr;
  for (; !follow_observe_.empty(); follow_observe_.pop_front()) {
    if (!session_.is_running()) continue;
    if (follow_observe_.front() && session_.read_bare_reply()) continue;
    static_cast<void>(session_.read_reply(fields));
  }
}

std::optional<ImplementationFailure> OutsideImplementation::read_observation(
    const std::vector<Field>& fields, Observation& observation) {
  if (!observation.numbers.has_value()) observation.numbers.emplace(*target_.numbers);
  for (const DeclaredObject& part : parts_of(observation)) {
    if (auto failure = read_part(part, fields)) return failure;
  }
  for (const Field& field : fields) {
    const auto at = std::find(members_.begin(), members_.end(), field.key);
    const bool is_reported =
        at != members_.end() && session_.reports(static_cast<std::size_t>(at - members_.begin()));
    if (!is_reported) return session_.unknown_key(members_);
  }
  return std::nullopt;
}

std::optional<ImplementationFailure> OutsideImplementation::read_part(
    const DeclaredObject& part, const std::vector<Field>& fields) {
  for (std::size_t index = 0; index < part.size(); ++index) {
    const MemberRef member = part[index];
    const std::string& name = member.declaration().name;
    const auto at = std::find(members_.begin(), members_.end(), name);
    if (!session_.reports(static_cast<std::size_t>(at - members_.begin()))) continue;
    std::string expected;
    if (const Field* field = find_field(fields, name)) {
      if (!member.assign(field->value, expected)) {
        return session_.babbled(field->key + "=" + print(field->value), expected);
      }
    } else if (member.declaration().is_optional) {
      // What is absent by default has no value that could be assigned.
      if (!member.assign(member.default_value(), expected)) member.reset();
    } else if (!member.reset()) {
      return session_.babbled("an answer to a command without " + name, name + "=...");
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
