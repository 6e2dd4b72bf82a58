#pragma once

/// What a suite of runs has reached: a green suite in which no flushed transfer was under way has
/// shown nothing about reuse.

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::on_device {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kStore,
  kLoad,
  kBothDirections,
  kLoadWithinSlot,
  kReportHeldBack,
  kTransferBlocked,
  kFlushedWhileStoring,
  kPreemptedWhileStoring,
  kAbortedWithTransfers,
  kHeldFreed,
  kRunAhead,
  kPlannedBetween,
  kPrefixHit,
  kRequestFinished,
  kResetWithTransfers,
  kCPUCacheResetWithTransfers,
  kDrainedWithTransfers,
  kFailedLoad,
  kFailedStore,
  kRecomputed,
  kFailedRequest,
  kLateRank,
  kFailedOnOneRank,
  kLoadIntoWindow,
  kWindowFlushed,
  kErrorUnknownRequest,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNotInProfile,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 34> kReachGoals = {{
    {Reached::kStore, "store", "a store was reported"},
    {Reached::kLoad, "load", "a load was reported"},
    {Reached::kBothDirections, "both_directions", "a report has stores and loads"},
    {Reached::kLoadWithinSlot, "load_within_slot", "a load began in the middle of a slot"},
    {Reached::kReportHeldBack, "report_held_back",
     "nothing was reported although transfers are in flight"},
    {Reached::kTransferBlocked, "transfer_blocked",
     "a transfer ran that could not run before a forward had"},
    {Reached::kFlushedWhileStoring, "flushed_while_storing",
     "a step flushed transfers while some were in flight"},
    {Reached::kPreemptedWhileStoring, "preempted_while_storing",
     "a request was preempted while transfers were in flight"},
    {Reached::kAbortedWithTransfers, "aborted_with_transfers",
     "requests were ended from outside while transfers were in flight"},
    {Reached::kHeldFreed, "held_freed", "held blocks were freed, since the stores were over"},
    {Reached::kRunAhead, "run_ahead", "a step was executed while one before it was in flight"},
    {Reached::kPlannedBetween, "planned_between",
     "a step was planned between the execution of one before it and its update"},
    {Reached::kPrefixHit, "prefix_hit", "a request began behind tokens that it did not compute"},
    {Reached::kRequestFinished, "request_finished", "a request said all that it was asked for"},
    {Reached::kResetWithTransfers, "reset_with_transfers",
     "the GPU's cache was reset while transfers were in flight"},
    {Reached::kCPUCacheResetWithTransfers, "cpu_cache_reset_with_transfers",
     "both caches were reset while transfers were in flight"},
    {Reached::kDrainedWithTransfers, "drained_with_transfers",
     "the engine was drained while transfers were in flight"},
    {Reached::kFailedLoad, "failed_load", "a load was reported that failed"},
    {Reached::kFailedStore, "failed_store", "a store was reported that failed"},
    {Reached::kRecomputed, "recomputed", "a request spoke whose load had failed"},
    {Reached::kFailedRequest, "failed_request", "a request ended since its load had failed"},
    {Reached::kLateRank, "late_rank", "a load was over on one rank, and not on all"},
    {Reached::kFailedOnOneRank, "failed_on_one_rank",
     "a report had a transfer that failed on one rank, and not on another"},
    {Reached::kLoadIntoWindow, "load_into_window", "a group with a window was loaded"},
    {Reached::kWindowFlushed, "window_flushed",
     "a step flushed a store of a request that it ran, since a block had left its window"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Called before each run.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_schedule(const Observation& before, const Observation& after);
  void count_execute(const Observation& before, const Observation& after);
  void count_poll(const Observation& after);
  void count_update(const Observation& after);

  std::uint32_t block_size_factor_ = 1;
  std::vector<bool> has_window_;           ///< by group
  bool was_reset_ = false;                 ///< since the last step was planned
  std::vector<DeviceTransfer> in_flight_;  ///< not reported
  std::set<std::string> failed_loads_;     ///< requests
  std::uint32_t num_executed_ = 0;         ///< steps, not taken in
  std::vector<bool> flushes_;              ///< of each planned step: whether it flushes anything
  std::array<bool, 2> was_idle_ = {};      ///< store, load: nothing but the device ran since
};

}  // namespace kvfence::engine::on_device
