#pragma once

/// What a suite of runs of engines with an OffloadingConnector has reached: a green suite in which
/// no block was used again while it was copied has shown nothing about that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::offloading {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kLoad,
  kStore,
  kLoadOfPreempted,
  kLoadBehindHit,
  kLoadWithinSlot,
  kSeveralGroupsLoad,
  kWindowedGroupLoadsLess,
  kWindowedStoreLeavesOut,
  kUnroundedLoad,
  kDecodedStored,
  kPromptOnlyKept,
  kMaxOffloadTokens,
  kStoreRefused,
  kStoreEvicts,
  kGhostHit,
  kFilterStops,
  kAskAgainLoading,
  kAskAgainWriting,
  kPreemptedWhileStoring,
  kAbortedWhileStoring,
  kAbortedWhileLoading,
  kAbortedLoadFreed,
  kFlushOfPreempted,
  kFlushOfReused,
  kFlushOfIdle,
  kFlushOfReset,
  kHeld,
  kHeldFreed,
  kLateRank,
  kLoadFailed,
  kLoadFailedOnARank,
  kLoadRecomputed,
  kLoadFailedForGood,
  kStoreFailed,
  kStoreFailedOnARank,
  kReportedAgain,
  kMeasuredLoad,
  kMeasuredStore,
  kTwoStepsInFlight,
  kResetDone,
  kResetRefused,
  kCPUCacheReset,
  kResetWithJobs,
  kResetWhileLoading,
  kStoreWentDown,
  kStoreLostBelow,
  kHeldWentDown,
  kPromoted,
  kPromotionLoaded,
  kPromotionEvicts,
  kPromotionFailed,
  kNoRoomToPromote,
  kAskAgainTier,
  kEndedWhilePromoting,
  kPromotedFromFile,
  kFileStoreFailed,
  kFileLoadFailed,
  kErrorUnknownRequest,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNotInProfile,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorWrongTokenCount,
  kErrorUnknownJob,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 68> kReachGoals = {{
    {Reached::kLoad, "load", "a request waits while its blocks are copied back"},
    {Reached::kStore, "store", "blocks were copied to CPU memory"},
    {Reached::kLoadOfPreempted, "load_of_preempted", "a preempted request was loaded", 1, true},
    {Reached::kLoadBehindHit, "load_behind_hit",
     "a load began behind blocks that the GPU still held"},
    {Reached::kLoadWithinSlot, "load_within_slot", "a load began in the middle of a slot"},
    {Reached::kSeveralGroupsLoad, "several_groups_load", "a load brought blocks of several groups"},
    {Reached::kWindowedGroupLoadsLess, "windowed_group_loads_less",
     "a windowed group loaded fewer blocks than the longest"},
    {Reached::kWindowedStoreLeavesOut, "windowed_store_leaves_out",
     "a slot was filled in part: what a window does not need was left out"},
    {Reached::kUnroundedLoad, "unrounded_load", "a load ended within a block", 1, true},
    {Reached::kDecodedStored, "decoded_stored", "what decoding added was stored", 1, true},
    {Reached::kPromptOnlyKept, "prompt_only_kept",
     "what decoding added was not stored, since only prompts are", 1, true},
    {Reached::kMaxOffloadTokens, "max_offload_tokens",
     "a request's own bound kept blocks from being stored", 1, true},
    {Reached::kStoreRefused, "store_refused", "a store was refused, since too little could go", 1,
     true},
    {Reached::kStoreEvicts, "store_evicts", "a store took the slot of another block", 1, true},
    {Reached::kGhostHit, "ghost_hit", "a ghost moved ARC's target"},
    {Reached::kFilterStops, "filter_stops", "a block was looked up too seldom to be stored", 1,
     true},
    {Reached::kAskAgainLoading, "ask_again_loading",
     "a request was put off while another one loads its blocks", 1, true},
    {Reached::kAskAgainWriting, "ask_again_writing",
     "a request was put off while its blocks are being written", 1, true},
    {Reached::kPreemptedWhileStoring, "preempted_while_storing", "a victim's store was under way",
     1, true},
    {Reached::kAbortedWhileStoring, "aborted_while_storing",
     "a request was ended from outside while its store was under way", 1, true},
    {Reached::kAbortedWhileLoading, "aborted_while_loading",
     "a request was ended from outside while it was loading", 1, true},
    {Reached::kAbortedLoadFreed, "aborted_load_freed",
     "the load of a request that had ended was over", 1, true},
    {Reached::kFlushOfPreempted, "flush_of_preempted",
     "a step waits for the transfers of a victim"},
    {Reached::kFlushOfReused, "flush_of_reused",
     "a step waits for a transfer whose block it uses again"},
    {Reached::kFlushOfIdle, "flush_of_idle",
     "a step waits for all transfers, since no request is left", 1, true},
    {Reached::kFlushOfReset, "flush_of_reset",
     "a step waits for all transfers, since the CPU cache was reset"},
    {Reached::kHeld, "held", "the blocks of a request that ended were held for its stores", 1,
     true},
    {Reached::kHeldFreed, "held_freed", "held blocks were freed, since the stores were over"},
    {Reached::kLateRank, "late_rank", "a rank had reported a transfer that another one still made",
     1, true},
    {Reached::kLoadFailed, "load_failed", "a load failed"},
    {Reached::kLoadFailedOnARank, "load_failed_on_a_rank",
     "a load failed on one rank and not on another", 1, true},
    {Reached::kLoadRecomputed, "load_recomputed", "a request whose load failed went on", 1, true},
    {Reached::kLoadFailedForGood, "load_failed_for_good", "a request ended, since its load failed",
     1, true},
    {Reached::kStoreFailed, "store_failed", "a store failed"},
    {Reached::kStoreFailedOnARank, "store_failed_on_a_rank",
     "a store failed on one rank and not on another"},
    {Reached::kReportedAgain, "reported_again", "an engine reported a transfer a second time"},
    {Reached::kMeasuredLoad, "measured_load", "statistics had a load"},
    {Reached::kMeasuredStore, "measured_store", "statistics had a store"},
    {Reached::kTwoStepsInFlight, "two_steps_in_flight",
     "a step was planned before the one before it came back"},
    {Reached::kResetDone, "reset_done", "a reset took keys of the GPU's cache", 1, true},
    {Reached::kResetRefused, "reset_refused", "a reset did not succeed"},
    {Reached::kCPUCacheReset, "cpu_cache_reset", "the CPU cache was reset"},
    {Reached::kResetWithJobs, "reset_with_jobs",
     "the CPU cache was reset while transfers were under way", 1, true},
    {Reached::kResetWhileLoading, "reset_while_loading",
     "the CPU cache was reset while a request was loading", 1, true},
    {Reached::kStoreWentDown, "store_went_down", "a tier has kept what was stored", 1, true},
    {Reached::kStoreLostBelow, "store_lost_below", "a tier could not keep what was stored", 1,
     true},
    {Reached::kHeldWentDown, "held_went_down",
     "blocks that were held went down to a tier that wants whole requests"},
    {Reached::kPromoted, "promoted", "a tier has brought blocks up", 1, true},
    {Reached::kPromotionLoaded, "promotion_loaded", "a request loaded what a tier had brought up",
     1, true},
    {Reached::kPromotionEvicts, "promotion_evicts", "a promotion took the slot of another block", 1,
     true},
    {Reached::kPromotionFailed, "promotion_failed", "a tier could not bring blocks up", 1, true},
    {Reached::kNoRoomToPromote, "no_room_to_promote",
     "a tier had a block for which nothing could go"},
    {Reached::kAskAgainTier, "ask_again_tier", "a tier wanted to be asked again"},
    {Reached::kEndedWhilePromoting, "ended_while_promoting",
     "a request ended while blocks were brought up for it", 1, true},
    {Reached::kPromotedFromFile, "promoted_from_file", "blocks were brought up from files", 1,
     true},
    {Reached::kFileStoreFailed, "file_store_failed", "blocks could not be written to files", 1,
     true},
    {Reached::kFileLoadFailed, "file_load_failed",
     "a file was not there, not whole, another one, or could not be read", 1, true},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile", 1, true},
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
  /// Cost: linear in the requests and in the blocks of the CPU cache.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_step(const Observation& before, const Observation& after, const World& world);
  void count_load(const Transfer& load, const Observation& before, const Observation& after);
  void count_store(const Transfer& store);
  void count_not_stored(const Observation& before, const Observation& after, const World& world);
  void count_flush(const Observation& after);
  void count_update(const Observation& before, const Observation& after);
  void count_finish(const std::vector<std::string>& names, const Observation& before);
  void count_reset(const ResetPrefixCache& command, const Observation& before,
                   const Observation& after);
  void count_tier_calls(const Command& command, const Observation& before,
                        const Observation& after);
  void count_file_result(bool promotion, bool success, std::uint32_t job);
  void count_tier_results(const TierCallRecord& call, const Observation& before);

  ConnectorSetup setup_;
  bool fences_ = false;
  std::uint32_t num_in_flight_ = 0;
  std::unordered_map<std::string, AddRequest> added_;  ///< by name
  std::unordered_map<JobId, bool> is_store_;           ///< fence: by job
  bool was_reset_ = false;                             ///< since the last step
  std::map<std::uint32_t, bool> tried_;  ///< jobs of tiers that are over; not given up
  std::set<SlotId> promoted_;  ///< slots that a tier has filled, until something else is written
};

}  // namespace kvfence::engine::offloading
