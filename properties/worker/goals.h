#pragma once

/// What a suite of runs has reached: a green suite in which no store waited for a forward has shown
/// nothing about order.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/worker/worker_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::worker {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kStoreReported,
  kLoadReported,
  kFailureReported,
  kBothDirectionsInFlight,
  kFirstBlockSkipped,
  kTransferOfNothing,
  kTransferBlocked,
  kReportHeldBack,
  kFlushedByWait,
  kForwardsRunByWait,
  kLoadedBlockSeen,
  kShutDownInFlight,
  kCopyFailed,
  kWaitFailed,
  kRecordFailed,
  kEndDenied,
  kPartRan,
  kPageUndefined,
  kCopyFailedInPart,
  kDeviceLost,
  kFailedByTheLoss,
  kFreeDeviceReported,
  kRanksReported,
  kFailedOnARank,
  kErrorNotInConfig,
  kErrorShutDown,
  kErrorJobInFlight,
  kErrorUnknownBlock,
  kErrorCountsDiffer,
  kErrorListedTwice,
  kErrorBlockInFlight,
  kErrorNotOrdered,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 32> kReachGoals = {{
    {Reached::kStoreReported, "store_reported", "a store was reported as a success"},
    {Reached::kLoadReported, "load_reported", "a load was reported as a success"},
    {Reached::kFailureReported, "failure_reported", "a transfer was reported as a failure"},
    {Reached::kBothDirectionsInFlight, "both_directions_in_flight",
     "an answer reports stores and loads"},
    {Reached::kFirstBlockSkipped, "first_block_skipped",
     "a transfer began in the midst of a CPU block"},
    {Reached::kTransferOfNothing, "transfer_of_nothing", "a transfer without blocks was taken"},
    {Reached::kTransferBlocked, "transfer_blocked",
     "a transfer ran that could not run before a forward had"},
    {Reached::kReportHeldBack, "report_held_back",
     "nothing was reported although transfers are in flight"},
    {Reached::kFlushedByWait, "flushed_by_wait", "a wait enqueued deferred stores"},
    {Reached::kForwardsRunByWait, "forwards_run_by_wait", "a wait made forwards run"},
    {Reached::kLoadedBlockSeen, "loaded_block_seen",
     "a forward read a block that holds what another was written with"},
    {Reached::kShutDownInFlight, "shut_down_in_flight", "a shutdown ended transfers"},
    {Reached::kCopyFailed, "copy_failed", "a transfer could not be copied"},
    {Reached::kWaitFailed, "wait_failed", "a transfer could not be made to wait"},
    {Reached::kRecordFailed, "record_failed", "the end of a transfer could not be recorded"},
    {Reached::kEndDenied, "end_denied", "the end of a transfer was denied for a while"},
    {Reached::kPartRan, "part_ran", "a part of a transfer ran"},
    {Reached::kPageUndefined, "page_undefined",
     "what a page holds was undefined, for a write may have been under way", 1, true},
    {Reached::kCopyFailedInPart, "copy_failed_in_part", "a transfer failed behind a part of it"},
    {Reached::kDeviceLost, "device_lost", "a transfer ran into an error that ends all work"},
    {Reached::kFailedByTheLoss, "failed_by_the_loss",
     "a device is lost, and more transfers failed than have met a fault"},
    {Reached::kFreeDeviceReported, "free_device_reported",
     "transfers were reported that no command has made run"},
    {Reached::kRanksReported, "ranks_reported", "several ranks reported a transfer"},
    {Reached::kFailedOnARank, "failed_on_a_rank", "a transfer failed on one of several ranks"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorShutDown, "error_shut_down", "refused with shut_down"},
    {Reached::kErrorJobInFlight, "error_job_in_flight", "refused with job_in_flight"},
    {Reached::kErrorUnknownBlock, "error_unknown_block", "refused with unknown_block"},
    {Reached::kErrorCountsDiffer, "error_counts_differ", "refused with counts_differ"},
    {Reached::kErrorListedTwice, "error_listed_twice", "refused with listed_twice"},
    {Reached::kErrorBlockInFlight, "error_block_in_flight", "refused with block_in_flight"},
    {Reached::kErrorNotOrdered, "error_not_ordered", "refused with not_ordered"},
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
  void count_reports(const Observation& after);

  std::uint32_t block_size_factor_ = 1;
  std::uint32_t num_ranks_ = 1;
  bool is_commanded_ = true;
  std::uint32_t num_faults_ = 0;  ///< met
  std::uint32_t num_failed_ = 0;
  bool is_lost_ = false;  ///< a transfer has met the error that ends a device
  /// The streams whose transfers could not run when they were last asked to; nothing but the device
  /// has done anything since.
  std::vector<std::string> idle_streams_;
};

}  // namespace kvfence::worker
