// Goal: each reachability goal of engines with an OffloadingConnector that is about tiers is
// counted in its situation and in no other. Method: commands between observations that are made by
// hand.

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"
#include "properties/engine/offloading/goals.h"

namespace kvfence::engine::offloading {
namespace {

using Situations = std::vector<Reached>;

Config config_of() {
  Config config;
  make_assembly(Assembly::kOffloading, config);
  config.profile = "v0.23";
  Record& record = config.edit_connector<Record>();
  record.spec_name = "TieringOffloadingSpec";
  record.num_tiers = 1;
  return config;
}

Config with_files() {
  Config config = config_of();
  config.edit_connector<Record>().file_tiers = {0};
  return config;
}

/// Nobody, and nothing anywhere; of a step all that it answers.
Observation shown() {
  Observation observation;
  observation.requests.emplace();
  observation.skipped_waiting.emplace();
  observation.keys.emplace();
  observation.transfers.emplace();
  observation.t1.emplace();
  observation.t2.emplace();
  observation.tier_jobs.emplace();
  observation.scheduled.emplace();
  observation.new_reqs.emplace();
  observation.cached_reqs.emplace();
  observation.preempted.emplace();
  observation.loads.emplace();
  observation.stores.emplace();
  observation.requests_to_flush.emplace();
  observation.jobs_to_flush.emplace();
  return observation;
}

/// Job 0 of tier 0, for A.
Observation with_job(bool promotion) {
  Observation observation = shown();
  TierTransfer job;
  job.job = 0;
  job.promotion = promotion;
  job.request = "A";
  job.keys = {{std::string("k")}};
  job.slots = {3};
  observation.tier_jobs.emplace() = {std::move(job)};
  return observation;
}

Observation with_call(Observation observation, std::string method, std::string answer = {}) {
  TierCallRecord call;
  call.method = std::move(method);
  call.answer = std::move(answer);
  call.request = "A";
  call.keys.push_back("k");
  call.slots = {3};
  if (!observation.tier_calls.has_value()) observation.tier_calls.emplace().clear();
  std::vector<TierCallRecord> calls = *observation.tier_calls;
  calls.push_back(std::move(call));
  observation.tier_calls.emplace() = std::move(calls);
  return observation;
}

/// Counts one command after another; what the last one added.
class Counting {
 public:
  explicit Counting(const Config& config = config_of())
      : world_(fresh_world<EngineTarget>(config)) {
    reach_.start(config);
  }

  Situations count(const Command& command, const Observation& before, const Observation& after) {
    const Reach old = reach_;
    reach_.count(command, before, after, world_);
    return reached_between(old, reach_);
  }

 private:
  Reach reach_;
  World world_;
};

Situations planned_as(const Observation& after, const Observation& before = shown()) {
  return Counting().count(Schedule{}, before, after);
}

TEST(OffloadingTierReach, CountsWhatTiersReport) {
  const auto reported = [](std::string answer) {
    return with_call(shown(), "get_finished_jobs", std::move(answer));
  };
  EXPECT_EQ(planned_as(reported("0 done"), with_job(true)), Situations{Reached::kPromoted});
  EXPECT_EQ(planned_as(reported("0 failed"), with_job(true)),
            Situations{Reached::kPromotionFailed});
  EXPECT_EQ(planned_as(reported("0 done"), with_job(false)), Situations{Reached::kStoreWentDown});
  EXPECT_EQ(planned_as(reported("0 failed"), with_job(false)),
            Situations{Reached::kStoreLostBelow});
  EXPECT_EQ(planned_as(reported("1 done"), with_job(true)), Situations{}) << "nobody's";
}

TEST(OffloadingTierReach, CountsWhatFilesMakeOfJobs) {
  const auto reported = [](bool promotion, bool is_tried, std::string answer) {
    Counting counting(with_files());
    counting.count(TierFinish{0, 0, is_tried}, shown(), shown());
    return counting.count(Schedule{}, with_job(promotion),
                          with_call(shown(), "get_finished_jobs", std::move(answer)));
  };
  EXPECT_EQ(reported(true, true, "0 done"),
            (Situations{Reached::kPromoted, Reached::kPromotedFromFile}));
  EXPECT_EQ(reported(true, true, "0 failed"),
            (Situations{Reached::kPromotionFailed, Reached::kFileLoadFailed}));
  EXPECT_EQ(reported(true, false, "0 failed"), Situations{Reached::kPromotionFailed}) << "given up";
  EXPECT_EQ(reported(false, true, "0 done"), Situations{Reached::kStoreWentDown});
  EXPECT_EQ(reported(false, true, "0 failed"),
            (Situations{Reached::kStoreLostBelow, Reached::kFileStoreFailed}));
  EXPECT_EQ(reported(false, false, "0 failed"), Situations{Reached::kStoreLostBelow});
}

TEST(OffloadingTierReach, CountsWhatIsLoadedOfAPromotion) {
  Observation load = shown();
  Transfer transfer;
  transfer.request = "A";
  transfer.group_sizes = {1};
  transfer.block_indices = {0};
  transfer.slots = {3};
  load.loads.emplace() = {transfer};
  EXPECT_EQ(planned_as(load), Situations{Reached::kLoad});
  EXPECT_EQ(planned_as(with_call(load, "get_finished_jobs", "0 done"), with_job(true)),
            (Situations{Reached::kLoad, Reached::kPromoted, Reached::kPromotionLoaded}));
}

TEST(OffloadingTierReach, CountsLookups) {
  EXPECT_EQ(planned_as(with_call(shown(), "lookup", "miss")), Situations{});
  EXPECT_EQ(planned_as(with_call(shown(), "lookup", "pending")),
            Situations{Reached::kAskAgainTier});
  const Observation hit = with_call(shown(), "lookup", "hit");
  EXPECT_EQ(planned_as(hit), Situations{Reached::kNoRoomToPromote});
  const Observation promoted = with_call(hit, "submit_load");
  EXPECT_EQ(planned_as(promoted), Situations{});
  Observation full = shown();
  OffloadedBlock block;
  block.key.bytes = "other";
  full.t1.emplace() = {block};
  EXPECT_EQ(planned_as(promoted, full), Situations{Reached::kPromotionEvicts});
}

TEST(OffloadingTierReach, CountsCascadesOfHeldBlocks) {
  EXPECT_EQ(planned_as(with_call(shown(), "submit_store")), Situations{Reached::kHeldWentDown});
}

TEST(OffloadingTierReach, CountsRequestsThatEnd) {
  const Observation told = with_call(shown(), "on_request_finished");
  const Command finish = FinishAllRequests{RequestStatus::kFinishedAborted};
  EXPECT_EQ(Counting().count(finish, with_job(true), told),
            Situations{Reached::kEndedWhilePromoting});
  EXPECT_EQ(Counting().count(finish, with_job(false), told), Situations{});
}

}  // namespace
}  // namespace kvfence::engine::offloading
