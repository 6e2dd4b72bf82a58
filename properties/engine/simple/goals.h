#pragma once

/// What a suite of runs with a SimpleCPUOffloadConnector has reached: a green suite in which no hit
/// was pinned has shown nothing about pins.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::simple {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kLoad,
  kStore,
  kLazyStore,
  kLoadBehindHit,
  kLoadOfPreempted,
  kLoadOfSeveral,
  kLoadsShareBlock,
  kSeveralGroupsLoad,
  kNullBlocksPassedOver,
  kDecodedStored,
  kStoreOfSeveral,
  kStoreBesideLoad,
  kStoreEvicts,
  kStoreCutShort,
  kStoredTwice,
  kKeyStoredTwice,
  kStoreOutlivesRequest,
  kPinStays,
  kPinFreedByAbort,
  kFlush,
  kFlushEndsCopies,
  kAbortedWhileLoading,
  kAbortedLoadFreed,
  kLateRank,
  kCursorForgotten,
  kTwoStepsInFlight,
  kResetDone,
  kResetRefused,
  kResetOfConnector,
  kErrorUnknownRequest,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorWrongTokenCount,
  kErrorUnknownJob,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 39> kReachGoals = {{
    {Reached::kLoad, "load", "a request waits while its blocks are copied back"},
    {Reached::kStore, "store", "eager: blocks were copied to CPU memory"},
    {Reached::kLazyStore, "lazy_store", "lazy: blocks that were about to be evicted were copied"},
    {Reached::kLoadBehindHit, "load_behind_hit",
     "a load began behind blocks that the GPU still held", 1, true},
    {Reached::kLoadOfPreempted, "load_of_preempted", "a preempted request was loaded", 1, true},
    {Reached::kLoadOfSeveral, "load_of_several", "one event loads for several requests"},
    {Reached::kLoadsShareBlock, "loads_share_block", "one CPU block was loaded twice at a time"},
    {Reached::kSeveralGroupsLoad, "several_groups_load", "a load brought blocks of several groups",
     1, true},
    {Reached::kNullBlocksPassedOver, "null_blocks_passed_over",
     "a load left out what a window does not need", 1, true},
    {Reached::kDecodedStored, "decoded_stored", "a block with decoded tokens was stored", 1, true},
    {Reached::kStoreOfSeveral, "store_of_several", "one event stores blocks of several requests", 1,
     true},
    {Reached::kStoreBesideLoad, "store_beside_load", "a step planned a load and a store"},
    {Reached::kStoreEvicts, "store_evicts", "a store took the CPU block of another key", 1, true},
    {Reached::kStoreCutShort, "store_cut_short",
     "a confirmed block was not stored, since no CPU block was free", 1, true},
    {Reached::kStoredTwice, "stored_twice", "a block was stored while its store was under way"},
    {Reached::kKeyStoredTwice, "key_stored_twice", "a key was stored twice at a time", 1, true},
    {Reached::kStoreOutlivesRequest, "store_outlives_request",
     "a block was being stored when its last request had gone", 1, true},
    {Reached::kPinStays, "pin_stays",
     "a hit stayed pinned behind a step, since its request found no room", 1, true},
    {Reached::kPinFreedByAbort, "pin_freed_by_abort",
     "a request was ended while its hit was pinned", 1, true},
    {Reached::kFlush, "flush", "a step with a victim waits for all copies"},
    {Reached::kFlushEndsCopies, "flush_ends_copies", "a flush ended a copy of a step before", 1,
     true},
    {Reached::kAbortedWhileLoading, "aborted_while_loading",
     "a request was ended from outside while it was loading", 1, true},
    {Reached::kAbortedLoadFreed, "aborted_load_freed",
     "the load of a request that had ended was over", 1, true},
    {Reached::kLateRank, "late_rank", "a store was reported by some ranks and not by all"},
    {Reached::kCursorForgotten, "cursor_forgotten",
     "lazy: the walk began anew, since its last block was in use", 1, true},
    {Reached::kTwoStepsInFlight, "two_steps_in_flight",
     "a step was planned before the one before it came back"},
    {Reached::kResetDone, "reset_done", "a reset took keys of the GPU's cache", 1, true},
    {Reached::kResetRefused, "reset_refused", "a reset did not succeed"},
    {Reached::kResetOfConnector, "reset_of_connector",
     "the connector was to be reset, which it cannot"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
    {Reached::kErrorWrongTokenCount, "error_wrong_token_count", "refused with wrong_token_count"},
    {Reached::kErrorUnknownJob, "error_unknown_job", "refused with unknown_job"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: linear in the requests, in the blocks of both pools, and in the stores under way.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_step(const Observation& before, const Observation& after, const World& world);
  void count_load(const Observation& before, const Observation& after);
  void count_store(const Observation& before, const Observation& after, const World& world);
  void count_not_stored(const Observation& before, const Observation& after, const World& world);
  void count_update(const Observation& before, const Observation& after);
  void count_finish(const std::vector<std::string>& names, const Observation& before);
  void count_reset(const ResetPrefixCache& command, const Observation& before,
                   const Observation& after);

  const SimpleCPUOffloadSpec& spec() const { return *setup_.simple; }

  EngineSetup setup_;
  std::deque<bool> flushes_;                      ///< steps in flight, oldest first
  std::map<JobId, std::vector<BlockId>> stores_;  ///< GPU blocks, not completed
  std::map<JobId, std::uint32_t> num_reports_;    ///< by store
};

}  // namespace kvfence::engine::simple
