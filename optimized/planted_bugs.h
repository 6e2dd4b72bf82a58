#pragma once

/// The deliberate mistakes that BasicBlockPool<PlantedInstrumentation> can make, one at a time.
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

}  // namespace kvfence::optimized
