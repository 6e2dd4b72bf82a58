#pragma once

/// What a suite of runs has reached: a green suite in which no promotion failed has shown nothing
/// about failed promotions.

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "contract/tiering/tiering_target.h"
#include "properties/core/goals_counts.h"

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
  kErrorBadRange,
  kPromotedFromFile,
  kCascadedToFile,
  kFileStoreFailed,
  kFileLoadFailed,
  kDiskFull,
  kPermissionDenied,
  kShortTransferWentOn,
  kTornFileMissed,
  kBadFileRemoved,
  kDoubtfulFileMissed,
  kTemporaryFileLeft,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 45> kReachGoals = {{
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
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kPromotedFromFile, "promoted_from_file", "a load of a file tier was done", 1, true},
    {Reached::kCascadedToFile, "cascaded_to_file", "a store of a file tier was done", 1, true},
    {Reached::kFileStoreFailed, "file_store_failed", "files kept a store from being done", 1, true},
    {Reached::kFileLoadFailed, "file_load_failed", "files kept a load from being done", 1, true},
    {Reached::kDiskFull, "disk_full", "a store failed while the disk was to be full", 1, true},
    {Reached::kPermissionDenied, "permission_denied",
     "a job failed while permission was to be denied", 1, true},
    {Reached::kShortTransferWentOn, "short_transfer_went_on",
     "a job was done while a read or write was to be short", 1, true},
    {Reached::kTornFileMissed, "torn_file_missed", "a file of another size was missed", 1, true},
    {Reached::kBadFileRemoved, "bad_file_removed", "a load removed the file", 1, true},
    {Reached::kDoubtfulFileMissed, "doubtful_file_missed",
     "a file was missed behind a load that failed", 1, true},
    {Reached::kTemporaryFileLeft, "temporary_file_left", "a temporary file could not be removed", 1,
     true},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: the keys of the command and of the jobs times the blocks.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  void count_calls(const Command& command, const Observation& before, const Observation& after);
  void count_results(const TierCallRecord& poll, const Observation& before);
  void count_tried(std::uint32_t tier, std::uint32_t job, bool done);
  void count_missed_file(const Lookup& command, const Observation& before,
                         const Observation& after);

  // For accepted commands.
  template <class Alternative>
  void count_accepted(const Alternative&, const Observation&, const Observation&) {}
  void count_accepted(const Lookup&, const Observation&, const Observation&);
  void count_accepted(const PrepareLoad&, const Observation&, const Observation&);
  void count_accepted(const PrepareStore&, const Observation&, const Observation&);
  void count_accepted(const CompleteStore&, const Observation&, const Observation&);
  void count_accepted(const OnRequestFinished&, const Observation&, const Observation&);
  void count_accepted(const TakeEvents&, const Observation&, const Observation&);
  void count_accepted(const TierFinish&, const Observation&, const Observation&);
  void count_accepted(const TierFaults&, const Observation&, const Observation&);
  void count_accepted(const TierDamage&, const Observation&, const Observation&);

  /// A job that a file tier tried to carry out, and what was to go wrong.
  struct Tried {
    Transfer job;
    std::vector<Fault> faults;
  };

  struct FileTier {
    std::vector<Fault> faults;        ///< planned last
    std::vector<Tried> tried;         ///< not yet reported
    std::vector<std::uint32_t> torn;  ///< keys whose file got another size
    std::vector<std::uint32_t> lost;  ///< keys of loads that failed
  };

  std::map<std::uint32_t, FileTier> file_tiers_;  ///< by place
};

}  // namespace kvfence::tiering
