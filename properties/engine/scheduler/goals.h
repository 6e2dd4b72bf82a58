#pragma once

/// What a suite of scheduler runs has reached: a green suite in which nobody was ever preempted has
/// shown nothing about preemption.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::scheduler {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kChunk,
  kThresholdCut,
  kTwoStepsInFlight,
  kPausedNew,
  kPausedAll,
  kNothingToCompute,
  kOutputsPlanned,
  kModelLengthCut,
  kDraftsSent,
  kDraftsCut,
  kPreemptedFCFS,
  kPreemptedPriority,
  kVictimScheduled,
  kVictimShiftsLoop,
  kSelfVictim,
  kPreemptedInFlight,
  kResumed,
  kAllTokenIds,
  kCommonPrefix,
  kHitAtAdmission,
  kHitAtResume,
  kPriorityOvertakes,
  kNoRoomToRun,
  kBlocksStopAdmission,
  kGateStopsAdmission,
  kBudgetStopsAdmission,
  kReserveStopsAdmission,
  kNeverFits,
  kGrammarSkipped,
  kGrammarPromoted,
  kAskAgain,
  kSyncLoad,
  kAsyncLoad,
  kLoadPromoted,
  kLoadOfPreempted,
  kLastTokenRecomputed,
  kDraftsAllAccepted,
  kDraftsSomeAccepted,
  kDraftsRejected,
  kStopWithinDrafts,
  kStoppedByEos,
  kStoppedByToken,
  kKeptGoing,
  kStoppedByMaxTokens,
  kStoppedByModelLength,
  kStoppedWhilePreempted,
  kOutputWhilePreempted,
  kStaleOutput,
  kOutputOfFinished,
  kLoadFailedPartly,
  kLoadFailedWholly,
  kLoadFailedForGood,
  kRunningCutBack,
  kRunningFailedForGood,
  kSharedBlockKept,
  kInvalidBlocksEvicted,
  kHeld,
  kHeldFreed,
  kAbortedLoadFreed,
  kAbortedWaiting,
  kAbortedInFlight,
  kAbortedPreemptedInFlight,
  kAbortedWhileLoading,
  kAbortedAfterLoad,
  kAbortedWhileHeld,
  kDraftsTaken,
  kDraftsIgnored,
  kResetDone,
  kResetRefused,
  kRunningReset,
  kResetInFlight,
  kConnectorReset,
  kConnectorResetFailed,
  kErrorUnknownRequest,
  kErrorUnknownBlock,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorWrongTokenCount,
  kErrorSingleGroupOnly,
  kErrorNotLoading,
  kErrorNotFinished,
  kErrorListedTwice,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 87> kReachGoals = {{
    {Reached::kChunk, "chunk", "a step computed a part of a prompt"},
    {Reached::kThresholdCut, "threshold_cut", "a part was as long as long_prefill_token_threshold"},
    {Reached::kTwoStepsInFlight, "two_steps_in_flight",
     "a step was planned before the one before it came back"},
    {Reached::kPausedNew, "paused_new", "a request waited because new ones are paused"},
    {Reached::kPausedAll, "paused_all", "a step was empty because all is paused"},
    {Reached::kNothingToCompute, "nothing_to_compute",
     "a running request was passed over: all it has is planned", 1, true},
    {Reached::kOutputsPlanned, "outputs_planned",
     "a running request was passed over: its last output is planned", 1, true},
    {Reached::kModelLengthCut, "model_length_cut",
     "max_model_len left a running request fewer tokens than it wanted", 1, true},
    {Reached::kDraftsSent, "drafts_sent", "a step had speculative tokens"},
    {Reached::kDraftsCut, "drafts_cut", "a step had fewer drafts than the request", 1, true},
    {Reached::kPreemptedFCFS, "preempted_fcfs", "a request was preempted under fcfs"},
    {Reached::kPreemptedPriority, "preempted_priority", "a request was preempted under priority"},
    {Reached::kVictimScheduled, "victim_scheduled",
     "a victim had tokens of the same step, which went back to the budget", 1, true},
    {Reached::kVictimShiftsLoop, "victim_shifts_loop",
     "a victim stood before the request at hand and had no tokens", 1, true},
    {Reached::kSelfVictim, "self_victim", "nobody was left to be preempted"},
    {Reached::kPreemptedInFlight, "preempted_in_flight", "a victim had a step in flight"},
    {Reached::kResumed, "resumed", "a preempted request ran again"},
    {Reached::kAllTokenIds, "all_token_ids", "a running request had not been in the step before"},
    {Reached::kCommonPrefix, "common_prefix", "several running requests share their first blocks"},
    {Reached::kHitAtAdmission, "hit_at_admission", "a new request found blocks", 1, true},
    {Reached::kHitAtResume, "hit_at_resume", "a resumed request found blocks", 1, true},
    {Reached::kPriorityOvertakes, "priority_overtakes",
     "a request was admitted before an earlier one, by priority", 1, true},
    {Reached::kNoRoomToRun, "no_room_to_run", "admission ended at max_num_seqs"},
    {Reached::kBlocksStopAdmission, "blocks_stop_admission", "admission ended for want of blocks",
     1, true},
    {Reached::kGateStopsAdmission, "gate_stops_admission",
     "admission ended although a first part would have fit", 1, true},
    {Reached::kBudgetStopsAdmission, "budget_stops_admission",
     "admission ended at a prompt that may not be cut", 1, true},
    {Reached::kReserveStopsAdmission, "reserve_stops_admission",
     "a load waited for what prefills still need", 1, true},
    {Reached::kNeverFits, "never_fits",
     "a request ended because it does not fit into the empty pool"},
    {Reached::kGrammarSkipped, "grammar_skipped",
     "a request was passed over until its grammar is there", 1, true},
    {Reached::kGrammarPromoted, "grammar_promoted", "a request went on with its grammar", 1, true},
    {Reached::kAskAgain, "ask_again", "the connector wanted to be asked again"},
    {Reached::kSyncLoad, "sync_load", "tokens were loaded within a step"},
    {Reached::kAsyncLoad, "async_load", "a request waits while it is loaded", 1, true},
    {Reached::kLoadPromoted, "load_promoted", "a loaded request went on", 1, true},
    {Reached::kLoadOfPreempted, "load_of_preempted",
     "a load of a request that was preempted before went on", 1, true},
    {Reached::kLastTokenRecomputed, "last_token_recomputed",
     "everything was loaded, so the last token is computed again", 1, true},
    {Reached::kDraftsAllAccepted, "drafts_all_accepted", "every draft of a request was right"},
    {Reached::kDraftsSomeAccepted, "drafts_some_accepted", "some drafts of a request were right"},
    {Reached::kDraftsRejected, "drafts_rejected", "no draft of a request was right"},
    {Reached::kStopWithinDrafts, "stop_within_drafts",
     "a request stopped before its last accepted token"},
    {Reached::kStoppedByEos, "stopped_by_eos", "a request ended at its eos token"},
    {Reached::kStoppedByToken, "stopped_by_token", "a request ended at a stop token"},
    {Reached::kKeptGoing, "kept_going", "min_tokens kept a request from stopping"},
    {Reached::kStoppedByMaxTokens, "stopped_by_max_tokens", "a request ended at max_tokens", 1,
     true},
    {Reached::kStoppedByModelLength, "stopped_by_model_length", "a request ended at max_model_len",
     1, true},
    {Reached::kStoppedWhilePreempted, "stopped_while_preempted",
     "a request ended by a step from before its preemption", 1, true},
    {Reached::kOutputWhilePreempted, "output_while_preempted", "a preempted request took a token",
     1, true},
    {Reached::kStaleOutput, "stale_output", "what came back for a request was dropped", 1, true},
    {Reached::kOutputOfFinished, "output_of_finished",
     "a step came back for a request that had ended", 1, true},
    {Reached::kLoadFailedPartly, "load_failed_partly",
     "some loaded blocks of a waiting request stayed valid", 1, true},
    {Reached::kLoadFailedWholly, "load_failed_wholly",
     "no loaded block of a waiting request stayed valid", 1, true},
    {Reached::kLoadFailedForGood, "load_failed_for_good", "a failed load ended a waiting request",
     1, true},
    {Reached::kRunningCutBack, "running_cut_back", "an invalid block cut a running request back", 1,
     true},
    {Reached::kRunningFailedForGood, "running_failed_for_good",
     "an invalid block ended a running request", 1, true},
    {Reached::kSharedBlockKept, "shared_block_kept",
     "an invalid block was an earlier request's to compute again", 1, true},
    {Reached::kInvalidBlocksEvicted, "invalid_blocks_evicted", "a key of an invalid block went", 1,
     true},
    {Reached::kHeld, "held", "the connector kept the blocks of a request that ended", 1, true},
    {Reached::kHeldFreed, "held_freed", "held blocks were freed by finished_sending"},
    {Reached::kAbortedLoadFreed, "aborted_load_freed",
     "the load of a request that had ended was over", 1, true},
    {Reached::kAbortedWaiting, "aborted_waiting", "a waiting request was ended from outside", 1,
     true},
    {Reached::kAbortedInFlight, "aborted_in_flight",
     "a running request with a step in flight was ended from outside", 1, true},
    {Reached::kAbortedPreemptedInFlight, "aborted_preempted_in_flight",
     "a preempted request with a step in flight was ended from outside", 1, true},
    {Reached::kAbortedWhileLoading, "aborted_while_loading",
     "a request was ended from outside while it was loading", 1, true},
    {Reached::kAbortedAfterLoad, "aborted_after_load",
     "a request was ended from outside between load and promotion", 1, true},
    {Reached::kAbortedWhileHeld, "aborted_while_held", "a held request was ended again", 1, true},
    {Reached::kDraftsTaken, "drafts_taken", "a request took drafts", 1, true},
    {Reached::kDraftsIgnored, "drafts_ignored",
     "a request took no drafts, since its prompt is under way", 1, true},
    {Reached::kResetDone, "reset_done", "a reset took keys", 1, true},
    {Reached::kResetRefused, "reset_refused", "a reset did not succeed"},
    {Reached::kRunningReset, "running_reset", "a reset preempted running requests"},
    {Reached::kResetInFlight, "reset_in_flight",
     "a reset preempted a request with a step in flight", 1, true},
    {Reached::kConnectorReset, "connector_reset", "the connector's cache was reset"},
    {Reached::kConnectorResetFailed, "connector_reset_failed",
     "the connector's cache could not be reset"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorUnknownBlock, "error_unknown_block", "refused with unknown_block"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
    {Reached::kErrorWrongTokenCount, "error_wrong_token_count", "refused with wrong_token_count"},
    {Reached::kErrorSingleGroupOnly, "error_single_group_only", "refused with single_group_only"},
    {Reached::kErrorNotLoading, "error_not_loading", "refused with not_loading"},
    {Reached::kErrorNotFinished, "error_not_finished", "refused with not_finished"},
    {Reached::kErrorListedTwice, "error_listed_twice", "refused with listed_twice"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: linear in the requests, and in the blocks where keys may have gone.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  using Step = std::vector<ScheduledRequest>;

  void count_command(const AddRequest& command, const Observation& before, const Observation& after,
                     const World& world);
  void count_command(const Schedule& command, const Observation& before, const Observation& after,
                     const World& world);
  void count_command(const Update& command, const Observation& before, const Observation& after,
                     const World& world);
  void count_command(const UpdateDraftTokenIds& command, const Observation& before,
                     const Observation& after, const World& world);
  void count_command(const FinishRequests& command, const Observation& before,
                     const Observation& after, const World& world);
  void count_command(const FinishAllRequests& command, const Observation& before,
                     const Observation& after, const World& world);
  void count_command(const SetPauseState& command, const Observation& before,
                     const Observation& after, const World& world);
  void count_command(const ResetPrefixCache& command, const Observation& before,
                     const Observation& after, const World& world);
  /// Commands that lead nowhere by themselves.
  template <class Other>
  void count_command(const Other&, const Observation&, const Observation&, const World&) {}

  void count_running(const Observation& before, const Observation& after);
  void count_first_victim(const Observation& before, const Observation& after);
  void count_admissions(const Observation& before, const Observation& after);
  void count_end_of_admission(const Observation& after, const World& world);
  void count_blocked(const Observation& before, const Observation& after);

  void count_drafts(const ScheduledRequest& scheduled, std::size_t num_sampled);
  void count_stop(const AddRequest& added, const RequestState* before, const RequestOutput& output,
                  std::size_t num_sampled);
  void count_invalid_blocks(const Update& command, const Observation& before,
                            const Observation& after);
  void count_reports(const Update& command, const Observation& before, const Observation& after);
  void count_finished(const RequestState& before, const Observation& after);

  bool is_passed_over(const RequestState& request) const;
  bool is_in_flight(const std::string& name) const;
  std::uint32_t num_tokens_in_flight(const std::string& name) const;
  /// Free blocks that are enough for so many tokens of a request that holds none.
  std::uint64_t blocks_needed(std::uint64_t num_tokens) const;

  SchedulerConfig config_;
  PauseState pause_state_ = PauseState::kUnpaused;
  std::unordered_map<std::string, AddRequest> added_;
  std::deque<Step> in_flight_;      ///< oldest first
  std::set<std::string> reported_;  ///< loading, and the load was reported finished
};

}  // namespace kvfence::engine::scheduler
