#pragma once

/// The deliberate mistakes that BasicBlockPool<PlantedInstrumentation> and
/// BasicKVCacheManager<PlantedInstrumentation> can make, one at a time.
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

enum class PlantedBug : std::uint8_t {
  kNone,
  kHashKeptOnReuse,
  kTouchLeavesBlockQueued,
  kTouchCountsRepeatsOnce,
  kFreeQueuesReferencedBlock,
  kFreeQueuesRepeatTwice,
  kFreeReversesList,
  kFreeQueuesNullBlock,
  kFreeAcceptsRefCntZero,
  kFreePutsUnhashedAtHead,
  kFreeRefusalKeepsDecrements,
  kPrependReversesList,
  kGetTakesBeforeRefusing,
  kGetKeepsLastBlock,
  kResetIgnoresReferences,
  kResetKeepsBlockHashes,
  kPopRemovesFirstCopy,
  kDuplicateReplacesOlderCopy,
  kLookupReturnsNewestCopy,
  kLookupIgnoresMissingGroup,
  kGroupLeftOutOfKey,
  kMergedHashIsLastHash,
  kEraseBreaksProbeChain,
  kCacheRefusalKeepsKeys,
  kMaskIgnored,
  kEvictFreesBlock,
  kEvictMovesBlockToHead,
  kRemovedEventWaitsForLastCopy,
  kRemovedEventDroppedOnReuse,
  kRemovedEventsReversed,
  kStoredEventCountsNullBlocks,
  kStoredEventDroppedWhenEmpty,
  kStoredParentFromBlockTable,
  kKeyCountCountsBlocks,
  kCachedCountDriftsOnTouch,
  kUsageCountsNullBlock,
};

struct PlantedBugInfo {
  PlantedBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedBugInfo, 35> kPlantedBugs = {{
    {PlantedBug::kHashKeptOnReuse, "hash_kept_on_reuse",
     "get_new_blocks hands out a cached block without evicting its hash.", "vllm#4764"},
    {PlantedBug::kTouchLeavesBlockQueued, "touch_leaves_block_queued",
     "touch raises ref_cnt of a free block and leaves it in the free queue.", "ours"},
    {PlantedBug::kTouchCountsRepeatsOnce, "touch_counts_repeats_once",
     "touch gives a block that is listed twice in a row one reference.", "ours"},
    {PlantedBug::kFreeQueuesReferencedBlock, "free_queues_referenced_block",
     "free_blocks queues a block whose ref_cnt has not reached 0.", "vllm-ascend#15990"},
    {PlantedBug::kFreeQueuesRepeatTwice, "free_queues_repeat_twice",
     "free_blocks queues a block twice that is listed twice, instead of refusing.", "ucm#1053"},
    {PlantedBug::kFreeReversesList, "free_reverses_list",
     "free_blocks queues the freed blocks in reverse order.", "vllm#48532"},
    {PlantedBug::kFreeQueuesNullBlock, "free_queues_null_block",
     "free_blocks queues the null block when it is listed.", "ucm#1053"},
    {PlantedBug::kFreeAcceptsRefCntZero, "free_accepts_ref_cnt_zero",
     "free_blocks lets a ref_cnt fall below 0, instead of refusing.", "ucm#1053"},
    {PlantedBug::kFreePutsUnhashedAtHead, "free_puts_unhashed_at_head",
     "free_blocks puts blocks without a hash at the head, as releases after v0.23 do.",
     "vllm#42656"},
    {PlantedBug::kFreeRefusalKeepsDecrements, "free_refusal_keeps_decrements",
     "A refused free_blocks leaves the ref_cnt that it had lowered so far.", "ours"},
    {PlantedBug::kPrependReversesList, "prepend_reverses_list",
     "free_blocks to the head pushes block after block, so that the last one comes first.", "ours"},
    {PlantedBug::kGetTakesBeforeRefusing, "get_takes_before_refusing",
     "get_new_blocks takes the blocks that there are and then refuses.", "ours"},
    {PlantedBug::kGetKeepsLastBlock, "get_keeps_last_block",
     "get_new_blocks refuses to hand out the last free block.", "ours"},
    {PlantedBug::kResetIgnoresReferences, "reset_ignores_references",
     "reset_prefix_cache succeeds although blocks are referenced.", "ours"},
    {PlantedBug::kResetKeepsBlockHashes, "reset_keeps_block_hashes",
     "reset_prefix_cache empties the map and leaves the hashes on the blocks.", "ours"},
    {PlantedBug::kPopRemovesFirstCopy, "pop_removes_first_copy",
     "Evicting one of several blocks of a key removes the first of them.", "ours"},
    {PlantedBug::kDuplicateReplacesOlderCopy, "duplicate_replaces_older_copy",
     "Caching a second block under a key drops the first from the map.", "ours"},
    {PlantedBug::kLookupReturnsNewestCopy, "lookup_returns_newest_copy",
     "get_cached_block returns the last inserted block of a key.", "ours"},
    {PlantedBug::kLookupIgnoresMissingGroup, "lookup_ignores_missing_group",
     "get_cached_block hits when the first group hits, with null blocks for the groups that miss.",
     "ours"},
    {PlantedBug::kGroupLeftOutOfKey, "group_left_out_of_key",
     "Keys are compared without their group id: one group's block serves another.", "ours"},
    {PlantedBug::kMergedHashIsLastHash, "merged_hash_is_last_hash",
     "A block of several hash blocks is cached under the last of their hashes.", "ours"},
    {PlantedBug::kEraseBreaksProbeChain, "erase_breaks_probe_chain",
     "Erasing a key empties its slot without closing the gap, so that displaced keys get lost.",
     "ours"},
    {PlantedBug::kCacheRefusalKeepsKeys, "cache_refusal_keeps_keys",
     "A refused cache_full_blocks leaves the blocks cached that it had reached.", "ours"},
    {PlantedBug::kMaskIgnored, "mask_ignored",
     "cache_full_blocks caches the blocks that the mask passes over.", "ours"},
    {PlantedBug::kEvictFreesBlock, "evict_frees_block",
     "evict_blocks also frees a referenced block that it evicts.", "ours"},
    {PlantedBug::kEvictMovesBlockToHead, "evict_moves_block_to_head",
     "evict_blocks moves a free block that it evicts to the head of the free queue.", "ours"},
    {PlantedBug::kRemovedEventWaitsForLastCopy, "removed_event_waits_for_last_copy",
     "BlockRemoved is missing while another block carries the key.", "ours"},
    {PlantedBug::kRemovedEventDroppedOnReuse, "removed_event_dropped_on_reuse",
     "get_new_blocks evicts without BlockRemoved.", "ours"},
    {PlantedBug::kRemovedEventsReversed, "removed_events_reversed",
     "get_new_blocks evicts the popped blocks last first.", "ours"},
    {PlantedBug::kStoredEventCountsNullBlocks, "stored_event_counts_null_blocks",
     "BlockStored lists the hashes of null blocks.", "ours"},
    {PlantedBug::kStoredEventDroppedWhenEmpty, "stored_event_dropped_when_empty",
     "BlockStored is missing when every block of the range was passed over.", "ours"},
    {PlantedBug::kStoredParentFromBlockTable, "stored_parent_from_block_table",
     "The parent of BlockStored is the hash of the block before the range, not the request's.",
     "ours"},
    {PlantedBug::kKeyCountCountsBlocks, "key_count_counts_blocks",
     "num_cached_keys counts the blocks that carry keys.", "ours"},
    {PlantedBug::kCachedCountDriftsOnTouch, "cached_count_drifts_on_touch",
     "touch of a cached free block leaves it in the count of cached blocks.", "ours"},
    {PlantedBug::kUsageCountsNullBlock, "usage_counts_null_block",
     "get_usage divides by all blocks, the null block included.", "ours"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedBugInfo& planted_bug_info(PlantedBug bug) {
  return kPlantedBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedBug> planted_bug_from_name(std::string_view name) {
  for (const PlantedBugInfo& info : kPlantedBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

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
  std::string_view name;    ///< as in PlantedBugInfo
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< as in PlantedBugInfo; where upstream behaves as the thread says,
                            ///< the bug is the fix
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

}  // namespace kvfence::optimized
