#pragma once

/// What a suite of runs has reached: a green suite in which the target of ARC never moved has shown
/// nothing about ARC.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/eviction/eviction_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::eviction {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kFound,
  kGhostInserted,
  kBusyBlockRemoved,
  kTwoReaders,
  kPromoted,
  kNotReadyTouched,
  kKeyTouchedTwice,
  kHitInB1,
  kHitInB2,
  kTargetAtCapacity,
  kTargetBackAtZero,
  kTargetFraction,
  kBusyBlockPassedOver,
  kProtectedBlockPassedOver,
  kEvictedFromBothLists,
  kEvictedFromT2BelowTarget,
  kGhostForgotten,
  kEvictFailed,
  kEvictFailedWithIdleT1,
  kCleared,
  kErrorAlreadyStored,
  kErrorNoFreeBlocks,
  kErrorUnknownKey,
  kErrorNotReady,
  kErrorAlreadyReady,
  kErrorNotReading,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 26> kReachGoals = {{
    {Reached::kFound, "found", "a question found a block"},
    {Reached::kGhostInserted, "ghost_inserted", "an inserted key was a ghost", 1, true},
    {Reached::kBusyBlockRemoved, "busy_block_removed",
     "a block was removed while it was written or read", 1, true},
    {Reached::kTwoReaders, "two_readers", "a block was acquired by a second reader", 1, true},
    {Reached::kPromoted, "promoted", "a touched block went from T1 to T2", 1, true},
    {Reached::kNotReadyTouched, "not_ready_touched", "ARC touched a block that is being written", 1,
     true},
    {Reached::kKeyTouchedTwice, "key_touched_twice", "one call touched a block twice", 1, true},
    {Reached::kHitInB1, "hit_in_b1", "a ghost of T1 was touched", 1, true},
    {Reached::kHitInB2, "hit_in_b2", "a ghost of T2 was touched", 1, true},
    {Reached::kTargetAtCapacity, "target_at_capacity", "the target rose to the capacity"},
    {Reached::kTargetBackAtZero, "target_back_at_zero", "the target fell to 0"},
    {Reached::kTargetFraction, "target_fraction", "the target was no whole number"},
    {Reached::kBusyBlockPassedOver, "busy_block_passed_over",
     "a victim was newer than a block of its list that is written or read", 1, true},
    {Reached::kProtectedBlockPassedOver, "protected_block_passed_over",
     "a victim was newer than an idle block of its list that is protected", 1, true},
    {Reached::kEvictedFromBothLists, "evicted_from_both_lists",
     "one call let blocks of T1 and of T2 go", 1, true},
    {Reached::kEvictedFromT2BelowTarget, "evicted_from_t2_below_target",
     "a block of T2 went although T1, below its target, had an idle one", 1, true},
    {Reached::kGhostForgotten, "ghost_forgotten", "an evict dropped the oldest ghost", 1, true},
    {Reached::kEvictFailed, "evict_failed", "too few blocks could go"},
    {Reached::kEvictFailedWithIdleT1, "evict_failed_with_idle_t1",
     "ARC refused although enough blocks are idle and unprotected", 1, true},
    {Reached::kCleared, "cleared", "blocks or ghosts were cleared", 1, true},
    {Reached::kErrorAlreadyStored, "error_already_stored", "refused with already_stored"},
    {Reached::kErrorNoFreeBlocks, "error_no_free_blocks", "refused with no_free_blocks"},
    {Reached::kErrorUnknownKey, "error_unknown_key", "refused with unknown_key"},
    {Reached::kErrorNotReady, "error_not_ready", "refused with not_ready"},
    {Reached::kErrorAlreadyReady, "error_already_ready", "refused with already_ready"},
    {Reached::kErrorNotReading, "error_not_reading", "refused with not_reading"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Called before each run: some situations are ARC's, or depend on the capacity.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: the keys of the command times the blocks.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  /// For a touch.
  void count_target(const Observation& before, const Observation& after);
  // For accepted commands behind an observation with the lists.
  void count_touch(const Touch& command, const Observation& before, const Observation& after);
  void count_evict(const Evict& command, const Observation& before, const Observation& after);
  void count_failed_evict(const Evict& command, const Observation& before);

  bool is_arc_ = false;
  double capacity_ = 0;
};

}  // namespace kvfence::eviction
