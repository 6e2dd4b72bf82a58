// Goal: each reachability goal of engines with a SimpleCPUOffloadConnector is counted in its
// situation and in no other. Method: commands between observations that are made by hand.

#include "properties/engine/simple/goals.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::simple {
namespace {

using Blocks = std::vector<BlockId>;
using Situations = std::vector<Reached>;

Config config_of(bool lazy_offload = false, std::uint32_t num_ranks = 1) {
  Config config;
  config.profile = "v0.23";
  config.num_gpu_blocks = 8;
  config.ranks = num_ranks;
  make_assembly(Assembly::kSimple, config);
  config.edit_connector<Record>().num_cpu_blocks = 4;
  config.edit_connector<Record>().lazy_offload = lazy_offload;
  return config;
}

/// Nobody, and empty pools of 8 and 4 blocks.
Observation shown() {
  Observation observation;
  observation.requests.emplace();
  observation.tables.emplace();
  observation.keys.emplace().resize(8);
  observation.ref_cnts.emplace().resize(8);
  observation.copies.emplace();
  observation.pins.emplace();
  observation.cpu_keys.emplace().resize(4);
  observation.cpu_free_queue.emplace();
  observation.cpu_ref_cnts.emplace().resize(4);
  observation.num_empty_cpu_blocks.emplace() = 3;
  observation.num_referenced_cpu_blocks.emplace() = 1;
  return observation;
}

/// A step of nobody, which answers like this.
Observation planned(Observation observation = shown()) {
  observation.scheduled.emplace();
  observation.load_gpu_blocks.emplace();
  observation.load_cpu_blocks.emplace();
  observation.load_requests.emplace();
  observation.store_gpu_blocks.emplace();
  observation.store_cpu_blocks.emplace();
  observation.need_flush.emplace() = false;
  return observation;
}

Observation with_request(Observation observation, std::string name, RequestStatus status,
                         std::uint32_t num_computed_tokens = 0, std::vector<Blocks> blocks = {{}}) {
  RequestState& state = observation.requests.emplace().emplace_back();
  state.id = name;
  state.status = status;
  state.num_computed_tokens = num_computed_tokens;
  kv_cache::RequestBlocks& table = observation.tables.emplace().emplace_back();
  table.request = std::move(name);
  static_cast<BlocksByGroup&>(table.blocks) = std::move(blocks);
  return observation;
}

Observation with_load(Observation observation, Blocks gpu_blocks, Blocks cpu_blocks,
                      std::vector<std::string> requests) {
  observation.load_event.emplace() = 0;
  observation.load_gpu_blocks.emplace() = std::move(gpu_blocks);
  observation.load_cpu_blocks.emplace() = std::move(cpu_blocks);
  observation.load_requests.emplace() = std::move(requests);
  return observation;
}

Observation with_store(Observation observation, Blocks gpu_blocks, Blocks cpu_blocks,
                       JobId event = 0) {
  observation.store_event.emplace() = event;
  observation.store_gpu_blocks.emplace() = std::move(gpu_blocks);
  observation.store_cpu_blocks.emplace() = std::move(cpu_blocks);
  for (BlockId block : *observation.store_gpu_blocks) {
    std::string& key = observation.keys.emplace()[block];
    if (key.empty()) key = std::to_string(block);
  }
  return observation;
}

Observation came_back(std::vector<Completed> stores = {}, std::vector<std::string> loads = {},
                      Observation observation = shown()) {
  observation.completed_jobs.emplace() = std::move(stores);
  observation.finished_recving.emplace() = std::move(loads);
  return observation;
}

/// Counts one command after another; what the last one added.
class Counting {
 public:
  explicit Counting(Config config = config_of()) : world_(fresh_world<EngineTarget>(config)) {
    reach_.start(config);
  }

  Situations count(const Command& command, const Observation& before, const Observation& after) {
    const Reach old = reach_;
    reach_.count(command, before, after, world_);
    return reached_between(old, reach_);
  }
  World& world() { return world_; }

 private:
  Reach reach_;
  World world_;
};

Situations reached_by(const Command& command, const Observation& before, const Observation& after,
                      const Config& config = config_of()) {
  return Counting(config).count(command, before, after);
}

TEST(SimpleOffloadReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(SimpleOffloadReach, CountsLoads) {
  const auto waiting = [](std::uint32_t num_computed_tokens, Blocks blocks) {
    return with_request(planned(), "A", RequestStatus::kWaitingForRemoteKVs, num_computed_tokens,
                        {std::move(blocks)});
  };
  EXPECT_EQ(reached_by(Schedule{}, shown(), planned()), Situations{});
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_load(waiting(4, {1, 2}), {1}, {1}, {"A"})),
            Situations{Reached::kLoad});
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_load(waiting(8, {1, 2}), {2}, {1}, {"A"})),
            (Situations{Reached::kLoad, Reached::kLoadBehindHit}));
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_load(planned(), {1, 2}, {1, 1}, {"A", "B"})),
            (Situations{Reached::kLoad, Reached::kLoadOfSeveral, Reached::kLoadsShareBlock}));
  Observation before = with_request(shown(), "A", RequestStatus::kPreempted);
  before.requests.emplace().front().num_preemptions = 1;
  EXPECT_EQ(reached_by(Schedule{}, before, with_load(waiting(4, {1, 2}), {1}, {1}, {"A"})),
            (Situations{Reached::kLoad, Reached::kLoadOfPreempted}));
}

TEST(SimpleOffloadReach, CountsLoadsOfSeveralGroups) {
  Config config = config_of();
  KVCacheSpec window;
  window.kind = KVCacheSpecKind::kSlidingWindow;
  window.block_size = 4;
  window.sliding_window = 4;
  config.groups.push_back(window);
  const Observation after =
      with_request(planned(), "A", RequestStatus::kWaitingForRemoteKVs, 8, {{1, 2}, {0, 4}});
  EXPECT_EQ(
      reached_by(Schedule{}, shown(), with_load(after, {1, 2, 4}, {1, 2, 3}, {"A"}), config),
      (Situations{Reached::kLoad, Reached::kSeveralGroupsLoad, Reached::kNullBlocksPassedOver}));
}

TEST(SimpleOffloadReach, CountsStores) {
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_store(planned(), {1}, {1})),
            Situations{Reached::kStore});
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_store(planned(), {1}, {1}), config_of(true)),
            Situations{Reached::kLazyStore});
  EXPECT_EQ(
      reached_by(Schedule{}, shown(), with_load(with_store(planned(), {1}, {1}), {2}, {2}, {"A"})),
      (Situations{Reached::kLoad, Reached::kStore, Reached::kStoreBesideLoad}));
  Observation full = shown();
  full.cpu_keys.emplace()[1] = "old";
  EXPECT_EQ(reached_by(Schedule{}, full, with_store(planned(), {1}, {1})),
            (Situations{Reached::kStore, Reached::kStoreEvicts}));
  Observation doubled = planned();
  doubled.keys.emplace()[1] = "same";
  doubled.keys.emplace()[2] = "same";
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_store(doubled, {1, 2}, {1, 2})),
            (Situations{Reached::kStore, Reached::kKeyStoredTwice}));
  const Observation two =
      with_request(with_request(planned(), "A", RequestStatus::kRunning, 4, {{1}}), "B",
                   RequestStatus::kRunning, 4, {{2}});
  EXPECT_EQ(reached_by(Schedule{}, shown(), with_store(two, {1, 2}, {1, 2})),
            (Situations{Reached::kStore, Reached::kStoreOfSeveral}));
}

TEST(SimpleOffloadReach, TellsDecodedBlocksFromThoseOfThePrompt) {
  AddRequest add;
  add.id = "A";
  add.tokens = {1, 2, 3, 4, 5};
  Counting counting;
  counting.world().apply(add);
  const Observation running = with_request(planned(), "A", RequestStatus::kRunning, 8, {{1, 2}});
  EXPECT_EQ(counting.count(Schedule{}, shown(), with_store(running, {1}, {1})),
            Situations{Reached::kStore});
  EXPECT_EQ(counting.count(Schedule{}, shown(), with_store(running, {2}, {2}, 1)),
            (Situations{Reached::kStore, Reached::kDecodedStored, Reached::kTwoStepsInFlight}));
}

TEST(SimpleOffloadReach, CountsWhatWasNotStored) {
  AddRequest add;
  add.id = "A";
  add.tokens = {1, 2, 3, 4, 5};
  Counting counting;
  counting.world().apply(add);
  const Observation before = with_request(shown(), "A", RequestStatus::kRunning, 4, {{1}});
  Observation after = with_request(planned(), "A", RequestStatus::kRunning, 5, {{1, 2}});
  after.scheduled.emplace().emplace_back().request = "A";
  after.keys.emplace()[1] = "key";
  EXPECT_EQ(counting.count(Schedule{}, before, after), Situations{}) << "there is room";
  after.num_empty_cpu_blocks.emplace() = 0;
  after.num_referenced_cpu_blocks.emplace() = 4;
  counting.count(Update{}, after, came_back());
  EXPECT_EQ(counting.count(Schedule{}, before, after), Situations{Reached::kStoreCutShort});
}

TEST(SimpleOffloadReach, CountsStoresUnderWay) {
  Counting counting(config_of(false, 2));
  const Observation running = with_request(shown(), "A", RequestStatus::kRunning, 4, {{1}});
  counting.count(Schedule{}, shown(), with_store(planned(running), {1}, {1}));
  EXPECT_EQ(counting.count(Update{}, running, came_back({}, {}, running)), Situations{});
  EXPECT_EQ(counting.count(Schedule{}, running, with_store(planned(running), {1}, {2}, 1)),
            (Situations{Reached::kStore, Reached::kStoredTwice}));
  EXPECT_EQ(counting.count(Update{}, running, came_back({{0, 1}}, {}, running)),
            Situations{Reached::kLateRank});
  counting.count(Schedule{}, running, planned(running));
  EXPECT_EQ(counting.count(Update{}, running, came_back({{0, 1}, {1, 2}}, {}, running)),
            Situations{});
  counting.count(Schedule{}, running, with_store(planned(running), {1}, {1}, 2));
  EXPECT_EQ(counting.count(Update{}, running, came_back()),
            Situations{Reached::kStoreOutlivesRequest});
}

TEST(SimpleOffloadReach, CountsPins) {
  Pin pin;
  pin.request = "A";
  pin.cpu_blocks = {1};
  Observation pinned = with_request(shown(), "A", RequestStatus::kWaiting);
  pinned.pins.emplace().push_back(pin);
  EXPECT_EQ(reached_by(Schedule{}, pinned, planned(pinned)), Situations{Reached::kPinStays});
  FinishRequests finish;
  finish.requests = {"A"};
  EXPECT_EQ(reached_by(finish, pinned, shown()), Situations{Reached::kPinFreedByAbort});
  EXPECT_EQ(reached_by(FinishAllRequests{}, pinned, shown()),
            Situations{Reached::kPinFreedByAbort});
}

TEST(SimpleOffloadReach, CountsFlushes) {
  Counting counting;
  Observation flushing = planned();
  flushing.need_flush.emplace() = true;
  EXPECT_EQ(counting.count(Schedule{}, shown(), flushing), Situations{Reached::kFlush});
  Observation copying = shown();
  copying.copies.emplace().emplace_back().progress = TransferProgress::kPart;
  EXPECT_EQ(counting.count(Update{}, copying, came_back()), Situations{Reached::kFlushEndsCopies});
  counting.count(Schedule{}, copying, planned());
  EXPECT_EQ(counting.count(Update{}, copying, came_back()), Situations{});
}

TEST(SimpleOffloadReach, CountsWhatEndsFromOutside) {
  const Observation loading =
      with_request(shown(), "A", RequestStatus::kWaitingForRemoteKVs, 4, {{1}});
  FinishRequests finish;
  finish.requests = {"A", "nobody"};
  EXPECT_EQ(reached_by(finish, loading, shown()), Situations{Reached::kAbortedWhileLoading});
  const Observation aborted = with_request(shown(), "A", RequestStatus::kFinishedAborted);
  EXPECT_EQ(reached_by(finish, aborted, shown()), Situations{});
  EXPECT_EQ(reached_by(Update{}, aborted, came_back({}, {"A"})),
            Situations{Reached::kAbortedLoadFreed});
  EXPECT_EQ(reached_by(Update{}, loading, came_back({}, {"A"})), Situations{});
}

TEST(SimpleOffloadReach, CountsTheCursor) {
  Observation before = shown();
  before.lazy_cursor.emplace() = 3;
  Observation after = planned();
  after.lazy_cursor.emplace() = 5;
  EXPECT_EQ(reached_by(Schedule{}, before, after, config_of(true)), Situations{});
  before.ref_cnts.emplace()[3] = 1;
  EXPECT_EQ(reached_by(Schedule{}, before, after, config_of(true)),
            Situations{Reached::kCursorForgotten});
}

TEST(SimpleOffloadReach, CountsResets) {
  Observation keyed = shown();
  keyed.keys.emplace()[1] = "key";
  Observation done = shown();
  done.success.emplace() = true;
  EXPECT_EQ(reached_by(ResetPrefixCache{}, keyed, done), Situations{Reached::kResetDone});
  EXPECT_EQ(reached_by(ResetPrefixCache{}, shown(), done), Situations{});
  done.success.emplace() = false;
  EXPECT_EQ(reached_by(ResetPrefixCache{.reset_connector = true}, shown(), done),
            (Situations{Reached::kResetRefused, Reached::kResetOfConnector}));
}

TEST(SimpleOffloadReach, CountsRefusals) {
  const std::vector<std::pair<ErrorCode, Reached>> refusals = {
      {ErrorCode::kUnknownRequest, Reached::kErrorUnknownRequest},
      {ErrorCode::kBadRange, Reached::kErrorBadRange},
      {ErrorCode::kAlreadyDeclared, Reached::kErrorAlreadyDeclared},
      {ErrorCode::kNoTokens, Reached::kErrorNoTokens},
      {ErrorCode::kBeyondModelLength, Reached::kErrorBeyondModelLength},
      {ErrorCode::kNotInConfig, Reached::kErrorNotInConfig},
      {ErrorCode::kNoStepInFlight, Reached::kErrorNoStepInFlight},
      {ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight},
      {ErrorCode::kWrongTokenCount, Reached::kErrorWrongTokenCount},
      {ErrorCode::kUnknownJob, Reached::kErrorUnknownJob},
  };
  for (const auto& [error, reached] : refusals) {
    Observation refused = shown();
    refused.error = error;
    EXPECT_EQ(reached_by(Update{}, shown(), refused), Situations{reached});
  }
}

}  // namespace
}  // namespace kvfence::engine::simple
