#pragma once

/// The deliberate mistakes that BasicMultiConnector and BasicMultiConnectorWorker can make with
/// PlantedInstrumentation, one at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

enum class PlantedMultiConnectorBug : std::uint8_t {
  kNone,
  kAgainPassedOver,
  kAskedBehindAgain,
  kLastHitChosen,
  kMostTokensChosen,
  kSearchEndsAtHit,
  kFirstChoiceKept,
  kChoiceLostAtAgain,
  kChoiceKeptBehindFinish,
  kTokensForAll,
  kLosersNotTold,
  kNoGroupsForLosers,
  kExtraCountsAllSavers,
  kExtraSavesNotCounted,
  kExtraSavesSentTwice,
  kParamsOfLastChild,
  kHoldOfLastChild,
  kFinishEndsAtHold,
  kFirstGroupOnly,
  kWorkerMetaShifted,
  kEventsOfFirstChild,
  kResetEndsAtFailure,
  kUnsaidResetFails,
  kPreemptionsToFirstChild,
  kMetadataOfFirstChild,
  kExtraSavesReplaced,
  kExtraSavesAdded,
  kExtraSavesStay,
  kReceivedSwallowed,
  kLoadErrorsOfOneChild,
  kStatsOverwritten,
  kStatsCountedTwice,
  kRankMetaOverwritten,
};

struct PlantedMultiConnectorBugInfo {
  PlantedMultiConnectorBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedMultiConnectorBugInfo, 32> kPlantedMultiConnectorBugs = {{
    {PlantedMultiConnectorBug::kAgainPassedOver, "again_passed_over",
     "A child that wants to be asked again is passed over, as if it had nothing.", "ours"},
    {PlantedMultiConnectorBug::kAskedBehindAgain, "asked_behind_again",
     "The children behind one that wants to be asked again are asked as well.", "ours"},
    {PlantedMultiConnectorBug::kLastHitChosen, "last_hit_chosen",
     "The last child with tokens is chosen.", "ours"},
    {PlantedMultiConnectorBug::kMostTokensChosen, "most_tokens_chosen",
     "The child with the most tokens is chosen.", "ours"},
    {PlantedMultiConnectorBug::kSearchEndsAtHit, "search_ends_at_hit",
     "The children behind the chosen one are not asked.", "ours"},
    {PlantedMultiConnectorBug::kFirstChoiceKept, "first_choice_kept",
     "A later lookup does not change who is chosen.", "ours"},
    {PlantedMultiConnectorBug::kChoiceLostAtAgain, "choice_lost_at_again",
     "A lookup that is put off does not note who is chosen.", "ours"},
    {PlantedMultiConnectorBug::kChoiceKeptBehindFinish, "choice_kept_behind_finish",
     "Who is chosen stays noted when the request is finished.", "ours"},
    {PlantedMultiConnectorBug::kTokensForAll, "tokens_for_all",
     "Every child is told to load the blocks that the chosen one loads.", "vllm-ascend#13825"},
    {PlantedMultiConnectorBug::kLosersNotTold, "losers_not_told",
     "update_state_after_alloc reaches the chosen child alone.", "ours"},
    {PlantedMultiConnectorBug::kNoGroupsForLosers, "no_groups_for_losers",
     "The children that are not chosen get no groups, not empty ones.", "ours"},
    {PlantedMultiConnectorBug::kExtraCountsAllSavers, "extra_counts_all_savers",
     "All children that hold blocks count as extra, so that the request is never sent.", "ours"},
    {PlantedMultiConnectorBug::kExtraSavesNotCounted, "extra_saves_not_counted",
     "Nothing is extra: a request is sent when its first child has sent it.", "vllm#18246"},
    {PlantedMultiConnectorBug::kExtraSavesSentTwice, "extra_saves_sent_twice",
     "The metadata of every step carry all extra saves again.", "ours"},
    {PlantedMultiConnectorBug::kParamsOfLastChild, "params_of_last_child",
     "Of several children with parameters the last one's are answered.", "ours"},
    {PlantedMultiConnectorBug::kHoldOfLastChild, "hold_of_last_child",
     "Blocks are held only if the last child holds them.", "vllm#18246"},
    {PlantedMultiConnectorBug::kFinishEndsAtHold, "finish_ends_at_hold",
     "The children behind the first that holds blocks are not told of the end.", "ours"},
    {PlantedMultiConnectorBug::kFirstGroupOnly, "first_group_only",
     "Children that take several groups get the first one's blocks.", "ours"},
    {PlantedMultiConnectorBug::kWorkerMetaShifted, "worker_meta_shifted",
     "Every child gets the worker metadata of the one behind it, if the first has none.", "ours"},
    {PlantedMultiConnectorBug::kEventsOfFirstChild, "events_of_first_child",
     "The events of the first child alone are handed out.", "ours"},
    {PlantedMultiConnectorBug::kResetEndsAtFailure, "reset_ends_at_failure",
     "The children behind one that could not be reset are not reset.", "ours"},
    {PlantedMultiConnectorBug::kUnsaidResetFails, "unsaid_reset_fails",
     "A child that does not say how its reset went has failed.", "ours"},
    {PlantedMultiConnectorBug::kPreemptionsToFirstChild, "preemptions_to_first_child",
     "The first child alone hears of preemptions.", "ours"},
    {PlantedMultiConnectorBug::kMetadataOfFirstChild, "metadata_of_first_child",
     "Every child is bound to the metadata of the first of its class.", "ours"},
    {PlantedMultiConnectorBug::kExtraSavesReplaced, "extra_saves_replaced",
     "The extra saves that come with a step replace those of all requests.", "vllm#18246"},
    {PlantedMultiConnectorBug::kExtraSavesAdded, "extra_saves_added",
     "Of several requests whose extra saves come with one step, later ones get those of earlier "
     "ones, too.",
     "ours"},
    {PlantedMultiConnectorBug::kExtraSavesStay, "extra_saves_stay",
     "A request whose extra saves are used up swallows every further notice.", "ours"},
    {PlantedMultiConnectorBug::kReceivedSwallowed, "received_swallowed",
     "A notice that a request is received takes from its extra saves.", "vllm#52954"},
    {PlantedMultiConnectorBug::kLoadErrorsOfOneChild, "load_errors_of_one_child",
     "The blocks that failed to load are those of the first child that has any.", "ours"},
    {PlantedMultiConnectorBug::kStatsOverwritten, "stats_overwritten",
     "Of several children of one class the last one's statistics are kept.", "ours"},
    {PlantedMultiConnectorBug::kStatsCountedTwice, "stats_counted_twice",
     "The statistics of a later rank are taken in twice.", "vllm#22188"},
    {PlantedMultiConnectorBug::kRankMetaOverwritten, "rank_meta_overwritten",
     "The worker metadata of a later rank replace those of an earlier one.", "ours"},
}};

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedMultiConnectorBug> planted_multi_connector_bug_from_name(
    std::string_view name) {
  for (const PlantedMultiConnectorBugInfo& info : kPlantedMultiConnectorBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
