// Goal: each reachability goal of engines over devices is counted in its situation and in no other.
// Method: commands between observations that are made by hand. An offloaded block is two blocks.

#include "properties/engine/on_device/goals.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::on_device {
namespace {

using Situations = std::vector<Reached>;

/// Full attention, and a window.
Config config_of() {
  Config config;
  config.profile = "v0.23";
  make_assembly(Assembly::kOffloadingOnDevice, config);
  config.edit_connector<offloading::Record>().block_size_factor = 2;
  config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = config.hash_block_size},
                   {.kind = KVCacheSpecKind::kSlidingWindow,
                    .block_size = config.hash_block_size,
                    .sliding_window = 3}};
  return config;
}

/// Transfers that were enqueued and not reported, and nothing else.
Observation shown(std::uint32_t num_transfers = 0) {
  Observation observation;
  observation.num_transfers.emplace() = num_transfers;
  return observation;
}

/// A step of nobody.
Observation planned(Observation observation = shown()) {
  observation.scheduled.emplace();
  observation.new_reqs.emplace();
  observation.cached_reqs.emplace();
  observation.preempted.emplace();
  observation.requests_to_flush.emplace();
  observation.jobs_to_flush.emplace();
  return observation;
}

Observation executed(std::vector<DeviceTransfer> transfers = {}) {
  Observation observation;
  observation.submitted.emplace() = std::move(transfers);
  return observation;
}

Observation advanced(bool has_run) {
  Observation observation;
  observation.advanced.emplace() = has_run;
  return observation;
}

Observation polled(std::vector<EndedTransfer> ended, std::uint32_t num_transfers = 0) {
  Observation observation = shown(num_transfers);
  observation.ended.emplace() = std::move(ended);
  observation.finished_recving.emplace();
  observation.finished_sending.emplace();
  return observation;
}

Observation taken_in(RequestStatus status) {
  Observation observation;
  RequestOutput& output = observation.outputs.emplace().emplace_back();
  output.request = "A";
  output.status = status;
  return observation;
}

EndedTransfer store() { return {.job = 1, .store = true}; }
EndedTransfer load() { return {.job = 2, .store = false}; }

DeviceTransfer load_from(std::uint32_t block_index) {
  DeviceTransfer transfer;
  transfer.job = 2;
  transfer.request = "A";
  transfer.group_sizes = {1, 0};
  transfer.block_indices = {block_index, 0};
  return transfer;
}

DeviceTransfer store_of(const std::string& request) {
  DeviceTransfer transfer;
  transfer.job = 1;
  transfer.request = request;
  transfer.store = true;
  return transfer;
}

/// Counts one command after another; what the last one added.
class Counting {
 public:
  Counting() : world_(fresh_world<EngineTarget>(config_of())) { reach_.start(config_of()); }

  Situations operator()(const Command& command, const Observation& after) {
    return (*this)(command, shown(), after);
  }
  Situations operator()(const Command& command, const Observation& before,
                        const Observation& after) {
    world_.apply(command);
    const Reach old = reach_;
    reach_.count(command, before, after, world_);
    return reached_between(old, reach_);
  }

 private:
  Reach reach_;
  World world_;
};

Situations reached_by(const Command& command, const Observation& after,
                      const Observation& before = shown()) {
  return Counting()(command, before, after);
}

TEST(EngineReach, NamesAreUniqueAndEveryGoalIsPositive) { expect_named_once_and_positive(Reach()); }

TEST(EngineReach, CountsReports) {
  EXPECT_EQ(reached_by(Poll{}, polled({})), Situations{});
  EXPECT_EQ(reached_by(Poll{}, polled({}, 1)), Situations{Reached::kReportHeldBack});
  EXPECT_EQ(reached_by(Poll{}, polled({store()}, 1)), Situations{Reached::kStore});
  EXPECT_EQ(reached_by(Poll{}, polled({load()})), Situations{Reached::kLoad});
  EXPECT_EQ(reached_by(Poll{}, polled({store(), load()})),
            (Situations{Reached::kStore, Reached::kLoad, Reached::kBothDirections}));
  Observation freed = polled({});
  freed.finished_sending.emplace() = {"A"};
  EXPECT_EQ(reached_by(Poll{}, freed), Situations{Reached::kHeldFreed});
}

TEST(EngineReach, CountsWhereLoadsBegin) {
  EXPECT_EQ(reached_by(Execute{}, executed({load_from(2)})), Situations{});
  EXPECT_EQ(reached_by(Execute{}, executed({load_from(3)})), Situations{Reached::kLoadWithinSlot});
  DeviceTransfer stored = load_from(3);
  stored.store = true;
  EXPECT_EQ(reached_by(Execute{}, executed({stored})), Situations{});
}

TEST(EngineReach, CountsLoadsIntoWindows) {
  DeviceTransfer into_both = load_from(2);
  into_both.group_sizes = {1, 1};
  into_both.block_indices = {2, 2};
  EXPECT_EQ(reached_by(Execute{}, executed({into_both})), Situations{Reached::kLoadIntoWindow});
}

TEST(EngineReach, CountsFailures) {
  EndedTransfer failed_store = store();
  failed_store.succeeded = false;
  EXPECT_EQ(reached_by(Poll{}, polled({failed_store})),
            (Situations{Reached::kStore, Reached::kFailedStore}));
  EndedTransfer failed_load = load();
  failed_load.succeeded = false;
  const auto behind_a_failed_load = [&](const Observation& outputs) {
    Counting count;
    count(Execute{}, executed({load_from(2)}));
    Observation report = polled({failed_load});
    report.finished_recving.emplace() = {"A"};
    EXPECT_EQ(count(Poll{}, report), (Situations{Reached::kLoad, Reached::kFailedLoad}));
    return count(Update{}, outputs);
  };
  EXPECT_EQ(behind_a_failed_load(taken_in(RequestStatus::kFinishedError)),
            (Situations{Reached::kRequestFinished, Reached::kFailedRequest}));
  Observation spoken;
  RequestOutput& output = spoken.outputs.emplace().emplace_back();
  output.request = "A";
  output.tokens = {1};
  EXPECT_EQ(behind_a_failed_load(spoken), Situations{Reached::kRecomputed});
}

TEST(EngineReach, CountsRanksThatAreLateOrFailAlone) {
  const auto of_rank_1 = [](auto transfer) {
    transfer.rank = 1;
    return transfer;
  };
  Counting count;
  count(Execute{}, executed({load_from(2), of_rank_1(load_from(2))}));
  EXPECT_EQ(count(Poll{}, polled({load()}, 1)), (Situations{Reached::kLoad, Reached::kLateRank}));
  Observation whole = polled({of_rank_1(load())});
  whole.finished_recving.emplace() = {"A"};
  EXPECT_EQ(count(Poll{}, whole), Situations{Reached::kLoad});

  EndedTransfer failed = of_rank_1(store());
  failed.succeeded = false;
  count(Execute{}, executed({store_of("A"), of_rank_1(store_of("A"))}));
  EXPECT_EQ(count(Poll{}, polled({store(), failed})),
            (Situations{Reached::kStore, Reached::kFailedStore, Reached::kFailedOnOneRank}));
}

TEST(EngineReach, CountsFlushesOfWindows) {
  const auto planned_behind_a_store = [](bool runs, bool is_reset) {
    Counting count;
    count(Execute{}, executed({store_of("A")}));
    Observation reset;
    reset.success.emplace() = true;
    if (is_reset) count(ResetPrefixCache{.reset_connector = true}, reset);
    Observation plan = planned();
    plan.jobs_to_flush.emplace() = {1};
    if (runs) plan.scheduled.emplace().emplace_back().request = "A";
    return count(Schedule{}, plan);
  };
  const Situations between = {Reached::kPlannedBetween};
  EXPECT_EQ(planned_behind_a_store(true, false),
            (Situations{Reached::kPlannedBetween, Reached::kWindowFlushed}));
  EXPECT_EQ(planned_behind_a_store(false, false), between) << "it is over, or preempted";
  EXPECT_EQ(planned_behind_a_store(true, true), between) << "all jobs are flushed";
}

TEST(EngineReach, CountsTransfersThatHadToWait) {
  Counting count;
  EXPECT_EQ(count(Advance{"load"}, advanced(true)), Situations{}) << "nobody has waited";
  EXPECT_EQ(count(Advance{"load"}, advanced(false)), Situations{});
  EXPECT_EQ(count(Advance{"store"}, advanced(true)), Situations{}) << "another stream";
  EXPECT_EQ(count(Advance{"compute"}, advanced(true)), Situations{});
  EXPECT_EQ(count(Advance{"load"}, advanced(true)), Situations{Reached::kTransferBlocked});
  EXPECT_EQ(count(Advance{"load"}, advanced(false)), Situations{});
  EXPECT_EQ(count(Execute{}, executed()), Situations{});
  EXPECT_EQ(count(Advance{"load"}, advanced(true)), Situations{}) << "it was only enqueued now";
}

TEST(EngineReach, CountsFlushes) {
  const auto executed_behind = [](const Observation& plan, std::uint32_t num_transfers) {
    Counting count;
    EXPECT_EQ(count(Schedule{}, plan), Situations{});
    return count(Execute{}, shown(num_transfers), executed());
  };
  Observation of_jobs = planned();
  of_jobs.jobs_to_flush.emplace() = {0};
  Observation of_requests = planned();
  of_requests.requests_to_flush.emplace() = {"A"};
  EXPECT_EQ(executed_behind(of_jobs, 1), Situations{Reached::kFlushedWhileStoring});
  EXPECT_EQ(executed_behind(of_requests, 1), Situations{Reached::kFlushedWhileStoring});
  EXPECT_EQ(executed_behind(of_jobs, 0), Situations{});
  EXPECT_EQ(executed_behind(planned(), 1), Situations{});
}

TEST(EngineReach, CountsSteps) {
  Counting count;
  EXPECT_EQ(count(Schedule{}, planned()), Situations{});
  EXPECT_EQ(count(Execute{}, executed()), Situations{});
  EXPECT_EQ(count(Schedule{}, planned()), Situations{Reached::kPlannedBetween});
  EXPECT_EQ(count(Execute{}, executed()), Situations{Reached::kRunAhead});
  EXPECT_EQ(count(Update{}, taken_in(RequestStatus::kRunning)), Situations{});
  EXPECT_EQ(count(Update{}, taken_in(RequestStatus::kFinishedStopped)),
            Situations{Reached::kRequestFinished});
  EXPECT_EQ(count(Schedule{}, planned()), Situations{});
}

TEST(EngineReach, CountsPrefixHits) {
  EXPECT_EQ(reached_by(Schedule{}, with_new(planned(), "A", 4, 1)),
            Situations{Reached::kPrefixHit});
  EXPECT_EQ(reached_by(Schedule{}, with_new(planned(), "A", 0, 5)), Situations{});
}

TEST(EngineReach, CountsWhatEndsUnderTransfers) {
  Observation victim = planned();
  victim.preempted.emplace() = {"A"};
  EXPECT_EQ(reached_by(Schedule{}, victim), Situations{});
  EXPECT_EQ(reached_by(Schedule{}, victim, shown(1)), Situations{Reached::kPreemptedWhileStoring});

  Observation running = shown(1);
  running.num_unfinished = 2;
  Observation ended = shown(1);
  ended.num_unfinished = 1;
  const Situations aborted = {Reached::kAbortedWithTransfers};
  EXPECT_EQ(reached_by(FinishRequests{{"A"}}, ended, running), aborted);
  EXPECT_EQ(reached_by(FinishAllRequests{}, ended, running), aborted);
  EXPECT_EQ(reached_by(FinishRequests{{"A"}}, running, running), Situations{}) << "was over before";

  EXPECT_EQ(reached_by(Drain{}, shown(), shown(1)), Situations{Reached::kDrainedWithTransfers});
  EXPECT_EQ(reached_by(Drain{}, shown(), shown()), Situations{});
}

TEST(EngineReach, StartsAfreshBehindADrain) {
  Counting count;
  count(Schedule{}, planned());
  count(Execute{}, executed());
  EXPECT_EQ(count(Drain{}, shown()), Situations{});
  EXPECT_EQ(count(Schedule{}, planned()), Situations{});
  EXPECT_EQ(count(Execute{}, executed()), Situations{});
}

TEST(EngineReach, CountsResets) {
  const auto answered = [](bool success) {
    Observation observation = shown(1);
    observation.success.emplace() = success;
    return observation;
  };
  EXPECT_EQ(reached_by(ResetPrefixCache{}, answered(true), shown(1)),
            Situations{Reached::kResetWithTransfers});
  EXPECT_EQ(reached_by(ResetPrefixCache{}, answered(false), shown(1)), Situations{});
  EXPECT_EQ(reached_by(ResetPrefixCache{}, answered(true), shown()), Situations{});
  EXPECT_EQ(reached_by(ResetPrefixCache{.reset_connector = true}, answered(true), shown(1)),
            (Situations{Reached::kResetWithTransfers, Reached::kCPUCacheResetWithTransfers}));
  EXPECT_EQ(reached_by(ResetPrefixCache{.reset_connector = true}, answered(true), shown()),
            Situations{});
}

TEST(EngineReach, CountsRefusals) {
  const std::vector<std::pair<ErrorCode, Reached>> refusals = {
      {ErrorCode::kUnknownRequest, Reached::kErrorUnknownRequest},
      {ErrorCode::kBadRange, Reached::kErrorBadRange},
      {ErrorCode::kAlreadyDeclared, Reached::kErrorAlreadyDeclared},
      {ErrorCode::kNoTokens, Reached::kErrorNoTokens},
      {ErrorCode::kBeyondModelLength, Reached::kErrorBeyondModelLength},
      {ErrorCode::kNotInConfig, Reached::kErrorNotInConfig},
      {ErrorCode::kNotInProfile, Reached::kErrorNotInProfile},
      {ErrorCode::kNoStepInFlight, Reached::kErrorNoStepInFlight},
      {ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight}};
  for (const auto& [error, reached] : refusals) {
    Observation refused = shown();
    refused.error = error;
    // It counts as its refusal and as nothing else.
    EXPECT_EQ(reached_by(Drain{}, refused, shown(1)), Situations{reached}) << to_text(error);
  }
}

}  // namespace
}  // namespace kvfence::engine::on_device
