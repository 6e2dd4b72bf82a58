#include "scenarios/replay/replay_sides.h"

#include <algorithm>
#include <utility>

#include "contract/core/lists.h"

namespace kvfence {

ReplaySides::ReplaySides(const Checks& checks, Implementation& expected, Implementation* actual,
                         std::uint32_t state_every, std::string promise)
    : expected_(expected), promise_(std::move(promise)), scenario_(*checks.target) {
  if (actual == nullptr) return;
  LockstepOptions options;
  options.state_every = state_every;
  lockstep_.emplace(checks, expected, *actual, options);
}

void ReplaySides::start(const Setup& setup) {
  scenario_.config = setup.config();
  if (lockstep_) {
    divergence_ = lockstep_->start(setup);
    return;
  }
  world_ = setup.target().make_world(setup);
  seen_.emplace(*setup.target().observation);
  take_failure(expected_.reset(setup));
}

bool ReplaySides::send(const Command& command, bool want_state,
                       std::initializer_list<ErrorCode> may_refuse) {
  if (keeps_commands_) scenario_.steps.push_back({command, std::nullopt, {}});
  ++num_commands_;
  if (lockstep_) {
    divergence_ = lockstep_->step(command, std::nullopt, want_state);
  } else {
    world_->apply(command);
    const Observe observe = want_state ? Observe::kState : Observe::kNumbers;
    take_failure(expected_.apply(command, *world_, observe, seen_));
  }
  if (is_over()) return false;
  const ErrorCode error = shown_error(seen());
  const bool is_answer = error == ErrorCode::kNone || contains(may_refuse, error);
  return is_answer || refuse("error", "none", std::string(to_text(error)));
}

bool ReplaySides::diverge(std::string field, std::string expected, std::string actual,
                          std::string message) {
  if (is_over()) return false;
  divergence_ = {std::max<std::size_t>(num_commands_, 1) - 1,
                 "traffic",
                 std::move(field),
                 std::move(expected),
                 std::move(actual),
                 std::move(message)};
  return false;
}

bool ReplaySides::refuse(std::string field, std::string expected, std::string actual) {
  return diverge(std::move(field), std::move(expected), std::move(actual), promise_);
}

ReplayEnd ReplaySides::end() const {
  const bool has_scenario = divergence_ && keeps_commands_;
  return {num_commands_, divergence_, has_scenario ? std::optional(scenario_) : std::nullopt};
}

void ReplaySides::take_failure(const std::optional<ImplementationFailure>& failure) {
  if (!failure) return;
  divergence_ = divergence_of(expected_, *failure, std::max<std::size_t>(num_commands_, 1) - 1);
}

}  // namespace kvfence
