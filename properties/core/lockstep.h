#pragma once

/// The lockstep: every command goes to two implementations, and after each one their observations
/// must be equal, the invariants must hold, and a recorded expectation must be met. The first thing
/// that is wrong ends the run.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/difference.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// An implementation that failed in a command.
template <class Target>
Divergence divergence_of(const Implementation<Target>& implementation,
                         const ImplementationFailure& failure, std::size_t step) {
  Divergence divergence;
  divergence.step = step;
  divergence.oracle = "implementation";
  divergence.expected = "an answer";
  divergence.actual = "none";
  divergence.message = implementation.name() + ": " + failure.message;
  return divergence;
}

struct LockstepOptions {
  bool compare = true;     ///< the two observations must be equal
  bool invariants = true;  ///< the target's invariants must hold on one side
  /// The whole state is observed after every n-th command (and where a caller asks); the answer and
  /// the numbers always.
  std::uint32_t state_every = 1;
};

/// Drives two implementations. Invariants watch the actual side if it answers at once; behind a
/// pipe, whose answers come later than the world moves, they watch the expected side, to which
/// equality ties the other.
template <class Target>
class Lockstep {
 public:
  using Config = typename Target::Config;
  using World = typename Target::World;
  using Command = typename Target::Command;
  using Observation = typename Target::Observation;
  using Invariants = typename Checks<Target>::Invariants;
  using Reach = typename Checks<Target>::Reach;

  Lockstep(Implementation<Target>& expected, Implementation<Target>& actual,
           LockstepOptions options = {})
      : expected_(expected), actual_(actual), options_(options), slots_(actual.window() + 1) {}

  /// Starts both afresh. Requires: a valid configuration.
  std::optional<Divergence> start(const Config& config);

  /// Runs one command on both sides.
  std::optional<Divergence> step(
      const Command& command, const std::optional<std::vector<Field>>& expectation = std::nullopt,
      bool want_state = false);

  /// Waits for every outstanding answer.
  std::optional<Divergence> finish();

  /// What the expected side showed after the last command.
  const Observation& last_expected() const {
    return slots_[(num_commands_ + slots_.size() - 1) % slots_.size()].expected;
  }
  /// What the actual side showed after the last command that was collected.
  const Observation& last_actual() const { return actual_observation_; }

  const World& world() const { return world_; }
  std::size_t num_commands() const { return num_commands_; }
  const Reach& reach() const { return reach_; }

 private:
  struct Slot {
    Observation expected;
  };

  std::optional<Divergence> collect_oldest();

  std::optional<Divergence> meets(const std::vector<Field>& expectation,
                                  const Observation& observation, std::size_t step);
  Divergence failed(const Implementation<Target>& implementation,
                    const ImplementationFailure& failure) const {
    return divergence_of(implementation, failure, num_commands_);
  }

  Implementation<Target>& expected_;
  Implementation<Target>& actual_;
  LockstepOptions options_;
  World world_;
  std::optional<Invariants> invariants_;
  Reach reach_;
  std::vector<Slot> slots_;
  Observation actual_observation_;
  std::size_t num_commands_ = 0;
  std::size_t num_collected_ = 0;
};

// Outside the class, so that a target whose templates are compiled once can leave them out
// (properties/core/compiled_once.h).

template <class Target>
std::optional<Divergence> Lockstep<Target>::start(const Config& config) {
  world_ = Target::make_world(config);
  invariants_.emplace(Checks<Target>::make_invariants(config));
  if constexpr (requires { reach_.start(config); }) reach_.start(config);
  num_commands_ = 0;
  num_collected_ = 0;
  for (Slot& slot : slots_) slot.expected = Observation{};
  if (auto failure = expected_.reset(config)) return failed(expected_, *failure);
  if (auto failure = actual_.reset(config)) return failed(actual_, *failure);
  return std::nullopt;
}

template <class Target>
std::optional<Divergence> Lockstep<Target>::step(
    const Command& command, const std::optional<std::vector<Field>>& expectation, bool want_state) {
  const bool state = want_state || options_.state_every == 1 ||
                     num_commands_ % options_.state_every == options_.state_every - 1;
  const Observe observe = state ? Observe::kState : Observe::kNumbers;
  const Observation& before = last_expected();
  Slot& slot = slots_[num_commands_ % slots_.size()];
  world_.apply(command);
  if (auto failure = expected_.submit(command, world_, observe)) {
    return failed(expected_, *failure);
  }
  if (auto failure = expected_.collect(slot.expected)) {
    return failed(expected_, *failure);
  }
  reach_.count(command, before, slot.expected, world_);
  if (auto failure = actual_.submit(command, world_, observe)) {
    return failed(actual_, *failure);
  }
  const std::size_t step = num_commands_++;
  if (expectation) {
    if (auto divergence = meets(*expectation, slot.expected, step)) return divergence;
  }
  const bool answers_at_once = actual_.window() == 1;
  if (num_commands_ - num_collected_ >= actual_.window()) {
    if (auto divergence = collect_oldest()) return divergence;
  }
  if (options_.invariants) {
    const Observation& watched = answers_at_once ? actual_observation_ : slot.expected;
    if (auto divergence = invariants_->check(command, watched, world_, step)) return divergence;
  }
  return std::nullopt;
}

template <class Target>
std::optional<Divergence> Lockstep<Target>::finish() {
  while (num_collected_ < num_commands_) {
    if (auto divergence = collect_oldest()) return divergence;
  }
  return std::nullopt;
}

template <class Target>
std::optional<Divergence> Lockstep<Target>::collect_oldest() {
  const std::size_t step = num_collected_;
  const Observation& expected = slots_[step % slots_.size()].expected;
  // What the other side does not report keeps the expected value: nothing is claimed about it.
  if (actual_.window() > 1) actual_observation_ = expected;
  if (auto failure = actual_.collect(actual_observation_)) {
    return divergence_of(actual_, *failure, step);
  }
  ++num_collected_;
  if (!options_.compare || expected == actual_observation_) return std::nullopt;
  return first_difference(expected, actual_observation_, step, [this](std::string_view bytes) {
    return Checks<Target>::symbol_of(world_, bytes);
  });
}

template <class Target>
std::optional<Divergence> Lockstep<Target>::meets(const std::vector<Field>& expectation,
                                                  const Observation& observation,
                                                  std::size_t step) {
  return matches(expectation, observation, step, [this](std::string_view symbol) {
    return Checks<Target>::resolve(world_, symbol);
  });
}

/// Runs a scenario from its start: nothing if all is well.
template <class Target>
std::optional<Divergence> run_scenario(Lockstep<Target>& lockstep,
                                       const Scenario<Target>& scenario) {
  if (auto divergence = lockstep.start(scenario.config)) return divergence;
  for (std::size_t index = 0; index < scenario.steps.size(); ++index) {
    const Step<Target>& step = scenario.steps[index];
    const bool is_last = index + 1 == scenario.steps.size();
    const bool want_state = is_last || step.expectation.has_value();
    if (auto divergence = lockstep.step(step.command, step.expectation, want_state)) {
      return divergence;
    }
  }
  return lockstep.finish();
}

}  // namespace kvfence
