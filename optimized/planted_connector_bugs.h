#pragma once

/// The deliberate mistakes that the halves of an offloading connector and the aggregator can make
/// with PlantedInstrumentation, one at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// A bug said to be of hold or of fence does nothing under the other rules.
enum class PlantedConnectorBug : std::uint8_t {
  kNone,
  kPreemptedStoresNotFlushed,
  kPreemptedStoresStayPending,
  kReusedBlockNotFlushed,
  kLoadedBlocksNotFenced,
  kOneBlockFlushed,
  kWindowedBlocksNotWatched,
  kFinishedStoresNotWatched,
  kLastJobsNotFlushed,
  kNewStoreFlushed,
  kStaleWindowIdsStored,
  kPartOfSlotStored,
  kRefusedStoreMovesCursor,
  kUncomputedTokensStored,
  kNextTokenCounted,
  kPlannedTokensCounted,
  kFirstHashNamesBlock,
  kLoadFromOffloadedBoundary,
  kNullBlockEndsHit,
  kLoadingHitServed,
  kLoadedKeysStayLoading,
  kDeferredServed,
  kWindowOneShort,
  kWindowOneLong,
  kShrunkHitNotChecked,
  kTouchedBehindLookup,
  kPromptOnlyIgnored,
  kMaxOffloadTokensIgnored,
  kLoadedPrefixSkipped,
  kJobsUnderWayIgnored,
  kJobDoneAtFirstWorker,
  kFailedStoreCompleted,
  kStoreCompletedAtFinish,
  kBlocksNotHeld,
  kResetKeepsCursors,
  kResetKeepsJobs,
  kResetRestartsJobs,
  kLostIdsKept,
  kStoreSubmittedAtOnce,
  kFlushBeforeSubmit,
  kQueueWaitsForTokens,
  kQueueKeepsLast,
  kFailedLoadNotReported,
  kFailedLoadNotFinished,
  kResultTakenTwice,
  kFailureNotReported,
  kStoresRememberedOverLoad,
  kFinishedSendingForgotten,
  kFinishedSendingAtFirstStore,
  kRank0SpeaksForAll,
  kFinishedAtOneStepOnly,
  kInvalidBlocksOfRank0,
  kRepeatedJobCountedOnce,
};

struct PlantedConnectorBugInfo {
  PlantedConnectorBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedConnectorBugInfo, 52> kPlantedConnectorBugs = {{
    {PlantedConnectorBug::kPreemptedStoresNotFlushed, "preempted_stores_not_flushed",
     "Nothing is flushed for a preempted request.", "vllm#29870"},
    {PlantedConnectorBug::kPreemptedStoresStayPending, "preempted_stores_stay_pending",
     "hold: The stores of a preempted request are flushed and never completed.", "vllm#29870"},
    {PlantedConnectorBug::kReusedBlockNotFlushed, "reused_block_not_flushed",
     "fence: A job that watches a block is not flushed when the block is allocated again.",
     "vllm#48596"},
    {PlantedConnectorBug::kLoadedBlocksNotFenced, "loaded_blocks_not_fenced",
     "fence: Blocks that are allocated for a load do not count as allocated in the step.",
     "vllm#46951"},
    {PlantedConnectorBug::kOneBlockFlushed, "one_block_flushed",
     "fence: Of the watched blocks that a step allocates only the first one's jobs are flushed.",
     "ours"},
    {PlantedConnectorBug::kWindowedBlocksNotWatched, "windowed_blocks_not_watched",
     "fence: A store watches its blocks in windowed groups only when its request is finished.",
     "vllm#42959"},
    {PlantedConnectorBug::kFinishedStoresNotWatched, "finished_stores_not_watched",
     "fence: The stores of a finished request do not watch its blocks in full-attention groups.",
     "vllm#39186"},
    {PlantedConnectorBug::kLastJobsNotFlushed, "last_jobs_not_flushed",
     "fence: Jobs of requests that are all finished are not flushed.", "vllm#53498"},
    {PlantedConnectorBug::kNewStoreFlushed, "new_store_flushed",
     "fence: A store is flushed by the metadata that plans it, if it reads a block allocated in "
     "the step.",
     "ours"},
    {PlantedConnectorBug::kStaleWindowIdsStored, "stale_window_ids_stored",
     "fence: Ids of a window that were allocated again stay in the table and are stored.",
     "vllm#42959"},
    {PlantedConnectorBug::kPartOfSlotStored, "part_of_slot_stored",
     "fence: A block of which the leading GPU blocks left the window is stored.", "ours"},
    {PlantedConnectorBug::kRefusedStoreMovesCursor, "refused_store_moves_cursor",
     "The cursor moves although the store was refused.", "vllm#27697"},
    {PlantedConnectorBug::kUncomputedTokensStored, "uncomputed_tokens_stored",
     "Blocks count as computed as soon as the tokens are there.", "vllm#34526"},
    {PlantedConnectorBug::kNextTokenCounted, "next_token_counted",
     "A store counts one token more than is computed behind the step.", "vllm#54193"},
    {PlantedConnectorBug::kPlannedTokensCounted, "planned_tokens_counted",
     "The cursor moves behind tokens that are planned and have no hash yet.", "vllm#36052"},
    {PlantedConnectorBug::kFirstHashNamesBlock, "first_hash_names_block",
     "The key of an offloaded block is the hash of its first hash block.", "vllm#57159"},
    {PlantedConnectorBug::kLoadFromOffloadedBoundary, "load_from_offloaded_boundary",
     "A load whose first GPU block is inside an offloaded block says that it starts at its "
     "boundary.",
     "vllm#41445"},
    {PlantedConnectorBug::kNullBlockEndsHit, "null_block_ends_hit",
     "fence: A null block counts as the first block to load.", "vllm#52807"},
    {PlantedConnectorBug::kLoadingHitServed, "loading_hit_served",
     "A hit of a block that is being loaded is served.", "vllm#29087"},
    {PlantedConnectorBug::kLoadedKeysStayLoading, "loaded_keys_stay_loading",
     "Blocks count as being loaded for ever.", "vllm#46019"},
    {PlantedConnectorBug::kDeferredServed, "deferred_served",
     "fence: A lookup that met a block being written is not deferred.", "vllm#34526"},
    {PlantedConnectorBug::kWindowOneShort, "window_one_short",
     "fence: A lookup in a windowed group is content with a block less than the window.",
     "vllm#56701"},
    {PlantedConnectorBug::kWindowOneLong, "window_one_long",
     "fence: A lookup in a windowed group wants a block more than the window has, which the store "
     "mask leaves out.",
     "vllm#53951"},
    {PlantedConnectorBug::kShrunkHitNotChecked, "shrunk_hit_not_checked",
     "fence: Windowed groups are not asked again when a later group shortens the hit.", "ours"},
    {PlantedConnectorBug::kTouchedBehindLookup, "touched_behind_lookup",
     "hold: Blocks are touched behind the lookup, and not at all if nothing can be loaded.",
     "ours"},
    {PlantedConnectorBug::kPromptOnlyIgnored, "prompt_only_ignored",
     "fence: Blocks that decoding adds are stored although only the prompt should be.", "ours"},
    {PlantedConnectorBug::kMaxOffloadTokensIgnored, "max_offload_tokens_ignored",
     "fence: The request's own limit is not heeded.", "ours"},
    {PlantedConnectorBug::kLoadedPrefixSkipped, "loaded_prefix_skipped",
     "fence: The loaded prefix is not stored again under the policy that says so.", "ours"},
    {PlantedConnectorBug::kJobsUnderWayIgnored, "jobs_under_way_ignored",
     "fence: A request with stores under way is looked up, and may load.", "vllm#46014"},
    {PlantedConnectorBug::kJobDoneAtFirstWorker, "job_done_at_first_worker",
     "fence: A job is done when the first worker has reported it.", "vllm#56104"},
    {PlantedConnectorBug::kFailedStoreCompleted, "failed_store_completed",
     "fence: A store that failed makes its blocks ready.", "vllm#39732"},
    {PlantedConnectorBug::kStoreCompletedAtFinish, "store_completed_at_finish",
     "hold: What a request stored is completed when it finishes.", "ours"},
    {PlantedConnectorBug::kBlocksNotHeld, "blocks_not_held",
     "hold: The blocks of a finished request are not held while its stores are pending.",
     "vllm#39186"},
    {PlantedConnectorBug::kResetKeepsCursors, "reset_keeps_cursors",
     "fence: A reset leaves the cursors where they are.", "vllm#57816"},
    {PlantedConnectorBug::kResetKeepsJobs, "reset_keeps_jobs",
     "fence: A reset does not flush the jobs under way.", "vllm#44541"},
    {PlantedConnectorBug::kResetRestartsJobs, "reset_restarts_jobs",
     "fence: Jobs are numbered from 0 again after a reset.", "vllm#51637"},
    {PlantedConnectorBug::kLostIdsKept, "lost_ids_kept",
     "The block ids that a preempted request lost stay before those that it gets.", "vllm#57816"},
    {PlantedConnectorBug::kStoreSubmittedAtOnce, "store_submitted_at_once",
     "A worker submits a store in the step that plans it.", "ours"},
    {PlantedConnectorBug::kFlushBeforeSubmit, "flush_before_submit",
     "A worker waits for what is to be flushed before it submits what is queued.", "vllm#29870"},
    {PlantedConnectorBug::kQueueWaitsForTokens, "queue_waits_for_tokens",
     "A worker submits what is queued in wait_for_save, which a step without tokens skips.",
     "vllm#41945"},
    {PlantedConnectorBug::kQueueKeepsLast, "queue_keeps_last",
     "A worker queues only the last store of a step.", "ours"},
    {PlantedConnectorBug::kFailedLoadNotReported, "failed_load_not_reported",
     "A worker does not report the blocks of a failed load as invalid.", "vllm#39732"},
    {PlantedConnectorBug::kFailedLoadNotFinished, "failed_load_not_finished",
     "A worker does not report a failed load as finished.", "vllm#16662"},
    {PlantedConnectorBug::kResultTakenTwice, "result_taken_twice",
     "fence: A worker reports a transfer again that is not under way any more.", "vllm#54518"},
    {PlantedConnectorBug::kFailureNotReported, "failure_not_reported",
     "fence: A worker reports every job as a success.", "vllm#39732"},
    {PlantedConnectorBug::kStoresRememberedOverLoad, "stores_remembered_over_load",
     "hold: A request that loads is still remembered as one that stored.", "vllm#46240"},
    {PlantedConnectorBug::kFinishedSendingForgotten, "finished_sending_forgotten",
     "hold: A worker does not report a request whose last store ended before the request finished.",
     "vllm-ascend#16662"},
    {PlantedConnectorBug::kFinishedSendingAtFirstStore, "finished_sending_at_first_store",
     "hold: A worker reports a finished request when the first of its stores has ended.",
     "vllm#18246"},
    {PlantedConnectorBug::kRank0SpeaksForAll, "rank_0_speaks_for_all",
     "A request is finished when rank 0 has reported it.", "vllm#46855"},
    {PlantedConnectorBug::kFinishedAtOneStepOnly, "finished_at_one_step_only",
     "Reports of a request count only if all ranks make them in one step.", "vllm#28768"},
    {PlantedConnectorBug::kInvalidBlocksOfRank0, "invalid_blocks_of_rank_0",
     "Invalid blocks are those of rank 0.", "vllm#56104"},
    {PlantedConnectorBug::kRepeatedJobCountedOnce, "repeated_job_counted_once",
     "A job that several ranks report in one step counts as reported by one.", "vllm#28768"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedConnectorBugInfo& planted_bug_info(PlantedConnectorBug bug) {
  return kPlantedConnectorBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedConnectorBug> planted_connector_bug_from_name(
    std::string_view name) {
  for (const PlantedConnectorBugInfo& info : kPlantedConnectorBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
