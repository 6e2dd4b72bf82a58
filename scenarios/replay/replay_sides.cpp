#include "scenarios/replay/replay_sides.h"

namespace kvfence {

Divergence traffic_divergence(std::size_t step, std::string field, std::string expected,
                              std::string actual, std::string message) {
  return {step,
          "traffic",
          std::move(field),
          std::move(expected),
          std::move(actual),
          std::move(message)};
}

ReplaySides::ReplaySides(const Checks& checks, Implementation& expected, Implementation* actual,
                         std::uint32_t state_every)
    : expected_(expected), scenario_(*checks.target) {
  if (actual == nullptr) return;
  LockstepOptions options;
  options.state_every = state_every;
  lockstep_.emplace(checks, expected, *actual, options);
}

std::optional<Divergence> ReplaySides::start(const Setup& setup) {
  scenario_.config = setup.config();
  if (lockstep_) return lockstep_->start(setup);
  world_ = setup.target().make_world(setup);
  seen_.numbers.emplace(*setup.target().numbers);
  return alone_failed(expected_.reset(setup));
}

std::optional<Divergence> ReplaySides::step(const Command& command, bool want_state) {
  if (num_commands_ < num_kept_) scenario_.steps.push_back({command, std::nullopt, {}});
  ++num_commands_;
  if (lockstep_) return lockstep_->step(command, std::nullopt, want_state);
  world_->apply(command);
  return alone_failed(expected_.apply(command, *world_, Observe::kNumbers, seen_));
}

std::optional<Divergence> ReplaySides::finish() {
  return lockstep_ ? lockstep_->finish() : std::nullopt;
}

/// What becomes of a failure in the last command.
std::optional<Divergence> ReplaySides::alone_failed(
    const std::optional<ImplementationFailure>& failure) const {
  if (!failure) return std::nullopt;
  return divergence_of(expected_, *failure, num_commands_ == 0 ? 0 : num_commands_ - 1);
}

}  // namespace kvfence
