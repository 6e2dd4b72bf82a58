#pragma once

/// What a suite of runs has reached: a green suite in which no promotion failed has shown nothing
/// about failed promotions.

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/tiering_target.h"
#include "properties/reach_counts.h"

namespace kvfence::tiering {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kHit,
  kMissInEveryTier,
  kPromotionBegun,
  kPromotionOfALowerTier,
  kPromotionEvicted,
  kPromotionHadNoRoom,
  kPutOffByAStore,
  kPutOffByAPromotion,
  kPutOffByATier,
  kTierBehindTheOneThatAsksAgain,
  kLoadOfSeveralKeys,
  kLoadsOfTwoRequests,
  kPromotionDone,
  kPromotionFailed,
  kPromotionOutlivedItsRequest,
  kCascadeDone,
  kCascadeFailed,
  kCascadeToTwoTiers,
  kRequestLevelCascade,
  kPendingLeftOut,
  kFailedStoreStayed,
  kStoreFailedForCascades,
  kLoadAndCascade,
  kSeveralJobsReported,
  kStrangeResultPassedOver,
  kStoreOfNoKeys,
  kStoredEvent,
  kRemovedEvent,
  kErrorUnknownKey,
  kErrorNotReady,
  kErrorNotReading,
  kErrorListedTwice,
  kErrorNotInConfig,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 33> kReachGoals = {{
    {Reached::kHit, "hit", "a lookup found a block that can be read"},
    {Reached::kMissInEveryTier, "miss_in_every_tier", "a lookup asked every tier in vain"},
    {Reached::kPromotionBegun, "promotion_begun", "a lookup began a promotion"},
    {Reached::kPromotionOfALowerTier, "promotion_of_a_lower_tier",
     "the first tier did not have what another had"},
    {Reached::kPromotionEvicted, "promotion_evicted", "a block had to go for a promotion"},
    {Reached::kPromotionHadNoRoom, "promotion_had_no_room",
     "a block in a tier was missed because nothing could go for it"},
    {Reached::kPutOffByAStore, "put_off_by_a_store", "a lookup found a store under way", 1, true},
    {Reached::kPutOffByAPromotion, "put_off_by_a_promotion", "a lookup found a promotion under way",
     1, true},
    {Reached::kPutOffByATier, "put_off_by_a_tier", "a tier asked to be asked again"},
    {Reached::kTierBehindTheOneThatAsksAgain, "tier_behind_the_one_that_asks_again",
     "a tier behind one that asked to be asked again had the block"},
    {Reached::kLoadOfSeveralKeys, "load_of_several_keys", "a load job had several keys"},
    {Reached::kLoadsOfTwoRequests, "loads_of_two_requests",
     "the end of a step submitted two loads to one tier"},
    {Reached::kPromotionDone, "promotion_done", "a promotion was reported as done", 1, true},
    {Reached::kPromotionFailed, "promotion_failed", "a promotion was reported as failed", 1, true},
    {Reached::kPromotionOutlivedItsRequest, "promotion_outlived_its_request",
     "a request was finished while a block was being promoted for it", 1, true},
    {Reached::kCascadeDone, "cascade_done", "a cascade was reported as done", 1, true},
    {Reached::kCascadeFailed, "cascade_failed", "a cascade was reported as failed", 1, true},
    {Reached::kCascadeToTwoTiers, "cascade_to_two_tiers", "a store went down to several tiers"},
    {Reached::kRequestLevelCascade, "request_level_cascade",
     "a tier at request level got blocks that were there"},
    {Reached::kPendingLeftOut, "pending_left_out",
     "a cascade at request level left out what is being written", 1, true},
    {Reached::kFailedStoreStayed, "failed_store_stayed", "a store failed and went to no tier"},
    {Reached::kStoreFailedForCascades, "store_failed_for_cascades",
     "a store could not be while cascades held blocks", 1, true},
    {Reached::kLoadAndCascade, "load_and_cascade", "a load read a block of a cascade", 1, true},
    {Reached::kSeveralJobsReported, "several_jobs_reported",
     "one tier reported several jobs at once"},
    {Reached::kStrangeResultPassedOver, "strange_result_passed_over",
     "a tier reported a job that it does not have", 1, true},
    {Reached::kStoreOfNoKeys, "store_of_no_keys", "a cascade had no keys"},
    {Reached::kStoredEvent, "stored_event", "an event told of stored blocks"},
    {Reached::kRemovedEvent, "removed_event", "an event told of removed blocks"},
    {Reached::kErrorUnknownKey, "error_unknown_key", "refused with unknown_key"},
    {Reached::kErrorNotReady, "error_not_ready", "refused with not_ready"},
    {Reached::kErrorNotReading, "error_not_reading", "refused with not_reading"},
    {Reached::kErrorListedTwice, "error_listed_twice", "refused with listed_twice"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: the keys of the command and of the jobs times the blocks.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_calls(const Command& command, const Observation& before, const Observation& after);
  void count_results(const TierCallRecord& poll, const Observation& before);

  // For accepted commands.
  template <class Alternative>
  void count_accepted(const Alternative&, const Observation&, const Observation&) {}
  void count_accepted(const Lookup&, const Observation&, const Observation&);
  void count_accepted(const PrepareLoad&, const Observation&, const Observation&);
  void count_accepted(const PrepareStore&, const Observation&, const Observation&);
  void count_accepted(const CompleteStore&, const Observation&, const Observation&);
  void count_accepted(const OnRequestFinished&, const Observation&, const Observation&);
  void count_accepted(const TakeEvents&, const Observation&, const Observation&);
};

}  // namespace kvfence::tiering
