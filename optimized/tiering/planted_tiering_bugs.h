#pragma once

/// The deliberate mistakes that BasicTieringOffloadingManager<PlantedInstrumentation> can make, one
/// at a time. What planted_bugs.h says of them holds here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvfence::optimized {

enum class PlantedTieringBug : std::uint8_t {
  kNone,
  kFullPrimaryAsksAgain,
  kAgainEndsTheSearch,
  kLookupBeforePoll,
  kPolledOnceForGood,
  kFailedPromotionIsReady,
  kFailedPromotionStaysPending,
  kPromotionLostWithItsRequest,
  kPromotionsNotGrouped,
  kPromotionsOfAllRequestsMerged,
  kCascadeNotPinned,
  kFailedCascadeStaysPinned,
  kLoadReleasesCascade,
  kCascadeToFirstTierOnly,
  kFailedStoreCascaded,
  kLateStoreNotCascaded,
  kPendingKeyStopsRequestLevel,
  kRequestLevelForgotten,
  kResultOfAnotherTierTaken,
  kCallerEndsPromotion,
  kResetUnderTransfers,
  kTouchStaysInPrimary,
  kUnreadPromotionHeld,
};

struct PlantedTieringBugInfo {
  PlantedTieringBug bug;
  std::string_view name;    ///< snake_case, says what it breaks
  std::string_view doc;     ///< one sentence
  std::string_view thread;  ///< the public thread of a bug of this shape, or "ours"
};

inline constexpr std::array<PlantedTieringBugInfo, 22> kPlantedTieringBugs = {{
    {PlantedTieringBug::kFullPrimaryAsksAgain, "full_primary_asks_again",
     "A block that cannot be promoted because nothing can go is put off for ever, not missed.",
     "vllm#40020"},
    {PlantedTieringBug::kAgainEndsTheSearch, "again_ends_the_search",
     "A tier that wants to be asked again hides what the tiers behind it hold.", "ours"},
    {PlantedTieringBug::kLookupBeforePoll, "lookup_before_poll",
     "A lookup asks the primary tier before it polls, so each promotion costs one more round.",
     "inference-sim#1590"},
    {PlantedTieringBug::kPolledOnceForGood, "polled_once_for_good",
     "The end of a step does not allow the next poll.", "ours"},
    {PlantedTieringBug::kFailedPromotionIsReady, "failed_promotion_is_ready",
     "The blocks of a failed promotion can be read.", "vllm#50321"},
    {PlantedTieringBug::kFailedPromotionStaysPending, "failed_promotion_stays_pending",
     "The slots of a failed promotion stay reserved, so its keys are put off for ever.",
     "vllm#49829"},
    {PlantedTieringBug::kPromotionLostWithItsRequest, "promotion_lost_with_its_request",
     "The end of a request drops its queued promotions, but not their slots.", "vllm#52571"},
    {PlantedTieringBug::kPromotionsNotGrouped, "promotions_not_grouped",
     "Each promoted block is a job of its own.", "ours"},
    {PlantedTieringBug::kPromotionsOfAllRequestsMerged, "promotions_of_all_requests_merged",
     "The promotions of all requests from a tier are one job, in the name of the first.",
     "vllm#49820"},
    {PlantedTieringBug::kCascadeNotPinned, "cascade_not_pinned",
     "The blocks of a cascade can be evicted while the tier reads them.", "vllm#44541"},
    {PlantedTieringBug::kFailedCascadeStaysPinned, "failed_cascade_stays_pinned",
     "The blocks of a failed cascade stay acquired.", "LMCache#3884"},
    {PlantedTieringBug::kLoadReleasesCascade, "load_releases_cascade",
     "complete_load takes away what a cascade holds.", "ours"},
    {PlantedTieringBug::kCascadeToFirstTierOnly, "cascade_to_first_tier_only",
     "A store goes down to the first tier alone.", "vllm#46865"},
    {PlantedTieringBug::kFailedStoreCascaded, "failed_store_cascaded",
     "A store that failed goes down, as far as its blocks are there from before.", "ours"},
    {PlantedTieringBug::kLateStoreNotCascaded, "late_store_not_cascaded",
     "What a request stores after its end does not go down.", "vllm#49671"},
    {PlantedTieringBug::kPendingKeyStopsRequestLevel, "pending_key_stops_request_level",
     "One key that is being written keeps all others from a tier at request level.", "vllm#53062"},
    {PlantedTieringBug::kRequestLevelForgotten, "request_level_forgotten",
     "A tier gets a request at request level only until the end of the step.", "vllm#45823"},
    {PlantedTieringBug::kResultOfAnotherTierTaken, "result_of_another_tier_taken",
     "A result ends the job of that number, whichever tier reports it.", "vllm#49820"},
    {PlantedTieringBug::kCallerEndsPromotion, "caller_ends_promotion",
     "complete_store makes blocks ready that are still being promoted.", "ours"},
    {PlantedTieringBug::kResetUnderTransfers, "reset_under_transfers",
     "reset_cache resets the primary tier while transfers read and write its slots.", "vllm#44541"},
    {PlantedTieringBug::kTouchStaysInPrimary, "touch_stays_in_primary",
     "touch does not reach the other tiers.", "ours"},
    {PlantedTieringBug::kUnreadPromotionHeld, "unread_promotion_held",
     "A promoted block cannot go until it was loaded once, as is proposed upstream.", "vllm#49902"},
}};

/// The entry of a bug. Requires: bug is not kNone.
constexpr const PlantedTieringBugInfo& planted_bug_info(PlantedTieringBug bug) {
  return kPlantedTieringBugs[static_cast<std::size_t>(bug) - 1];
}

/// The bug of that name; nothing for an unknown name.
constexpr std::optional<PlantedTieringBug> planted_tiering_bug_from_name(std::string_view name) {
  for (const PlantedTieringBugInfo& info : kPlantedTieringBugs) {
    if (info.name == name) return info.bug;
  }
  return std::nullopt;
}

}  // namespace kvfence::optimized
