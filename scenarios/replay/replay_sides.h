#pragma once

/// Where the commands of a replay go: to two implementations in lockstep, or to one alone, for the
/// figures.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/divergence.h"
#include "properties/core/lockstep.h"

namespace kvfence {

/// What becomes of a failure of an implementation that runs alone, in the last of its commands.
template <class Target>
std::optional<Divergence> alone_failed(const Implementation<Target>& implementation,
                                       const std::optional<ImplementationFailure>& failure,
                                       std::size_t num_commands) {
  if (!failure) return std::nullopt;
  return divergence_of(implementation, *failure, num_commands == 0 ? 0 : num_commands - 1);
}

template <class Target>
class ReplaySides {
 public:
  using Config = typename Target::Config;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;

  /// actual: null if `expected` runs alone; then its state is never asked for.
  /// state_every: LockstepOptions.
  ReplaySides(Implementation<Target>& expected, Implementation<Target>* actual,
              std::uint32_t state_every)
      : expected_(expected) {
    if (actual == nullptr) return;
    LockstepOptions options;
    options.state_every = state_every;
    lockstep_.emplace(expected, *actual, options);
  }

  std::optional<Divergence> start(const Config& config) {
    scenario_.config = config;
    if (lockstep_) return lockstep_->start(config);
    world_ = Target::make_world(config);
    return alone_failed(expected_, expected_.reset(config), num_commands_);
  }

  std::optional<Divergence> step(const Command& command, bool want_state = false) {
    ++num_commands_;
    if (lockstep_) {
      scenario_.steps.push_back({command, std::nullopt, {}});
      return lockstep_->step(command, std::nullopt, want_state);
    }
    world_.apply(command);
    auto failure = expected_.submit(command, world_, Observe::kNumbers);
    if (!failure) failure = expected_.collect(seen_);
    return alone_failed(expected_, failure, num_commands_);
  }

  /// What the expected side answered to the last command.
  const Observation& seen() const { return lockstep_ ? lockstep_->last_expected() : seen_; }
  std::size_t num_commands() const { return num_commands_; }
  /// What two sides were given so far, to tell a divergence as a scenario.
  const Scenario<Target>& scenario() const { return scenario_; }

 private:
  Implementation<Target>& expected_;
  std::optional<Lockstep<Target>> lockstep_;
  typename Target::World world_;
  Observation seen_;
  Scenario<Target> scenario_;
  std::size_t num_commands_ = 0;
};

}  // namespace kvfence
