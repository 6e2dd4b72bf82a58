#pragma once

/// The deliberate mistakes that BasicWorker<PlantedWorkerInstrumentation> can make, one at a time.
///
/// Each is one small switch in the worker, compiled out of production builds. A planted bug that
/// nothing catches is an open fault of the harness.

#include <array>
#include <cstdint>
#include <string_view>

namespace kvfence::cuda {

enum class PlantedWorkerBug : std::uint8_t {
  kNone,
  kStoreIgnoresCompute,
  kLoadIgnoresReaders,
  kStoreReadsInAnyOrder,
  kDescriptorsReusedInFlight,
  kHostMemoryFreedInFlight,
  kOnlyFirstEventAwaited,
  kEventRecordedAgainBeforeWait,
  kRecordErrorIgnored,
  kLegacyStream,
  kHostAddressForDevice,
  kConflictAccepted,
  kBatchNotCut,
  kErrorsIgnored,
  kEndEventBeforeCopy,
  kFailureReportedInFlight,
  kOverlapAccepted,
  kFirstBlockNotSkipped,
  kPaddingCopied,
  kStoreNotDeferred,
  kWaitReturnsAtOnce,
  kPinFailureIgnored,
  kOnlyLastCodeCounts,
  kQueryErrorTakenForEnd,
  kWaitErrorIgnored,
  kFirstRankCounts,
  kFailureOfARankLost,
};

/// Of what the ranks report together, not of a worker.
constexpr bool is_of_ranks(PlantedWorkerBug bug) {
  return bug == PlantedWorkerBug::kFirstRankCounts || bug == PlantedWorkerBug::kFailureOfARankLost;
}

struct PlantedWorkerBugInfo {
  PlantedWorkerBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedWorkerBugInfo, 26> kPlantedWorkerBugs = {{
    {PlantedWorkerBug::kStoreIgnoresCompute, "store_ignores_compute",
     "A store does not wait for the compute stream.", "vllm#31341"},
    {PlantedWorkerBug::kLoadIgnoresReaders, "load_ignores_readers",
     "A load does not wait for those who still read its blocks.", "vllm#47282"},
    {PlantedWorkerBug::kStoreReadsInAnyOrder, "store_reads_in_any_order",
     "A store's sources may be read before what its stream waits for.", "vllm#39306"},
    {PlantedWorkerBug::kDescriptorsReusedInFlight, "descriptors_reused_in_flight",
     "The descriptors of a kernel are the next transfer's before it has read them.",
     "TRT-LLM#15546"},
    {PlantedWorkerBug::kHostMemoryFreedInFlight, "host_memory_freed_in_flight",
     "shutdown frees the host blocks while copies touch them.", "LMCache#4830"},
    {PlantedWorkerBug::kOnlyFirstEventAwaited, "only_first_event_awaited",
     "Of the events that a load has to wait for, only the first is waited for.", "rtx6kpro#47"},
    {PlantedWorkerBug::kEventRecordedAgainBeforeWait, "event_recorded_again_before_wait",
     "The event of the compute stream is recorded in another one before it is waited for.",
     "cutorch#222"},
    {PlantedWorkerBug::kRecordErrorIgnored, "record_error_ignored",
     "An end event that could not be recorded is taken for one that is over.", "cuCascade#189"},
    {PlantedWorkerBug::kLegacyStream, "legacy_stream", "Copies go into the NULL stream.",
     "vllm#46345"},
    {PlantedWorkerBug::kHostAddressForDevice, "host_address_for_device",
     "Copies are given the host's address of pinned memory.", "sglang#40232"},
    {PlantedWorkerBug::kConflictAccepted, "conflict_accepted",
     "A block is stored while it is being loaded.", "vllm#34526"},
    {PlantedWorkerBug::kBatchNotCut, "batch_not_cut",
     "All copies of a transfer go into one batch, however many.", "vllm#49276"},
    {PlantedWorkerBug::kErrorsIgnored, "errors_ignored",
     "Whatever the runtime returns, the transfer is a success.", "vllm gpu_worker.py"},
    {PlantedWorkerBug::kEndEventBeforeCopy, "end_event_before_copy",
     "The end event is recorded before the copies are enqueued.", "ours"},
    {PlantedWorkerBug::kFailureReportedInFlight, "failure_reported_in_flight",
     "A transfer that failed is reported while part of its copies still run.", "ours"},
    {PlantedWorkerBug::kOverlapAccepted, "overlap_accepted",
     "Two copies of a transfer may have one destination.", "ours"},
    {PlantedWorkerBug::kFirstBlockNotSkipped, "first_block_not_skipped",
     "The place of a group's first block in its host block is taken for 0.", "ours"},
    {PlantedWorkerBug::kPaddingCopied, "padding_copied", "Whole pages are copied.", "ours"},
    {PlantedWorkerBug::kStoreNotDeferred, "store_not_deferred",
     "A store is enqueued in its own step.", "ours"},
    {PlantedWorkerBug::kWaitReturnsAtOnce, "wait_returns_at_once",
     "wait takes what is in flight for what is over.", "ours"},
    {PlantedWorkerBug::kPinFailureIgnored, "pin_failure_ignored",
     "Where memory cannot be pinned, copies go to pageable memory.", "vllm host_register.py"},
    {PlantedWorkerBug::kOnlyLastCodeCounts, "only_last_code_counts",
     "Of the calls that copy a transfer, the last alone decides whether it failed.",
     "vllm cache_kernels.cu"},
    {PlantedWorkerBug::kQueryErrorTakenForEnd, "query_error_taken_for_end",
     "A query that returns an error says that the transfer is over, and well.", "ours"},
    {PlantedWorkerBug::kWaitErrorIgnored, "wait_error_ignored",
     "What waiting for a transfer returns is not looked at.", "ours"},
    {PlantedWorkerBug::kFirstRankCounts, "first_rank_counts",
     "A transfer is over when one rank has reported it.", "ours"},
    {PlantedWorkerBug::kFailureOfARankLost, "failure_of_a_rank_lost",
     "Whether a transfer succeeded is what the last rank says.", "ours"},
}};

/// Production: every switch is off at compile time.
struct NoWorkerInstrumentation {
  static constexpr bool has(PlantedWorkerBug) { return false; }
};

struct PlantedWorkerInstrumentation {
  PlantedWorkerBug bug = PlantedWorkerBug::kNone;
  bool has(PlantedWorkerBug asked) const { return asked == bug; }
};

}  // namespace kvfence::cuda
