#pragma once

/// The deliberate mistakes that BasicKVCacheManager<PlantedInstrumentation> and
/// BasicScheduler<PlantedInstrumentation> can make, one at a time.
///
/// Each is one small switch in the code, compiled out of production builds. A planted bug that no
/// oracle catches is an open fault of the harness. None of them reads or writes out of bounds or
/// loops for ever: what a bug breaks has to show in an observation, not in a crash.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// The mistakes of the KV-cache manager above its pool.
enum class PlantedKVCacheBug : std::uint8_t {
  kNone,
  kMaskMissesEagleBlock,
  kHitBlocksCachedAgain,
  kEvictableHitsNotCharged,
  kMambaHitInSameStep,
  kNullsNotCountedAsCached,
  kMambaDropsEagleBlock,
  kEagleDropsEveryRound,
  kHitsTouchedBeforeExternal,
  kHitCoversLastToken,
  kEagleBlockKept,
  kHybridNotTruncated,
  kWindowFreedEarly,
  kWindowFreedLate,
  kSkippedKeptWhenRefused,
  kFreedInForwardOrder,
  kUnhashedFreedToTail,
  kHitBlocksNotTouched,
  kExternalBlocksCountedAsCached,
  kDelayCacheBlocksIgnored,
  kLookaheadTokensCached,
  kRetentionForgetsPromptEnd,
  kCommonPrefixCountsNulls,
  kGateIgnoresWindow,
  kReservedBlocksIgnored,
  kMambaKeepsLastState,
  kCrossAttentionCountsTokens,
  kSkippedReadsInStats,
};

struct PlantedKVCacheBugInfo {
  PlantedKVCacheBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"; where upstream
                            ///< behaves as the thread says, the bug is the fix
};

inline constexpr std::array<PlantedKVCacheBugInfo, 27> kPlantedKVCacheBugs = {{
    {PlantedKVCacheBug::kMaskMissesEagleBlock, "mask_misses_eagle_block",
     "The mask of a sliding window leaves out the block that an eagle lookup needs behind a "
     "boundary.",
     "vllm#44082"},
    {PlantedKVCacheBug::kHitBlocksCachedAgain, "hit_blocks_cached_again",
     "A request with a hit starts with no block counted as cached, so that the hit is cached "
     "again.",
     "vllm#14073"},
    {PlantedKVCacheBug::kEvictableHitsNotCharged, "evictable_hits_not_charged",
     "Hit blocks that lie in the free queue are not counted into what an allocation needs.",
     "vllm#6849"},
    {PlantedKVCacheBug::kMambaHitInSameStep, "mamba_hit_in_same_step",
     "A Mamba state that was cached in this very step may be hit.", "vllm#29387"},
    {PlantedKVCacheBug::kNullsNotCountedAsCached, "nulls_not_counted_as_cached",
     "The null blocks before a hit or a load are not counted as cached.", "vllm#42547"},
    {PlantedKVCacheBug::kMambaDropsEagleBlock, "mamba_drops_eagle_block",
     "A Mamba lookup for eagle looks one block less far.", "vllm#57128"},
    {PlantedKVCacheBug::kEagleDropsEveryRound, "eagle_drops_every_round",
     "A hybrid lookup drops eagle blocks again in every round.", "vllm#32802"},
    {PlantedKVCacheBug::kHitsTouchedBeforeExternal, "hits_touched_before_external",
     "The hits of all groups are touched before any group takes external blocks, as releases after "
     "v0.23 do.",
     "vllm#33775"},
    {PlantedKVCacheBug::kHitCoversLastToken, "hit_covers_last_token",
     "A hit may cover all tokens, so that none is left to compute.", "ours"},
    {PlantedKVCacheBug::kEagleBlockKept, "eagle_block_kept",
     "Lookups keep the block that eagle has to compute again.", "ours"},
    {PlantedKVCacheBug::kHybridNotTruncated, "hybrid_not_truncated",
     "A hybrid hit keeps the full-attention blocks beyond what the other groups have.", "ours"},
    {PlantedKVCacheBug::kWindowFreedEarly, "window_freed_early",
     "remove_skipped_blocks drops one block too many.", "ours"},
    {PlantedKVCacheBug::kWindowFreedLate, "window_freed_late",
     "remove_skipped_blocks leaves one block too many.", "ours"},
    {PlantedKVCacheBug::kSkippedKeptWhenRefused, "skipped_kept_when_refused",
     "Blocks no longer needed stay if the allocation does not succeed.", "ours"},
    {PlantedKVCacheBug::kFreedInForwardOrder, "freed_in_forward_order",
     "free queues the first block of a group first.", "vllm#48532"},
    {PlantedKVCacheBug::kUnhashedFreedToTail, "unhashed_freed_to_tail",
     "Window blocks without a hash go to the tail of the free queue.", "ours"},
    {PlantedKVCacheBug::kHitBlocksNotTouched, "hit_blocks_not_touched",
     "The blocks of a hit are not touched.", "ours"},
    {PlantedKVCacheBug::kExternalBlocksCountedAsCached, "external_blocks_counted_as_cached",
     "Blocks for external tokens count as cached and never become findable.", "ours"},
    {PlantedKVCacheBug::kDelayCacheBlocksIgnored, "delay_cache_blocks_ignored",
     "allocate_slots caches full blocks although it was told to wait.", "ours"},
    {PlantedKVCacheBug::kLookaheadTokensCached, "lookahead_tokens_cached",
     "allocate_slots also caches the blocks of lookahead tokens.", "ours"},
    {PlantedKVCacheBug::kRetentionForgetsPromptEnd, "retention_forgets_prompt_end",
     "A retention interval does not keep the blocks before the prompt's end.", "ours"},
    {PlantedKVCacheBug::kCommonPrefixCountsNulls, "common_prefix_counts_nulls",
     "The common prefix of a group with null blocks counts them.", "ours"},
    {PlantedKVCacheBug::kGateIgnoresWindow, "gate_ignores_window",
     "The full-sequence gate counts what a window will have dropped by then.", "vllm#39734"},
    {PlantedKVCacheBug::kReservedBlocksIgnored, "reserved_blocks_ignored",
     "allocate_slots hands out the blocks reserved for others.", "ours"},
    {PlantedKVCacheBug::kMambaKeepsLastState, "mamba_keeps_last_state",
     "Mamba align never drops the state of the step before last.", "ours"},
    {PlantedKVCacheBug::kCrossAttentionCountsTokens, "cross_attention_counts_tokens",
     "Cross attention gets blocks for the decoder's tokens.", "ours"},
    {PlantedKVCacheBug::kSkippedReadsInStats, "skipped_reads_in_stats",
     "Requests that skip reading the prefix cache are counted in its stats.", "ours"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedKVCacheBugInfo& planted_bug_info(PlantedKVCacheBug bug) {
  return kPlantedKVCacheBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedKVCacheBug> planted_kv_cache_bug_from_name(std::string_view name) {
  for (const PlantedKVCacheBugInfo& info : kPlantedKVCacheBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

/// The mistakes of the scheduler itself.
enum class PlantedSchedulerBug : std::uint8_t {
  kNone,
  kStaleOutputTaken,
  kPlannedOutputDroppedOnPreemption,
  kPlaceholdersKeptOnRejection,
  kRejectedDraftsCountAsComputed,
  kDraftsKeptOverPreemption,
  kComputedTokensKeptOverPreemption,
  kPreemptedToTailOfWaiting,
  kVictimTokensNotGivenBack,
  kVictimBeforeHidesNobody,
  kAdmissionAfterPreemption,
  kFinishedNamedTwice,
  kFinishedLostInEmptyStep,
  kLoadingBlocksFreedOnAbort,
  kReportedLoadHeldOnAbort,
  kHeldRequestNeverFreed,
  kHeldRequestsAreNoWork,
  kFailedLoadPromoted,
  kLoadRoundedUpToBlocks,
  kLastLoadedTokenNotRecomputed,
  kUnreportedLoadPromoted,
  kPromotionHiddenByHead,
  kConnectorAskedAgainAfterLoad,
  kResumedLoadSentAsNew,
  kAsyncLoadCountsAgainstBudget,
  kParkedLoadsCountAsRunning,
  kPrefillsNotReservedFor,
  kFullLengthNotReserved,
  kSharerCutBack,
  kOnlyInvalidBlocksEvicted,
  kTokensInFlightKeptOnInvalidBlock,
  kOutputTakenDespiteInvalidBlock,
  kSkippedOrderReversed,
  kResumedSentAsDifference,
  kAllTokenIdsMissing,
  kPlaceholdersNotCountedAsOutput,
  kUnverifiedTokensCached,
  kTokenBudgetOverrun,
  kMaxNumSeqsOffByOne,
  kLookaheadForgotten,
  kThresholdIgnoredAtAdmission,
  kAdmissionWhilePaused,
  kExtraStepPastMaxTokens,
  kStopLooksAtLastTokenOnly,
  kLengthBeatsStopToken,
  kMinTokensIgnored,
  kNeverFitsTriedForEver,
  kConnectorResetSkipped,
};

struct PlantedSchedulerBugInfo {
  PlantedSchedulerBug bug;
  std::string_view name;    ///< as in PlantedKVCacheBugInfo
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< as in PlantedKVCacheBugInfo
};

inline constexpr std::array<PlantedSchedulerBugInfo, 47> kPlantedSchedulerBugs = {{
    {PlantedSchedulerBug::kStaleOutputTaken, "stale_output_taken",
     "Output of a step that a reset made stale is taken.", "vllm#49620"},
    {PlantedSchedulerBug::kPlannedOutputDroppedOnPreemption, "planned_output_dropped_on_preemption",
     "Outputs under way are dropped when their request is preempted.", "vllm#38624"},
    {PlantedSchedulerBug::kPlaceholdersKeptOnRejection, "placeholders_kept_on_rejection",
     "Rejected drafts keep their placeholders.", "vllm#47900"},
    {PlantedSchedulerBug::kRejectedDraftsCountAsComputed, "rejected_drafts_count_as_computed",
     "Rejected drafts stay in num_computed_tokens.", "ours"},
    {PlantedSchedulerBug::kDraftsKeptOverPreemption, "drafts_kept_over_preemption",
     "A preempted request keeps its drafts.", "vllm#30916"},
    {PlantedSchedulerBug::kComputedTokensKeptOverPreemption, "computed_tokens_kept_over_preemption",
     "A preempted request keeps num_computed_tokens.", "ours"},
    {PlantedSchedulerBug::kPreemptedToTailOfWaiting, "preempted_to_tail_of_waiting",
     "A preempted request goes to the tail of waiting.", "vllm#41951"},
    {PlantedSchedulerBug::kVictimTokensNotGivenBack, "victim_tokens_not_given_back",
     "The tokens of a victim that was scheduled do not go back to the budget.", "ours"},
    {PlantedSchedulerBug::kVictimBeforeHidesNobody, "victim_before_hides_nobody",
     "A priority victim that stands before the request at hand hides no other.", "vllm#49097"},
    {PlantedSchedulerBug::kAdmissionAfterPreemption, "admission_after_preemption",
     "Waiting requests are admitted in a step that preempted some.", "vllm#57810"},
    {PlantedSchedulerBug::kFinishedNamedTwice, "finished_named_twice",
     "SchedulerOutput names a finished request twice.", "ours"},
    {PlantedSchedulerBug::kFinishedLostInEmptyStep, "finished_lost_in_empty_step",
     "A step without scheduled requests does not name the finished ones.", "vllm#6266"},
    {PlantedSchedulerBug::kLoadingBlocksFreedOnAbort, "loading_blocks_freed_on_abort",
     "A request that is aborted while it loads frees its blocks at once.", "vllm#32255"},
    {PlantedSchedulerBug::kReportedLoadHeldOnAbort, "reported_load_held_on_abort",
     "A request that is aborted after its load was reported waits for one more report.",
     "vllm#46283"},
    {PlantedSchedulerBug::kHeldRequestNeverFreed, "held_request_never_freed",
     "finished_sending does not free what it names.", "vllm#46289"},
    {PlantedSchedulerBug::kHeldRequestsAreNoWork, "held_requests_are_no_work",
     "has_finished_requests forgets requests whose blocks are held.", "vllm#43433"},
    {PlantedSchedulerBug::kFailedLoadPromoted, "failed_load_promoted",
     "A load with invalid blocks counts as done.", "LMCache#3388"},
    {PlantedSchedulerBug::kLoadRoundedUpToBlocks, "load_rounded_up_to_blocks",
     "A load counts as computed up to the end of its last block.", "vllm#34616"},
    {PlantedSchedulerBug::kLastLoadedTokenNotRecomputed, "last_loaded_token_not_recomputed",
     "A request that was loaded whole has no token left to compute.", "vllm#11186"},
    {PlantedSchedulerBug::kUnreportedLoadPromoted, "unreported_load_promoted",
     "A load is promoted in the next step, reported or not.", "vllm#34526"},
    {PlantedSchedulerBug::kPromotionHiddenByHead, "promotion_hidden_by_head",
     "A blocked head of skipped_waiting keeps the requests behind it from being promoted.",
     "vllm#45406"},
    {PlantedSchedulerBug::kConnectorAskedAgainAfterLoad, "connector_asked_again_after_load",
     "The connector is asked once more when a loaded request is scheduled.", "vllm#18232"},
    {PlantedSchedulerBug::kResumedLoadSentAsNew, "resumed_load_sent_as_new",
     "A request that was preempted and then loaded is sent as a new one.", "vllm#31583"},
    {PlantedSchedulerBug::kAsyncLoadCountsAgainstBudget, "async_load_counts_against_budget",
     "What an asynchronous load brings is taken off the token budget.", "ours"},
    {PlantedSchedulerBug::kParkedLoadsCountAsRunning, "parked_loads_count_as_running",
     "Loading requests count against max_num_seqs.", "vllm#42568"},
    {PlantedSchedulerBug::kPrefillsNotReservedFor, "prefills_not_reserved_for",
     "An asynchronous load leaves no room for the prefills under way.", "vllm#44560"},
    {PlantedSchedulerBug::kFullLengthNotReserved, "full_length_not_reserved",
     "A request is admitted that does not fit with its full length.", "vllm#21793"},
    {PlantedSchedulerBug::kSharerCutBack, "sharer_cut_back",
     "Whoever shares an invalid block is cut back to it too.", "vllm#37827"},
    {PlantedSchedulerBug::kOnlyInvalidBlocksEvicted, "only_invalid_blocks_evicted",
     "The blocks behind an invalid one stay cached.", "ours"},
    {PlantedSchedulerBug::kTokensInFlightKeptOnInvalidBlock,
     "tokens_in_flight_kept_on_invalid_block",
     "Tokens of steps in flight count as computed when blocks turn out invalid.", "vllm#53298"},
    {PlantedSchedulerBug::kOutputTakenDespiteInvalidBlock, "output_taken_despite_invalid_block",
     "A request with an invalid block takes its output.", "vllm#49250"},
    {PlantedSchedulerBug::kSkippedOrderReversed, "skipped_order_reversed",
     "The last request that was skipped is the first to be looked at.", "vllm#57841"},
    {PlantedSchedulerBug::kResumedSentAsDifference, "resumed_sent_as_difference",
     "A resumed request is sent as one whose blocks are appended.", "vllm#46595"},
    {PlantedSchedulerBug::kAllTokenIdsMissing, "all_token_ids_missing",
     "sends_all_token_ids is never set.", "vllm#26385"},
    {PlantedSchedulerBug::kPlaceholdersNotCountedAsOutput, "placeholders_not_counted_as_output",
     "num_output_tokens leaves placeholders out.", "ours"},
    {PlantedSchedulerBug::kUnverifiedTokensCached, "unverified_tokens_cached",
     "Asynchronous scheduling caches blocks whose tokens are not known yet.", "vllm#36052"},
    {PlantedSchedulerBug::kTokenBudgetOverrun, "token_budget_overrun",
     "The last running request may take more than the rest of the budget.", "ours"},
    {PlantedSchedulerBug::kMaxNumSeqsOffByOne, "max_num_seqs_off_by_one",
     "One request more than max_num_seqs runs.", "ours"},
    {PlantedSchedulerBug::kLookaheadForgotten, "lookahead_forgotten",
     "Running requests get no lookahead slots.", "vllm#42971"},
    {PlantedSchedulerBug::kThresholdIgnoredAtAdmission, "threshold_ignored_at_admission",
     "The long-prefill threshold does not bound a request's first tokens.", "ours"},
    {PlantedSchedulerBug::kAdmissionWhilePaused, "admission_while_paused",
     "Requests are admitted while new ones are paused.", "ours"},
    {PlantedSchedulerBug::kExtraStepPastMaxTokens, "extra_step_past_max_tokens",
     "A request is scheduled although its planned outputs are all it may give.", "vllm#27922"},
    {PlantedSchedulerBug::kStopLooksAtLastTokenOnly, "stop_looks_at_last_token_only",
     "Of several tokens only the last may stop a request.", "llama.cpp#28049"},
    {PlantedSchedulerBug::kLengthBeatsStopToken, "length_beats_stop_token",
     "The length is looked at before the stop tokens.", "sglang#33758"},
    {PlantedSchedulerBug::kMinTokensIgnored, "min_tokens_ignored",
     "A stop token ends a request before its min_tokens.", "vllm#26317"},
    {PlantedSchedulerBug::kNeverFitsTriedForEver, "never_fits_tried_for_ever",
     "A request that never fits stays.", "vllm#35541"},
    {PlantedSchedulerBug::kConnectorResetSkipped, "connector_reset_skipped",
     "The connector is not reset when the pool's reset failed.", "vllm#27170"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedSchedulerBugInfo& planted_bug_info(PlantedSchedulerBug bug) {
  return kPlantedSchedulerBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedSchedulerBug> planted_scheduler_bug_from_name(
    std::string_view name) {
  for (const PlantedSchedulerBugInfo& info : kPlantedSchedulerBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
