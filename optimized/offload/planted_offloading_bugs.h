#pragma once

/// The deliberate mistakes that BasicCachePolicy<PlantedInstrumentation> and
/// BasicOffloadingManager<PlantedInstrumentation> can make, one at a time. What planted_bugs.h says
/// of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// Of the policy; a manager can be given one as well.
enum class PlantedCachePolicyBug : std::uint8_t {
  kNone,
  kArcFallsBackToT1,
  kProtectedIgnored,
  kTouchLosesNotReady,
  kNotReadyPromoted,
  kReleasedToNewest,
  kBlockBeingReadEvicted,
  kBlockBeingWrittenEvicted,
  kEvictNotAtomic,
  kTargetNotCapped,
  kTargetBelowZero,
  kQuotientOfIntegers,
  kTargetNotFloored,
  kChosenNotCounted,
  kGhostKeptOnInsert,
  kGhostReturnsToT2,
  kGhostHitNotMoved,
  kGhostTrimmedAtNewestEnd,
  kRemovedRemembered,
  kTouchInForwardOrder,
  kClearKeepsTarget,
};

struct PlantedCachePolicyBugInfo {
  PlantedCachePolicyBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"; where upstream
                            ///< behaves as the thread says, the bug is the fix
};

inline constexpr std::array<PlantedCachePolicyBugInfo, 20> kPlantedCachePolicyBugs = {{
    {PlantedCachePolicyBug::kArcFallsBackToT1, "arc_falls_back_to_t1",
     "ARC takes idle blocks of T1 when T2 has none, although the rule says that it refuses.",
     "vllm#55461"},
    {PlantedCachePolicyBug::kProtectedIgnored, "protected_ignored", "evict takes protected blocks.",
     "vllm#35846"},
    {PlantedCachePolicyBug::kTouchLosesNotReady, "touch_loses_not_ready",
     "touch takes a block of T1 that is not ready out of its list and puts it nowhere.",
     "vllm#34576"},
    {PlantedCachePolicyBug::kNotReadyPromoted, "not_ready_promoted",
     "touch moves a block to T2 that is not ready.", "vllm#34576"},
    {PlantedCachePolicyBug::kReleasedToNewest, "released_to_newest",
     "A block becomes the newest when its last reader is done, as releases after v0.23 do.",
     "vllm#46216"},
    {PlantedCachePolicyBug::kBlockBeingReadEvicted, "block_being_read_evicted",
     "evict takes a block that is being read.", "sglang#27444"},
    {PlantedCachePolicyBug::kBlockBeingWrittenEvicted, "block_being_written_evicted",
     "evict takes a block that is being written.", "ours"},
    {PlantedCachePolicyBug::kEvictNotAtomic, "evict_not_atomic",
     "A refused evict lets the blocks go that it could have had.", "ours"},
    {PlantedCachePolicyBug::kTargetNotCapped, "target_not_capped",
     "A hit in B1 raises the target beyond the capacity.", "vllm#27039"},
    {PlantedCachePolicyBug::kTargetBelowZero, "target_below_zero",
     "A hit in B2 lowers the target below 0.", "ours"},
    {PlantedCachePolicyBug::kQuotientOfIntegers, "quotient_of_integers",
     "The step of the target is a quotient of integers.", "ours"},
    {PlantedCachePolicyBug::kTargetNotFloored, "target_not_floored",
     "The size of T1 is compared with the target itself, not with its floor.", "ours"},
    {PlantedCachePolicyBug::kChosenNotCounted, "chosen_not_counted",
     "The blocks chosen from T1 still count as there while more are chosen.", "vllm#50992"},
    {PlantedCachePolicyBug::kGhostKeptOnInsert, "ghost_kept_on_insert",
     "insert leaves the key in B1 or B2.", "ours"},
    {PlantedCachePolicyBug::kGhostReturnsToT2, "ghost_returns_to_t2",
     "insert puts a key of B1 or B2 into T2, as the published ARC does.", "ours"},
    {PlantedCachePolicyBug::kGhostHitNotMoved, "ghost_hit_not_moved",
     "touch of a key in B1 or B2 leaves it at its place.", "ours"},
    {PlantedCachePolicyBug::kGhostTrimmedAtNewestEnd, "ghost_trimmed_at_newest_end",
     "B1 and B2 lose the key that came last when they are full.", "ours"},
    {PlantedCachePolicyBug::kRemovedRemembered, "removed_remembered",
     "remove leaves the key in B1.", "ours"},
    {PlantedCachePolicyBug::kTouchInForwardOrder, "touch_in_forward_order",
     "touch starts with the first key, so that the last ends as the newest.", "ours"},
    {PlantedCachePolicyBug::kClearKeepsTarget, "clear_keeps_target",
     "clear leaves the target as it is.", "ours"},
}};

/// Of the manager around it.
enum class PlantedOffloadingBug : std::uint8_t {
  kNone,
  kNotReadyCountedAsHit,
  kPendingIsMiss,
  kLookupCountsUntilMiss,
  kCountedKeyStaysOld,
  kTrackerDropsNewest,
  kTrackerHoldsOneMore,
  kThresholdOffByOne,
  kOnlyNewKeysProtected,
  kRepeatedKeyTakesTwoSlots,
  kRefusedStoreEvicts,
  kEvictedSlotFreedTwice,
  kFreedSlotsOldestFirst,
  kFreedSlotsBeforeFresh,
  kFailedStoreKeepsBlock,
  kFailedStoreLeaksSlot,
  kFailedStoreDropsReady,
  kRepeatedLoadCountedOnce,
  kLoadNotReleased,
  kRemovedEventMissing,
  kStoredEventBeforeWritten,
  kStoredEventListsAllKeys,
  kResetKeepsSlots,
  kResetDropsCounts,
};

struct PlantedOffloadingBugInfo {
  PlantedOffloadingBug bug;
  std::string_view name;    ///< as in PlantedCachePolicyBugInfo
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< as in PlantedCachePolicyBugInfo
};

inline constexpr std::array<PlantedOffloadingBugInfo, 23> kPlantedOffloadingBugs = {{
    {PlantedOffloadingBug::kNotReadyCountedAsHit, "not_ready_counted_as_hit",
     "A lookup hits a block that is being written.", "vllm#34526"},
    {PlantedOffloadingBug::kPendingIsMiss, "pending_is_miss",
     "lookup_key misses a block that is being written.", "vllm#53062"},
    {PlantedOffloadingBug::kLookupCountsUntilMiss, "lookup_counts_until_miss",
     "The filter counts the keys of a lookup up to the first miss only.", "vllm#52022"},
    {PlantedOffloadingBug::kCountedKeyStaysOld, "counted_key_stays_old",
     "A counted key does not become the newest of the tracker.", "ours"},
    {PlantedOffloadingBug::kTrackerDropsNewest, "tracker_drops_newest",
     "A full tracker drops the key that it saw last.", "ours"},
    {PlantedOffloadingBug::kTrackerHoldsOneMore, "tracker_holds_one_more",
     "The tracker holds a key more than it may.", "ours"},
    {PlantedOffloadingBug::kThresholdOffByOne, "threshold_off_by_one",
     "The filter asks for one lookup more than the threshold.", "ours"},
    {PlantedOffloadingBug::kOnlyNewKeysProtected, "only_new_keys_protected",
     "prepare_store evicts blocks of its own list that are held already.", "vllm#35846"},
    {PlantedOffloadingBug::kRepeatedKeyTakesTwoSlots, "repeated_key_takes_two_slots",
     "A key that stands twice in prepare_store takes two slots, of which one is lost.", "ours"},
    {PlantedOffloadingBug::kRefusedStoreEvicts, "refused_store_evicts",
     "A store for which there is not enough room evicts what can go and is refused.", "ours"},
    {PlantedOffloadingBug::kEvictedSlotFreedTwice, "evicted_slot_freed_twice",
     "The slot of an evicted block is freed twice.", "sglang#13501"},
    {PlantedOffloadingBug::kFreedSlotsOldestFirst, "freed_slots_oldest_first",
     "The slot that was freed first is taken first.", "ours"},
    {PlantedOffloadingBug::kFreedSlotsBeforeFresh, "freed_slots_before_fresh",
     "Freed slots are taken before those that were never used.", "ours"},
    {PlantedOffloadingBug::kFailedStoreKeepsBlock, "failed_store_keeps_block",
     "A failed store leaves its blocks, which are never ready.", "vllm#52571"},
    {PlantedOffloadingBug::kFailedStoreLeaksSlot, "failed_store_leaks_slot",
     "A failed store forgets its blocks without freeing their slots.", "sglang#16067"},
    {PlantedOffloadingBug::kFailedStoreDropsReady, "failed_store_drops_ready",
     "A failed store also removes idle blocks that it lists.", "ours"},
    {PlantedOffloadingBug::kRepeatedLoadCountedOnce, "repeated_load_counted_once",
     "prepare_load acquires a block once that stands twice in a row.", "ours"},
    {PlantedOffloadingBug::kLoadNotReleased, "load_not_released",
     "complete_load leaves the last block acquired.", "LMCache#3884"},
    {PlantedOffloadingBug::kRemovedEventMissing, "removed_event_missing",
     "prepare_store evicts without an event.", "ours"},
    {PlantedOffloadingBug::kStoredEventBeforeWritten, "stored_event_before_written",
     "The stored event comes from prepare_store.", "ours"},
    {PlantedOffloadingBug::kStoredEventListsAllKeys, "stored_event_lists_all_keys",
     "The stored event lists keys that were ready before.", "ours"},
    {PlantedOffloadingBug::kResetKeepsSlots, "reset_keeps_slots",
     "reset_cache does not take back the slots that were used.", "vllm#46284"},
    {PlantedOffloadingBug::kResetDropsCounts, "reset_drops_counts",
     "reset_cache forgets what the filter counted.", "ours"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedCachePolicyBugInfo& planted_bug_info(PlantedCachePolicyBug bug) {
  return kPlantedCachePolicyBugs[static_cast<std::size_t>(bug) - 1];
}
constexpr const PlantedOffloadingBugInfo& planted_bug_info(PlantedOffloadingBug bug) {
  return kPlantedOffloadingBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedCachePolicyBug> planted_cache_policy_bug_from_name(
    std::string_view name) {
  for (const PlantedCachePolicyBugInfo& info : kPlantedCachePolicyBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}
constexpr std::optional<PlantedOffloadingBug> planted_offloading_bug_from_name(
    std::string_view name) {
  for (const PlantedOffloadingBugInfo& info : kPlantedOffloadingBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
