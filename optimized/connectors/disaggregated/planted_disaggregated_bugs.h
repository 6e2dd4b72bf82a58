#pragma once

/// The deliberate mistakes that the halves of a disaggregated pair and the aggregator can make with
/// PlantedInstrumentation, one at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// A bug of heartbeats does nothing without Rules::kv_lease_heartbeats.
enum class PlantedDisaggregatedBug : std::uint8_t {
  kNone,
  kBlocksNotHeld,
  kAbortedPrefillHeld,
  kReadNotClosedAtExpiry,
  kReaperStopsAtUnexpired,
  kNoticeAndDeadlineBothFree,
  kDeadlineIgnored,
  kExpiresASecondLate,
  kRepeatedNoticeCounts,
  kOneReaderIsEnough,
  kLateNoticeReportedAgain,
  kNoticeBeforeSendForgotten,
  kHeartbeatShortensLease,
  kHeartbeatFrees,
  kHeartbeatsNeverStop,
  kHeartbeatsAtEachStep,
  kOneTokenPromptLoads,
  kRemoteBlocksFromTheEnd,
  kCachedBlocksRead,
  kSecondTransfer,
  kAbortSendsNoNotice,
  kAbortedReadFreedEarly,
  kNoticeNamesConsumer,
  kNoticeToOneRank,
  kReportedAtFirstFailedRead,
  kFailedRequestReportedTwice,
  kFailedReadNotReported,
  kInvalidBlocksLeftOut,
  kRank0SpeaksForAll,
};

struct PlantedDisaggregatedBugInfo {
  PlantedDisaggregatedBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedDisaggregatedBugInfo, 28> kPlantedDisaggregatedBugs = {{
    {PlantedDisaggregatedBug::kBlocksNotHeld, "blocks_not_held",
     "The blocks of a finished prefill are given back before a consumer has read them.", "ours"},
    {PlantedDisaggregatedBug::kAbortedPrefillHeld, "aborted_prefill_held",
     "The blocks of a prefill are held and offered however it ended.", "vllm#40344"},
    {PlantedDisaggregatedBug::kReadNotClosedAtExpiry, "read_not_closed_at_expiry",
     "A deadline gives blocks back that are still being read.", "aws-do-eks#84, Mooncake#850"},
    {PlantedDisaggregatedBug::kReaperStopsAtUnexpired, "reaper_stops_at_unexpired",
     "Deadlines are looked at in the order in which the requests came, up to the first that has "
     "not passed.",
     "vllm#58222"},
    {PlantedDisaggregatedBug::kNoticeAndDeadlineBothFree, "notice_and_deadline_both_free",
     "A request that its readers are done with still expires.", "vllm#24268"},
    {PlantedDisaggregatedBug::kDeadlineIgnored, "deadline_ignored",
     "A producer waits for its readers for ever.", "vllm#20139"},
    {PlantedDisaggregatedBug::kExpiresASecondLate, "expires_a_second_late",
     "A request that expires now is kept until the next second.", "ours"},
    {PlantedDisaggregatedBug::kRepeatedNoticeCounts, "repeated_notice_counts",
     "A notice that comes twice counts as that of another rank.", "ours"},
    {PlantedDisaggregatedBug::kOneReaderIsEnough, "one_reader_is_enough",
     "The first rank that has read a request ends it for all.", "ours"},
    {PlantedDisaggregatedBug::kLateNoticeReportedAgain, "late_notice_reported_again",
     "A notice of a request that is not expected any more is reported.", "vllm#46240"},
    {PlantedDisaggregatedBug::kNoticeBeforeSendForgotten, "notice_before_send_forgotten",
     "A request whose readers were faster than the producer gets a deadline all the same.", "ours"},
    {PlantedDisaggregatedBug::kHeartbeatShortensLease, "heartbeat_shortens_lease",
     "A heartbeat sets the deadline, also to an earlier one.", "ours"},
    {PlantedDisaggregatedBug::kHeartbeatFrees, "heartbeat_frees",
     "A heartbeat is taken for a notice that the blocks are not needed any more.", "ours"},
    {PlantedDisaggregatedBug::kHeartbeatsNeverStop, "heartbeats_never_stop",
     "Leases are renewed after their requests were read and finished.", "ours"},
    {PlantedDisaggregatedBug::kHeartbeatsAtEachStep, "heartbeats_at_each_step",
     "Heartbeats go out with every step.", "ours"},
    {PlantedDisaggregatedBug::kOneTokenPromptLoads, "one_token_prompt_loads",
     "A prompt of which nothing needs to be loaded is loaded asynchronously.", "vllm#57705"},
    {PlantedDisaggregatedBug::kRemoteBlocksFromTheEnd, "remote_blocks_from_the_end",
     "The remote blocks are as many as the local ones, counted from the end.", "vllm#50558"},
    {PlantedDisaggregatedBug::kCachedBlocksRead, "cached_blocks_read",
     "Blocks that are cached already, and may be shared, are read into.", "ours"},
    {PlantedDisaggregatedBug::kSecondTransfer, "second_transfer",
     "A request that was preempted, or failed to load, is loaded again.", "ours"},
    {PlantedDisaggregatedBug::kAbortSendsNoNotice, "abort_sends_no_notice",
     "The producer is not told of a request that was aborted before it was admitted.",
     "vllm#20139"},
    {PlantedDisaggregatedBug::kAbortedReadFreedEarly, "aborted_read_freed_early",
     "An abort tells the producer that its blocks are not needed while they are being read.",
     "TensorRT-LLM#13713"},
    {PlantedDisaggregatedBug::kNoticeNamesConsumer, "notice_names_consumer",
     "A notice without a read names the request by its name at the consumer.",
     "vllm v0.19.0 nixl_connector.py:2559"},
    {PlantedDisaggregatedBug::kNoticeToOneRank, "notice_to_one_rank",
     "A notice without a read goes to one of the producer's ranks.", "ours"},
    {PlantedDisaggregatedBug::kReportedAtFirstFailedRead, "reported_at_first_failed_read",
     "A request is over at its first failed read, while others still write.", "vllm#56104"},
    {PlantedDisaggregatedBug::kFailedRequestReportedTwice, "failed_request_reported_twice",
     "A request is over at its first failed read, and again at its last one.", "vllm#54518"},
    {PlantedDisaggregatedBug::kFailedReadNotReported, "failed_read_not_reported",
     "A request of which a read failed is never over.", "vllm#55181"},
    {PlantedDisaggregatedBug::kInvalidBlocksLeftOut, "invalid_blocks_left_out",
     "The blocks of a failed read are not reported as invalid.", "vllm-backport#33"},
    {PlantedDisaggregatedBug::kRank0SpeaksForAll, "rank_0_speaks_for_all",
     "A request is finished when rank 0 has reported it.", "vllm#56430"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedDisaggregatedBugInfo& planted_bug_info(PlantedDisaggregatedBug bug) {
  return kPlantedDisaggregatedBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedDisaggregatedBug> planted_disaggregated_bug_from_name(
    std::string_view name) {
  for (const PlantedDisaggregatedBugInfo& info : kPlantedDisaggregatedBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
