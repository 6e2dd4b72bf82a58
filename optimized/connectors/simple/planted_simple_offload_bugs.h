#pragma once

/// The deliberate mistakes that the halves of a simple CPU offload connector can make with
/// PlantedInstrumentation, one at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

/// A bug said to be eager or lazy does nothing in the other mode, and one that breaks what a rule
/// asks for does nothing without that rule; so does stored_freed_to_head without
/// Rules::free_blocks_prepend.
enum class PlantedSimpleOffloadBug : std::uint8_t {
  kNone,
  kFindableAtPlanning,
  kNeverFindable,
  kStoreDoneAtFirstWorker,
  kStepTokensStored,
  kPlaceholdersCounted,
  kResumeKeepsIds,
  kStaleWindowIdStored,
  kUnhashedBlockEndsGroup,
  kStoresNotAligned,
  kStoreUnderWayRepeated,
  kStoredAgain,
  kFullMovesPlace,
  kFinishedStaysKnown,
  kPinLeaksAtFinish,
  kStalePinKept,
  kPinKeptByLoad,
  kLoadSourceNotTouched,
  kLoadTargetNotTouched,
  kStoreSourceNotTouched,
  kLoadFreedAtFinish,
  kLoadIntoTableStart,
  kNullBlockLoaded,
  kLocalHitIgnored,
  kLastTokenNotLeft,
  kUntoldLoadToldTwice,
  kCursorNotForgotten,
  kWalkBeyondSpace,
  kWalkBeyondTarget,
  kStoredFreedToHead,
  kResetClaimsSuccess,
  kFlushNotTold,
  kFlushIgnored,
  kMarkOfOtherDirection,
  kLoadRequestsOfAllEvents,
};

struct PlantedSimpleOffloadBugInfo {
  PlantedSimpleOffloadBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedSimpleOffloadBugInfo, 34> kPlantedSimpleOffloadBugs = {{
    {PlantedSimpleOffloadBug::kFindableAtPlanning, "findable_at_planning",
     "CPU blocks are findable from the planning of their store on.", "vllm#53498"},
    {PlantedSimpleOffloadBug::kNeverFindable, "never_findable",
     "CPU blocks of a completed store get no key.", "vllm#53498"},
    {PlantedSimpleOffloadBug::kStoreDoneAtFirstWorker, "store_done_at_first_worker",
     "A store is completed when the first worker has reported it.", "vllm#56104"},
    {PlantedSimpleOffloadBug::kStepTokensStored, "step_tokens_stored",
     "Eager: What the step itself computes counts as computed.", "vllm#34526"},
    {PlantedSimpleOffloadBug::kPlaceholdersCounted, "placeholders_counted",
     "Eager: Outputs that are planned and not there count as computed.", "vllm#36052"},
    {PlantedSimpleOffloadBug::kResumeKeepsIds, "resume_keeps_ids",
     "Eager: A resumed request keeps the block ids and places that it had.", "vllm#57816"},
    {PlantedSimpleOffloadBug::kStaleWindowIdStored, "stale_window_id_stored",
     "Eager: A block that was given back and used anew is stored under the key that it has.",
     "vllm#42959"},
    {PlantedSimpleOffloadBug::kUnhashedBlockEndsGroup, "unhashed_block_ends_group",
     "Eager: A block without a key ends its group where it should be passed over.", "ours"},
    {PlantedSimpleOffloadBug::kStoresNotAligned, "stores_not_aligned",
     "Eager: Stores end at a multiple of each group's blocks where they should be aligned.",
     "ours"},
    {PlantedSimpleOffloadBug::kStoreUnderWayRepeated, "store_under_way_repeated",
     "Eager: A block whose store is under way is stored once more.", "ours"},
    {PlantedSimpleOffloadBug::kStoredAgain, "stored_again",
     "A block that the CPU has is stored once more.", "ours"},
    {PlantedSimpleOffloadBug::kFullMovesPlace, "full_moves_place",
     "Eager: A request's places move on although no CPU block is left.", "vllm#47234"},
    {PlantedSimpleOffloadBug::kFinishedStaysKnown, "finished_stays_known",
     "Eager: A finished request stays known, and its ids become the next one's of its index.",
     "ours"},
    {PlantedSimpleOffloadBug::kPinLeaksAtFinish, "pin_leaks_at_finish",
     "The pinned hit of a finished request is forgotten and not freed.", "ours"},
    {PlantedSimpleOffloadBug::kStalePinKept, "stale_pin_kept",
     "A lookup does not free what the one before pinned.", "ours"},
    {PlantedSimpleOffloadBug::kPinKeptByLoad, "pin_kept_by_load",
     "A load does not free the pin that it was planned from.", "ours"},
    {PlantedSimpleOffloadBug::kLoadSourceNotTouched, "load_source_not_touched",
     "A load does not touch its CPU blocks.", "ours"},
    {PlantedSimpleOffloadBug::kLoadTargetNotTouched, "load_target_not_touched",
     "A load does not touch its GPU blocks.", "ours"},
    {PlantedSimpleOffloadBug::kStoreSourceNotTouched, "store_source_not_touched",
     "A store does not touch its GPU blocks.", "ours"},
    {PlantedSimpleOffloadBug::kLoadFreedAtFinish, "load_freed_at_finish",
     "What a load holds is freed when its request finishes.", "ours"},
    {PlantedSimpleOffloadBug::kLoadIntoTableStart, "load_into_table_start",
     "The blocks of a hit are paired with the first ones of the table.", "ours"},
    {PlantedSimpleOffloadBug::kNullBlockLoaded, "null_block_loaded",
     "A null CPU block is loaded like any other.", "vllm#52807"},
    {PlantedSimpleOffloadBug::kLocalHitIgnored, "local_hit_ignored",
     "A lookup looks from the request's first token on.", "ours"},
    {PlantedSimpleOffloadBug::kLastTokenNotLeft, "last_token_not_left",
     "A lookup may find all tokens, so that none is left to compute.", "ours"},
    {PlantedSimpleOffloadBug::kUntoldLoadToldTwice, "untold_load_told_twice",
     "A load is told by two metadata.", "ours"},
    {PlantedSimpleOffloadBug::kCursorNotForgotten, "cursor_not_forgotten",
     "Lazy: The cursor is kept though its block is not free any more, and the walk waits for it.",
     "ours"},
    {PlantedSimpleOffloadBug::kWalkBeyondSpace, "walk_beyond_space",
     "Lazy: The walk goes on when all free CPU blocks are spoken for, and stores nothing of it.",
     "vllm#47234"},
    {PlantedSimpleOffloadBug::kWalkBeyondTarget, "walk_beyond_target",
     "Lazy: The walk goes to the end of the free queue.", "ours"},
    {PlantedSimpleOffloadBug::kStoredFreedToHead, "stored_freed_to_head",
     "Blocks of a completed store join the CPU's free queue at its head.", "vllm#40332"},
    {PlantedSimpleOffloadBug::kResetClaimsSuccess, "reset_claims_success",
     "A reset of the connector's cache says that it succeeded.", "vllm#57727"},
    {PlantedSimpleOffloadBug::kFlushNotTold, "flush_not_told",
     "The metadata does not tell of a preemption.", "vllm#29870"},
    {PlantedSimpleOffloadBug::kFlushIgnored, "flush_ignored",
     "A worker does not wait for the copies under way when it is told to.", "vllm#29870"},
    {PlantedSimpleOffloadBug::kMarkOfOtherDirection, "mark_of_other_direction",
     "A worker takes the end of a store for that of the load of its number, and the other way "
     "round.",
     "ours"},
    {PlantedSimpleOffloadBug::kLoadRequestsOfAllEvents, "load_requests_of_all_events",
     "A worker reports the requests of all loads under way when one has ended.", "ours"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedSimpleOffloadBugInfo& planted_bug_info(PlantedSimpleOffloadBug bug) {
  return kPlantedSimpleOffloadBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedSimpleOffloadBug> planted_simple_offload_bug_from_name(
    std::string_view name) {
  for (const PlantedSimpleOffloadBugInfo& info : kPlantedSimpleOffloadBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
