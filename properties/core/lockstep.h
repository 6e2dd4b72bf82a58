#pragma once

/// The lockstep: runs every command on two implementations. After each command their observations
/// must be equal, the rules must hold, and a recorded expectation must be met. The first failure
/// ends the run.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/divergence.h"
#include "properties/core/oracles.h"
#include "properties/core/run_position.h"

namespace kvfence {

struct LockstepOptions {
  Oracles oracles;
  /// The whole state is observed after every n-th command (and when a caller asks for it); the
  /// answer and the numbers after every command.
  std::uint32_t state_every = 1;
  bool counts_goals = true;         ///< for goal_counts()
  RunPosition* position = nullptr;  ///< receives where the run is; may be null
};

/// Drives two implementations. The rules check the actual side if it answers before the next
/// command. If a child process is compared, it answers later, and the rules check the expected
/// side, to which it must be equal. If it is not compared, each command waits for its answer, and
/// rules that need what the child does not report are switched off.
class Lockstep {
 public:
  Lockstep(const Checks& checks, Implementation& expected, Implementation& actual,
           LockstepOptions options = {});

  /// Resets both sides. counts_tables: compare_tables() will be called.
  std::optional<Divergence> start(const Setup& setup, bool counts_tables = true);

  /// Runs one command on both sides.
  std::optional<Divergence> step(
      const Command& command, const std::optional<std::vector<Field>>& expectation = std::nullopt,
      bool want_state = false);

  /// Waits for every outstanding answer.
  std::optional<Divergence> finish();

  void observe_state_every(std::uint32_t num_commands) { options_.state_every = num_commands; }
  /// If the internal tables of the expected side have as many entries as at the start, those of the
  /// actual side must too. Cost: two digests.
  std::optional<Divergence> compare_tables();

  const Checks& checks() const { return checks_; }
  const Oracles& oracles() const { return options_.oracles; }
  /// Whether rules and expectations judge the actual side, because it is not compared.
  bool judges_actual_alone() const { return !options_.oracles.lockstep; }
  /// What the expected side showed after the last command.
  const Observation& last_expected() const { return expected_observations_[newest_]; }
  /// What the actual side showed after the last command that was collected.
  const Observation& last_actual() const { return actual_observations_[newest_actual_]; }

  const World& world() const { return *world_; }
  std::size_t num_commands() const { return num_commands_; }
  /// Commands that the actual side has answered.
  std::size_t num_collected() const { return num_collected_; }
  /// How often tables were as at the start, and compared, over all runs; null if a side does not
  /// show the size of its tables.
  std::optional<std::uint64_t> num_compared_tables() const { return num_compared_tables_; }
  /// Over all runs of this lockstep.
  const GoalCounts& goal_counts() const { return *goal_counts_; }

 private:
  void enter(RunPhase phase) const {
    if (options_.position) options_.position->begin(phase);
  }
  /// The next slot in the ring.
  std::size_t after(std::size_t slot) const {
    return slot + 1 == expected_observations_.size() ? 0 : slot + 1;
  }
  std::unique_ptr<RuleChecker> make_rules(const Setup& setup) const;
  std::optional<Divergence> stop_if_requested(std::size_t step) const;
  std::optional<Divergence> collect_oldest();
  std::optional<Divergence> compare(const Observation& expected, std::size_t step) const;

  const Checks& checks_;
  Implementation& expected_;
  Implementation& actual_;
  LockstepOptions options_;
  std::size_t window_;  ///< commands of the actual side that may be outstanding
  std::unique_ptr<World> world_;
  std::unique_ptr<RuleChecker> rules_;
  std::unique_ptr<GoalCounts> goal_counts_;
  std::vector<Observation> expected_observations_;  ///< a ring: those outstanding, and one before
  std::size_t newest_ = 0;                          ///< in the ring: the last command
  std::size_t oldest_ = 0;                          ///< in the ring: the next one to collect
  std::array<Observation, 2> actual_observations_;  ///< the last one, and one before
  std::size_t newest_actual_ = 0;                   ///< of the two
  std::size_t num_commands_ = 0;
  std::size_t num_collected_ = 0;
  std::optional<std::size_t> expected_base_;  ///< entries at the start
  std::optional<std::size_t> actual_base_;
  std::optional<std::uint64_t> num_compared_tables_;
};

/// An implementation that failed in a command.
Divergence divergence_of(const Implementation& implementation, const ImplementationFailure& failure,
                         std::size_t step);

/// Runs a scenario from its start: nothing if all is well.
/// Requires: a configuration that was prepared, or that prepare accepts.
std::optional<Divergence> run_scenario(Lockstep& lockstep, const Scenario& scenario);
std::optional<Divergence> run_scenario(Lockstep& lockstep, const Scenario& scenario,
                                       const Setup& setup);

}  // namespace kvfence
