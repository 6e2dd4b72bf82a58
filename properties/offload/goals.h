#pragma once

/// What a suite of runs has reached: a green suite in which no store had to evict has shown nothing
/// about eviction.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/offload/offload_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::offload {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kHit,
  kLookupEndedByAWrite,
  kPending,
  kNothingToStore,
  kPartlyHeld,
  kGhostStored,
  kStoreEvicted,
  kStoreFailed,
  kStoreFailedForItsOwnKeys,
  kStoreFailedWithIdleT1,
  kFreedSlotReused,
  kFilterKeptBack,
  kFilterLetPass,
  kStoreEndedTwice,
  kFailedStoreForgotten,
  kTwoLoads,
  kLoadOfOneKeyTwice,
  kPromoted,
  kGhostTouched,
  kReset,
  kStoredEvent,
  kRemovedEvent,
  kErrorNotInProfile,
  kErrorUnknownKey,
  kErrorNotReady,
  kErrorNotReading,
  kErrorListedTwice,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 27> kReachGoals = {{
    {Reached::kHit, "hit", "a lookup found a block that can be read"},
    {Reached::kLookupEndedByAWrite, "lookup_ended_by_a_write",
     "a lookup of several keys ended at a block that is being written", 1, true},
    {Reached::kPending, "pending", "a lookup of one key found it being written"},
    {Reached::kNothingToStore, "nothing_to_store", "all keys of a store were held", 1, true},
    {Reached::kPartlyHeld, "partly_held", "some keys of a store were held, some not", 1, true},
    {Reached::kGhostStored, "ghost_stored", "a stored key was a ghost", 1, true},
    {Reached::kStoreEvicted, "store_evicted", "a store made blocks go"},
    {Reached::kStoreFailed, "store_failed", "too few blocks could go for a store"},
    {Reached::kStoreFailedForItsOwnKeys, "store_failed_for_its_own_keys",
     "enough blocks were idle for a store that failed, but some are its own", 1, true},
    {Reached::kStoreFailedWithIdleT1, "store_failed_with_idle_t1",
     "ARC refused a store although enough blocks are idle and not its own", 1, true},
    {Reached::kFreedSlotReused, "freed_slot_reused",
     "a store got a slot that an ended store had freed", 1, true},
    {Reached::kFilterKeptBack, "filter_kept_back", "a key was not stored for too few lookups", 1,
     true},
    {Reached::kFilterLetPass, "filter_let_pass", "a key was stored with a filter"},
    {Reached::kStoreEndedTwice, "store_ended_twice", "a store ended for a block that is ready", 1,
     true},
    {Reached::kFailedStoreForgotten, "failed_store_forgotten", "a failed store forgot a block"},
    {Reached::kTwoLoads, "two_loads", "two loads read a block", 1, true},
    {Reached::kLoadOfOneKeyTwice, "load_of_one_key_twice", "a load named a key twice"},
    {Reached::kPromoted, "promoted", "a touched block went from T1 to T2", 1, true},
    {Reached::kGhostTouched, "ghost_touched", "a touched ghost moved the target"},
    {Reached::kReset, "reset", "a reset forgot blocks"},
    {Reached::kStoredEvent, "stored_event", "an event told of stored blocks"},
    {Reached::kRemovedEvent, "removed_event", "an event told of removed blocks"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile"},
    {Reached::kErrorUnknownKey, "error_unknown_key", "refused with unknown_key"},
    {Reached::kErrorNotReady, "error_not_ready", "refused with not_ready"},
    {Reached::kErrorNotReading, "error_not_reading", "refused with not_reading"},
    {Reached::kErrorListedTwice, "error_listed_twice", "refused with listed_twice"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Called before each run: some situations need a filter.
  void start(const Config& config) { has_filter_ = config.store_threshold >= 2; }

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: the keys of the command times the blocks.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  // For accepted commands.
  void count_accepted(const Lookup&, const Observation&, const Observation&);
  void count_accepted(const LookupKey&, const Observation&, const Observation&);
  void count_accepted(const Touch&, const Observation&, const Observation&);
  void count_accepted(const PrepareLoad&, const Observation&, const Observation&);
  void count_accepted(const CompleteLoad&, const Observation&, const Observation&) {}
  void count_accepted(const PrepareStore&, const Observation&, const Observation&);
  void count_accepted(const CompleteStore&, const Observation&, const Observation&);
  void count_accepted(const ResetCache&, const Observation&, const Observation&);
  void count_accepted(const TakeEvents&, const Observation&, const Observation&);

  void count_failed_store(const PrepareStore& command, const Observation& before);

  bool has_filter_ = false;
};

}  // namespace kvfence::offload
