// Goal: each reachability goal of engines with an OffloadingConnector is counted in its situation
// and in no other. Method: commands between observations that are made by hand. Blocks have 4
// tokens.

#include "properties/engine/offloading/goals.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/pool/block_hash.h"
#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::offloading {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Situations = std::vector<Reached>;

Config config_of(std::string profile = "v0.23") {
  Config config;
  make_assembly(Assembly::kOffloading, config);
  config.profile = std::move(profile);
  config.num_gpu_blocks = 8;
  config.edit_connector<Record>().num_cpu_blocks = 4;
  return config;
}

Config with_window() {
  Config config = config_of();
  KVCacheSpec sliding;
  sliding.kind = KVCacheSpecKind::kSlidingWindow;
  sliding.block_size = 4;
  sliding.sliding_window = 4;
  config.groups.push_back(sliding);
  return config;
}

Config with_factor(std::uint32_t block_size_factor) {
  Config config = config_of();
  config.edit_connector<Record>().block_size_factor = block_size_factor;
  return config;
}

/// Nobody, an empty pool, and nothing in CPU memory.
Observation shown() {
  Observation observation;
  observation.requests.emplace();
  observation.skipped_waiting.emplace();
  observation.keys.emplace().resize(8);
  observation.transfers.emplace();
  observation.t1.emplace();
  observation.t2.emplace();
  return observation;
}

/// A step of nobody, which answers like this.
Observation planned(Observation observation = shown()) {
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

/// A step came back, and there was nothing to report.
Observation came_back(Observation observation = shown()) {
  observation.outputs.emplace();
  observation.finished_recving.emplace();
  observation.finished_sending.emplace();
  observation.invalid_blocks.emplace();
  observation.completed_jobs.emplace();
  observation.transfer_stats.emplace();
  return observation;
}

Observation with_request(Observation observation, std::string name, RequestStatus status,
                         std::uint32_t num_computed_tokens = 0, std::uint32_t num_preemptions = 0) {
  RequestState& state = observation.requests.emplace().emplace_back();
  state.id = std::move(name);
  state.status = status;
  state.num_computed_tokens = num_computed_tokens;
  state.num_preemptions = num_preemptions;
  return observation;
}

Observation with_cached(Observation observation, const std::string& name,
                        std::uint32_t num_computed_tokens, std::uint32_t num_tokens) {
  ScheduledCached& cached = observation.cached_reqs.emplace().emplace_back();
  cached.request = name;
  cached.num_computed_tokens = num_computed_tokens;
  ScheduledRequest& scheduled = observation.scheduled.emplace().emplace_back();
  scheduled.request = name;
  scheduled.num_tokens = num_tokens;
  return observation;
}

Observation with_load(Observation observation, std::string name, Numbers group_sizes = {1},
                      Numbers block_indices = {0}, JobId job = 0) {
  Transfer& load = observation.loads.emplace().emplace_back();
  load.job = job;
  load.request = std::move(name);
  load.group_sizes = std::move(group_sizes);
  load.block_indices = std::move(block_indices);
  return observation;
}

Observation with_store(Observation observation, std::string name, JobId job = 0,
                       std::vector<BlockId> gpu_blocks = {1}) {
  Transfer& store = observation.stores.emplace().emplace_back();
  store.job = job;
  store.request = std::move(name);
  store.gpu_blocks = std::move(gpu_blocks);
  store.slots = {0};
  return observation;
}

Observation with_block(Observation observation, std::string key, std::uint32_t readers = 0) {
  OffloadedBlock& block = observation.t1.emplace().emplace_back();
  block.key.bytes = std::move(key);
  block.readers = readers;
  return observation;
}

/// A rank's copy engine has a transfer.
Observation with_transfer(Observation observation, std::string name, bool store,
                          TransferProgress progress = TransferProgress::kSubmitted,
                          std::uint32_t rank = 0) {
  EngineTransfer& transfer = observation.transfers.emplace().emplace_back();
  transfer.rank = rank;
  transfer.request = std::move(name);
  transfer.store = store;
  transfer.progress = progress;
  return observation;
}

Observation with_completed(Observation observation, JobId job, std::uint32_t num_workers,
                           std::uint32_t num_failed) {
  Completed& completed = observation.completed_jobs.emplace().emplace_back();
  completed.job = job;
  completed.num_workers = num_workers;
  completed.num_failed = num_failed;
  return observation;
}

Observation with_invalid_block(Observation observation) {
  observation.invalid_blocks.emplace() = {1};
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
    world_.apply(command);
    const Reach old = reach_;
    reach_.count(command, before, after, world_);
    return reached_between(old, reach_);
  }

  /// A prompt of 4 tokens.
  Counting& add(std::string name, std::optional<std::uint32_t> max_offload_tokens = {}) {
    AddRequest added;
    added.id = std::move(name);
    added.tokens = {1, 2, 3, 4};
    added.max_offload_tokens = max_offload_tokens;
    EXPECT_EQ(count(added, shown(), shown()), Situations{});
    return *this;
  }

  /// Of that request's only full block.
  std::string key_of(const std::string& name) const {
    const Request* request = world_.requests().find(name);
    return make_block_hash_with_group_id(request->block_hashes(4)[0], 0);
  }

 private:
  Reach reach_;
  World world_;
};

/// By a step, and by one that comes back, of those who were not there before.
Situations planned_as(const Observation& after, const Config& config = config_of()) {
  return Counting(config).count(Schedule{}, shown(), after);
}

Situations reported_as(const Observation& after, const Observation& before = shown()) {
  return Counting().count(Update{}, before, after);
}

TEST(OffloadingReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(OffloadingReach, CountsLoads) {
  EXPECT_EQ(planned_as(planned()), Situations{});
  const Observation load = with_load(planned(), "A");
  const auto waiting = RequestStatus::kWaitingForRemoteKVs;
  EXPECT_EQ(planned_as(with_request(load, "A", waiting, 4)), Situations{Reached::kLoad});
  EXPECT_EQ(planned_as(with_request(load, "A", waiting, 3)),
            (Situations{Reached::kLoad, Reached::kUnroundedLoad}));
  const Observation victim = with_request(shown(), "A", RequestStatus::kPreempted, 0, 1);
  EXPECT_EQ(Counting().count(Schedule{}, victim, load),
            (Situations{Reached::kLoad, Reached::kLoadOfPreempted}));
  const Observation fresh = with_request(shown(), "A", RequestStatus::kWaiting);
  EXPECT_EQ(Counting().count(Schedule{}, fresh, load), Situations{Reached::kLoad});
}

TEST(OffloadingReach, CountsWhereLoadsBegin) {
  const Config config = with_factor(2);
  EXPECT_EQ(planned_as(with_load(planned(), "A", {2}, {0}), config), Situations{Reached::kLoad});
  EXPECT_EQ(planned_as(with_load(planned(), "A", {2}, {2}), config),
            (Situations{Reached::kLoad, Reached::kLoadBehindHit}));
  EXPECT_EQ(planned_as(with_load(planned(), "A", {2}, {1}), config),
            (Situations{Reached::kLoad, Reached::kLoadBehindHit, Reached::kLoadWithinSlot}));
}

TEST(OffloadingReach, CountsLoadsOfSeveralGroups) {
  const Config config = with_window();
  EXPECT_EQ(planned_as(with_load(planned(), "A", {2, 2}, {0, 0}), config),
            (Situations{Reached::kLoad, Reached::kSeveralGroupsLoad}));
  EXPECT_EQ(
      planned_as(with_load(planned(), "A", {2, 1}, {0, 1}), config),
      (Situations{Reached::kLoad, Reached::kSeveralGroupsLoad, Reached::kWindowedGroupLoadsLess}));
  // The window is there; what full attention wants is not.
  EXPECT_EQ(planned_as(with_load(planned(), "A", {2, 0}, {0, 0}), config),
            (Situations{Reached::kLoad, Reached::kWindowedGroupLoadsLess}));
  EXPECT_EQ(planned_as(with_load(planned(), "A", {0, 1}, {0, 1}), config),
            Situations{Reached::kLoad});
}

TEST(OffloadingReach, CountsStores) {
  const Config config = with_factor(2);
  EXPECT_EQ(planned_as(with_store(planned(), "A", 0, {1, 2}), config), Situations{Reached::kStore});
  EXPECT_EQ(planned_as(with_store(planned(), "A", 0, {2}), config),
            (Situations{Reached::kStore, Reached::kWindowedStoreLeavesOut}));
  const Observation held = with_block(shown(), "old");
  EXPECT_EQ(Counting().count(Schedule{}, held, with_block(with_store(planned(), "A"), "new")),
            (Situations{Reached::kStore, Reached::kStoreEvicts}));
  EXPECT_EQ(Counting().count(Schedule{}, held, with_block(with_store(planned(), "A"), "old")),
            Situations{Reached::kStore});
  EXPECT_EQ(Counting().count(Schedule{}, held, planned()), Situations{});
}

TEST(OffloadingReach, CountsWhatDecodingAdds) {
  const Observation store = with_store(planned(), "A");
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), with_new(store, "A", 0, 4)),
            Situations{Reached::kStore});
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), with_cached(store, "A", 4, 1)),
            (Situations{Reached::kStore, Reached::kDecodedStored}));
  const Observation second_block = with_cached(planned(), "A", 7, 1);
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), second_block),
            Situations{Reached::kPromptOnlyKept});
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), with_cached(planned(), "A", 6, 1)),
            Situations{});
  Config all = config_of();
  all.edit_connector<Record>().offload_prompt_only = false;
  EXPECT_EQ(Counting(all).add("A").count(Schedule{}, shown(), second_block), Situations{});
  EXPECT_EQ(Counting(config_of("v0.19")).add("A").count(Schedule{}, shown(), second_block),
            Situations{});
}

TEST(OffloadingReach, CountsWhatIsNotStored) {
  const Observation step = with_new(planned(), "A", 0, 4);
  EXPECT_EQ(Counting().add("A", 3).count(Schedule{}, shown(), step),
            Situations{Reached::kMaxOffloadTokens});
  EXPECT_EQ(Counting().add("A", 4).count(Schedule{}, shown(), with_store(step, "A")),
            Situations{Reached::kStore});
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), step),
            Situations{Reached::kStoreRefused});
  Config filtered = config_of();
  filtered.edit_connector<Record>().store_threshold = 2;
  EXPECT_EQ(Counting(filtered).add("A").count(Schedule{}, shown(), step),
            Situations{Reached::kFilterStops});
  // It is there already, or was until this step.
  Counting counting;
  const std::string key = counting.add("A").key_of("A");
  EXPECT_EQ(counting.count(Schedule{}, shown(), with_block(step, key)), Situations{});
  counting.count(Update{}, shown(), came_back());
  EXPECT_EQ(counting.count(Schedule{}, with_block(shown(), key), step), Situations{});
  // Nothing is full.
  EXPECT_EQ(Counting().add("A").count(Schedule{}, shown(), with_new(planned(), "A", 0, 3)),
            Situations{});
}

TEST(OffloadingReach, CountsWhoIsPutOff) {
  const auto put_off = [](RequestStatus status, std::uint32_t readers) {
    Observation observation = with_request(with_block(planned(), "key", readers), "A", status);
    observation.skipped_waiting.emplace() = {"A"};
    return observation;
  };
  EXPECT_EQ(planned_as(put_off(RequestStatus::kWaiting, 1)), Situations{Reached::kAskAgainLoading});
  EXPECT_EQ(planned_as(put_off(RequestStatus::kWaiting, 0)), Situations{Reached::kAskAgainWriting});
  EXPECT_EQ(planned_as(put_off(RequestStatus::kWaitingForRemoteKVs, 1)), Situations{});
}

TEST(OffloadingReach, CountsGhostHits) {
  Observation moved = planned();
  moved.target_t1_size.emplace() = 1;
  EXPECT_EQ(planned_as(moved), Situations{Reached::kGhostHit});
  EXPECT_EQ(Counting().count(Schedule{}, moved, moved), Situations{});
  EXPECT_EQ(Counting().count(SetPauseState{}, shown(), moved), Situations{});
}

TEST(OffloadingReach, CountsVictims) {
  Observation victim = planned();
  victim.preempted.emplace() = {"A"};
  const auto preempted_from = [&](const Observation& before) {
    return Counting().count(Schedule{}, before, victim);
  };
  EXPECT_EQ(preempted_from(with_transfer(shown(), "A", true)),
            Situations{Reached::kPreemptedWhileStoring});
  EXPECT_EQ(preempted_from(with_transfer(shown(), "A", true, TransferProgress::kPart)),
            Situations{Reached::kPreemptedWhileStoring});
  EXPECT_EQ(preempted_from(with_transfer(shown(), "A", true, TransferProgress::kFinished)),
            Situations{});
  EXPECT_EQ(preempted_from(with_transfer(shown(), "A", false)), Situations{});
  EXPECT_EQ(preempted_from(with_transfer(shown(), "B", true)), Situations{});
}

TEST(OffloadingReach, CountsFlushes) {
  Observation by_request = planned();
  by_request.requests_to_flush.emplace() = {"A"};
  EXPECT_EQ(planned_as(by_request), Situations{Reached::kFlushOfPreempted});

  Observation idle = planned();
  idle.jobs_to_flush.emplace() = {0};
  EXPECT_EQ(planned_as(idle), Situations{Reached::kFlushOfIdle});
  Observation reused = idle;
  reused.num_unfinished = 1;
  EXPECT_EQ(planned_as(reused), Situations{Reached::kFlushOfReused});
  Observation preempted = reused;
  preempted.preempted.emplace() = {"A"};
  EXPECT_EQ(planned_as(preempted), Situations{Reached::kFlushOfPreempted});

  Counting counting;
  Observation done = shown();
  done.success.emplace() = true;
  counting.count(ResetPrefixCache{.reset_connector = true}, shown(), done);
  EXPECT_EQ(counting.count(Schedule{}, shown(), reused), Situations{Reached::kFlushOfReset});
  counting.count(Update{}, shown(), came_back());
  EXPECT_EQ(counting.count(Schedule{}, shown(), reused), Situations{Reached::kFlushOfReused});
}

TEST(OffloadingReach, CountsStepsInFlight) {
  Counting counting;
  EXPECT_EQ(counting.count(Schedule{}, shown(), planned()), Situations{});
  EXPECT_EQ(counting.count(Schedule{}, shown(), planned()), Situations{Reached::kTwoStepsInFlight});
  EXPECT_EQ(counting.count(Update{}, shown(), came_back()), Situations{});
  EXPECT_EQ(counting.count(Update{}, shown(), came_back()), Situations{});
  EXPECT_EQ(counting.count(Schedule{}, shown(), planned()), Situations{});
}

TEST(OffloadingReach, CountsHeldBlocks) {
  const auto ended = RequestStatus::kFinishedStopped;
  const Observation running = with_request(shown(), "A", RequestStatus::kRunning);
  EXPECT_EQ(reported_as(with_request(came_back(), "A", ended), running),
            Situations{Reached::kHeld});
  EXPECT_EQ(reported_as(came_back(), running), Situations{});
  EXPECT_EQ(reported_as(with_request(came_back(), "A", ended), with_request(shown(), "A", ended)),
            Situations{});
  Observation sent = came_back();
  sent.finished_sending.emplace() = {"A"};
  EXPECT_EQ(reported_as(sent), Situations{Reached::kHeldFreed});
}

TEST(OffloadingReach, CountsLateRanks) {
  const Observation both =
      with_transfer(with_transfer(shown(), "A", true), "A", true, TransferProgress::kSubmitted, 1);
  const Observation one = with_transfer(came_back(), "A", true, TransferProgress::kSubmitted, 1);
  EXPECT_EQ(reported_as(one, both), Situations{Reached::kLateRank});
  EXPECT_EQ(reported_as(one, one), Situations{});
  EXPECT_EQ(reported_as(came_back(both), both), Situations{});
  EXPECT_EQ(reported_as(came_back(), both), Situations{});
}

TEST(OffloadingReach, CountsFailedLoads) {
  const Observation failed = with_invalid_block(came_back());
  EXPECT_EQ(reported_as(failed), Situations{Reached::kLoadFailed});

  const auto running = RequestStatus::kRunning;
  const Observation before = with_request(shown(), "A", running, 4);
  EXPECT_EQ(reported_as(with_request(failed, "A", running, 0), before),
            (Situations{Reached::kLoadFailed, Reached::kLoadRecomputed}));
  EXPECT_EQ(reported_as(with_request(failed, "A", running, 4), before),
            Situations{Reached::kLoadFailed});
  EXPECT_EQ(reported_as(with_request(came_back(), "A", running, 0), before), Situations{});

  Observation error = came_back();
  error.outputs.emplace().emplace_back().status = RequestStatus::kFinishedError;
  EXPECT_EQ(reported_as(error), Situations{});
  EXPECT_EQ(reported_as(with_invalid_block(error)),
            (Situations{Reached::kLoadFailed, Reached::kLoadFailedForGood}));
}

TEST(OffloadingReach, CountsJobsThatFailed) {
  const auto reported_after = [](const Observation& step, const Observation& after) {
    Counting counting;
    counting.count(Schedule{}, shown(), step);
    return counting.count(Update{}, shown(), after);
  };
  const Observation store = with_store(planned(), "A", 3);
  EXPECT_EQ(reported_after(store, with_completed(came_back(), 3, 1, 0)), Situations{});
  EXPECT_EQ(reported_after(store, with_completed(came_back(), 3, 2, 2)),
            Situations{Reached::kStoreFailed});
  EXPECT_EQ(reported_after(store, with_completed(came_back(), 3, 2, 1)),
            (Situations{Reached::kStoreFailed, Reached::kStoreFailedOnARank}));
  const Observation load = with_load(planned(), "A", {1}, {0}, 3);
  EXPECT_EQ(reported_after(load, with_completed(came_back(), 3, 2, 2)), Situations{});
  EXPECT_EQ(reported_after(load, with_completed(came_back(), 3, 2, 1)),
            Situations{Reached::kLoadFailedOnARank});
}

TEST(OffloadingReach, CountsStatistics) {
  const auto measured = [](std::string type) {
    Observation observation = came_back();
    observation.transfer_stats.emplace().emplace_back().type = std::move(type);
    return observation;
  };
  EXPECT_EQ(reported_as(measured("GPU_to_CPU")), Situations{Reached::kMeasuredStore});
  EXPECT_EQ(reported_as(measured("CPU_to_GPU")), Situations{Reached::kMeasuredLoad});
}

TEST(OffloadingReach, CountsWhatEndsFromOutside) {
  const auto running = RequestStatus::kRunning;
  const auto waiting = RequestStatus::kWaitingForRemoteKVs;
  const auto aborted = RequestStatus::kFinishedAborted;
  FinishRequests finish;
  finish.requests = {"A", "nobody"};
  const auto ended_from = [&](const Observation& before) {
    const Situations reached = Counting().count(finish, before, shown());
    EXPECT_EQ(Counting().count(FinishAllRequests{}, before, shown()), reached);
    return reached;
  };
  const Observation stores = with_transfer(shown(), "A", true);
  EXPECT_EQ(ended_from(with_request(stores, "A", running)),
            Situations{Reached::kAbortedWhileStoring});
  EXPECT_EQ(ended_from(with_request(stores, "A", aborted)), Situations{});
  EXPECT_EQ(ended_from(with_request(shown(), "A", running)), Situations{});
  const Observation loads = with_transfer(shown(), "A", false);
  EXPECT_EQ(ended_from(with_request(loads, "A", waiting)),
            Situations{Reached::kAbortedWhileLoading});
  EXPECT_EQ(ended_from(with_request(shown(), "A", waiting)), Situations{});

  Observation over = came_back();
  over.finished_recving.emplace() = {"A"};
  EXPECT_EQ(reported_as(over, with_request(shown(), "A", aborted)),
            Situations{Reached::kAbortedLoadFreed});
  EXPECT_EQ(reported_as(over, with_request(shown(), "A", waiting)), Situations{});
}

TEST(OffloadingReach, CountsResets) {
  Observation keyed = shown();
  keyed.keys.emplace()[1] = "key";
  Observation done = shown();
  done.success.emplace() = true;
  EXPECT_EQ(Counting().count(ResetPrefixCache{}, keyed, done), Situations{Reached::kResetDone});
  EXPECT_EQ(Counting().count(ResetPrefixCache{}, shown(), done), Situations{});
  Observation refused = shown();
  refused.success.emplace() = false;
  EXPECT_EQ(Counting().count(ResetPrefixCache{}, keyed, refused),
            Situations{Reached::kResetRefused});
}

TEST(OffloadingReach, CountsResetsOfTheCPUCache) {
  Observation done = shown();
  done.success.emplace() = true;
  const ResetPrefixCache reset{.reset_connector = true};
  EXPECT_EQ(Counting().count(reset, shown(), done), Situations{Reached::kCPUCacheReset});
  EXPECT_EQ(Counting(config_of("v0.19")).count(reset, shown(), done), Situations{});
  EXPECT_EQ(Counting().count(reset, with_transfer(shown(), "A", true), done),
            (Situations{Reached::kCPUCacheReset, Reached::kResetWithJobs}));
  EXPECT_EQ(Counting().count(reset, with_request(shown(), "A", RequestStatus::kWaitingForRemoteKVs),
                             done),
            (Situations{Reached::kCPUCacheReset, Reached::kResetWhileLoading}));
}

TEST(OffloadingReach, CountsReportsThatComeAgain) {
  EXPECT_EQ(Counting().count(ReportTransferAgain{}, shown(), shown()),
            Situations{Reached::kReportedAgain});
  EXPECT_EQ(Counting().count(AdvanceTransfer{}, shown(), shown()), Situations{});
}

TEST(OffloadingReach, CountsRefusals) {
  const std::vector<std::pair<ErrorCode, Reached>> refusals = {
      {ErrorCode::kUnknownRequest, Reached::kErrorUnknownRequest},
      {ErrorCode::kBadRange, Reached::kErrorBadRange},
      {ErrorCode::kAlreadyDeclared, Reached::kErrorAlreadyDeclared},
      {ErrorCode::kNoTokens, Reached::kErrorNoTokens},
      {ErrorCode::kBeyondModelLength, Reached::kErrorBeyondModelLength},
      {ErrorCode::kNotInConfig, Reached::kErrorNotInConfig},
      {ErrorCode::kNotInProfile, Reached::kErrorNotInProfile},
      {ErrorCode::kNoStepInFlight, Reached::kErrorNoStepInFlight},
      {ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight},
      {ErrorCode::kWrongTokenCount, Reached::kErrorWrongTokenCount},
      {ErrorCode::kUnknownJob, Reached::kErrorUnknownJob},
  };
  for (const auto& [error, reached] : refusals) {
    Observation refused = shown();
    refused.error = error;
    EXPECT_EQ(Counting().count(ReportTransferAgain{}, shown(), refused), Situations{reached});
  }
}

}  // namespace
}  // namespace kvfence::engine::offloading
