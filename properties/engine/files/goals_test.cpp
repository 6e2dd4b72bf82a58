// Goal: each reachability goal of engines with a synchronous connector is counted in its situation
// and in no other. Method: commands between observations that are made by hand. Blocks have 4
// tokens.

#include "properties/engine/files/goals.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::files {
namespace {

using Blocks = std::vector<BlockId>;
using Situations = std::vector<Reached>;
using Tokens = std::vector<TokenId>;

Config config_of(ConnectorRecord connector = ExampleRecord(), std::uint32_t num_ranks = 1) {
  Config config;
  config.profile = "v0.23";
  config.num_gpu_blocks = 8;
  config.connectors = {std::move(connector)};
  config.ranks = num_ranks;
  return config;
}

/// 1, 2, 3, ...
Tokens counting(std::uint32_t num_tokens) {
  Tokens tokens;
  for (TokenId token = 1; token <= num_tokens; ++token) tokens.push_back(token);
  return tokens;
}

/// Nobody, an empty pool of 8 blocks, and nothing in storage.
Observation shown() {
  Observation observation;
  observation.num_engine_starts.emplace() = 1;
  observation.requests.emplace();
  observation.tables.emplace();
  observation.keys.emplace().resize(8);
  observation.ref_cnts.emplace().resize(8);
  observation.filled_requests.emplace();
  observation.folders.emplace();
  observation.files.emplace();
  return observation;
}

/// A step of nobody, which answers like this.
Observation planned(Observation observation = shown()) {
  observation.scheduled.emplace();
  observation.new_reqs.emplace();
  observation.cached_reqs.emplace();
  observation.preempted.emplace();
  observation.file_transfers.emplace();
  observation.fills.emplace();
  return observation;
}

Observation with_resumed(Observation observation, const std::string& name) {
  ScheduledCached& resumed = observation.cached_reqs.emplace().emplace_back();
  resumed.request = name;
  resumed.resumed = true;
  return observation;
}

Observation with_transfer(Observation observation, const std::string& name, bool store,
                          std::uint32_t num_tokens, Blocks blocks) {
  observation.file_transfers.emplace().push_back(
      {name, store, folder_name(counting(num_tokens)), num_tokens, std::move(blocks)});
  return observation;
}

Observation with_fill(Observation observation, const std::string& name, std::uint32_t num_tokens,
                      std::vector<Blocks> blocks) {
  Fill& fill = observation.fills.emplace().emplace_back();
  fill.request = name;
  fill.num_tokens = num_tokens;
  static_cast<BlocksByGroup&>(fill.blocks) = std::move(blocks);
  return observation;
}

Observation with_request(Observation observation, std::string name, Blocks blocks = {}) {
  observation.requests.emplace().emplace_back().id = name;
  kv_cache::RequestBlocks& table = observation.tables.emplace().emplace_back();
  table.request = std::move(name);
  static_cast<BlocksByGroup&>(table.blocks) = {std::move(blocks)};
  return observation;
}

Observation with_folder(Observation observation, std::uint32_t num_tokens) {
  observation.folders.emplace().push_back(folder_name(counting(num_tokens)));
  return observation;
}

Observation came_back(Observation observation = shown()) {
  observation.loaded.emplace();
  observation.saved.emplace();
  observation.filled.emplace();
  observation.failed.emplace();
  return observation;
}

/// The file of so many tokens was read or written.
FileCopy file_of(const std::string& name, std::uint32_t num_tokens) {
  return {name, 0, folder_name(counting(num_tokens)), {}, std::vector<KVSymbol>(num_tokens)};
}

Observation failed_at(Observation observation, const std::string& name, bool store,
                      std::uint32_t layer = 0) {
  observation.failed.emplace().push_back({name, store, layer, folder_name(counting(4))});
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

  /// Prompts of 1, 2, 3, ...
  Counting& add(std::string name, std::uint32_t num_tokens) {
    AddRequest added;
    added.id = std::move(name);
    added.tokens = counting(num_tokens);
    EXPECT_EQ(count(added, shown(), shown()), Situations{});
    return *this;
  }

 private:
  Reach reach_;
  World world_;
};

TEST(SynchronousConnectorReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(SynchronousConnectorReach, CountsStores) {
  const Observation store = with_transfer(planned(), "A", true, 4, {1});
  EXPECT_EQ(Counting().add("A", 6).count(Schedule{}, shown(), with_new(store, "A", 0, 6)),
            Situations{});
  EXPECT_EQ(Counting().add("A", 6).count(Schedule{}, shown(), with_new(store, "A", 4, 2)),
            Situations{Reached::kStoreOfHit});
  EXPECT_EQ(Counting().add("A", 6).add("B", 6).count(
                Schedule{}, shown(),
                with_new(with_new(with_transfer(store, "B", true, 4, {2}), "A", 0, 6), "B", 0, 6)),
            (Situations{Reached::kStoreOfSeveral, Reached::kFolderStoredTwice}));
  const Observation nothing = with_transfer(planned(), "A", true, 0, {});
  EXPECT_EQ(Counting().add("A", 2).count(Schedule{}, shown(), with_new(nothing, "A", 0, 2)),
            Situations{Reached::kStoreOfNothing});
}

TEST(SynchronousConnectorReach, CountsWhatIsNotStored) {
  EXPECT_EQ(Counting().add("A", 10).count(Schedule{}, shown(), with_new(planned(), "A", 0, 4)),
            (Situations{Reached::kPartNotStored, Reached::kChunk}));
  EXPECT_EQ(Counting().add("A", 9).count(Schedule{}, with_folder(shown(), 8),
                                         with_new(planned(), "A", 0, 9)),
            Situations{Reached::kOwnFolderNotFound});
  EXPECT_EQ(Counting().add("A", 9).count(Schedule{}, with_folder(shown(), 4),
                                         with_new(planned(), "A", 8, 1)),
            Situations{Reached::kHitBeyondMatch});
  EXPECT_EQ(Counting().add("A", 2).count(Schedule{}, with_folder(shown(), 0),
                                         with_new(planned(), "A", 0, 2)),
            Situations{Reached::kMatchOfNothing});
}

TEST(SynchronousConnectorReach, CountsLoads) {
  const Observation load = with_transfer(planned(), "A", false, 4, {1});
  EXPECT_EQ(
      Counting().add("A", 6).count(Schedule{}, with_folder(shown(), 4), with_new(load, "A", 4, 2)),
      Situations{});
  EXPECT_EQ(Counting().count(Schedule{}, shown(), with_resumed(load, "A")),
            Situations{Reached::kLoadOfResumed});
  EXPECT_EQ(Counting().count(Schedule{}, shown(), with_transfer(load, "B", false, 4, {2})),
            Situations{Reached::kLoadOfSeveral});
  EXPECT_EQ(Counting().add("B", 6).count(
                Schedule{}, shown(), with_new(with_transfer(load, "B", true, 4, {2}), "B", 0, 6)),
            Situations{Reached::kLoadBesideStore});
  Observation keyed = shown();
  keyed.keys.emplace()[1] = "key";
  Observation kept = load;
  kept.keys.emplace()[1] = "key";
  EXPECT_EQ(Counting().count(Schedule{}, keyed, kept), Situations{Reached::kLoadBehindHit});
}

TEST(SynchronousConnectorReach, CountsWhatFilesAreReadAndWritten) {
  Counting counting_of_a;
  counting_of_a.add("A", 6).add("B", 6);
  Observation saved = came_back();
  saved.saved.emplace().push_back(file_of("A", 4));
  Observation with_a = with_request(shown(), "A");
  EXPECT_EQ(counting_of_a.count(Update{}, with_a, saved), Situations{Reached::kStore});
  EXPECT_EQ(counting_of_a.count(Update{}, shown(), saved),
            (Situations{Reached::kStore, Reached::kStoreOfGone}));
  with_a.files.emplace().push_back({folder_name(counting(4)), 0, true, {}});
  EXPECT_EQ(counting_of_a.count(Update{}, with_a, saved),
            (Situations{Reached::kStore, Reached::kFileWrittenAgain}));

  Observation loaded = came_back();
  loaded.loaded.emplace().push_back(file_of("B", 4));
  EXPECT_EQ(counting_of_a.count(Update{}, shown(), loaded),
            (Situations{Reached::kLoad, Reached::kLoadOfOwnFile}));
  Observation second_engine = shown();
  second_engine.num_engine_starts.emplace() = 2;
  EXPECT_EQ(counting_of_a.count(Update{}, second_engine, loaded),
            (Situations{Reached::kLoad, Reached::kLoadOfOwnFile, Reached::kLoadByNewEngine}));
  EXPECT_EQ(counting_of_a.count(WriteEntry{counting(4), 1}, shown(), shown()), Situations{});
  EXPECT_EQ(counting_of_a.count(Update{}, shown(), loaded),
            (Situations{Reached::kLoad, Reached::kLoadOfForeignFile}));
  Observation outputs = came_back();
  outputs.loaded.emplace().push_back(file_of("B", 8));
  EXPECT_EQ(counting_of_a.count(Update{}, shown(), outputs),
            (Situations{Reached::kLoad, Reached::kLoadOfOutputs}));
}

TEST(SynchronousConnectorReach, CountsFailures) {
  EXPECT_EQ(Counting().count(Update{}, shown(), failed_at(came_back(), "A", true)),
            Situations{Reached::kFailedSave});
  EXPECT_EQ(Counting(config_of(ExampleRecord(), 2))
                .count(Update{}, shown(), failed_at(came_back(), "A", false, 1)),
            (Situations{Reached::kFailedLoad, Reached::kFailedOnLaterRank}));
  Observation behind = failed_at(came_back(), "A", false);
  behind.loaded.emplace().push_back(file_of("B", 4));
  EXPECT_EQ(Counting().count(Update{}, shown(), behind),
            (Situations{Reached::kLoad, Reached::kFailedLoad, Reached::kFailedBehindOthers}));
  Observation second_engine = shown();
  second_engine.num_engine_starts.emplace() = 2;
  EXPECT_EQ(Counting().count(Update{}, second_engine, failed_at(came_back(), "A", true)),
            (Situations{Reached::kFailedSave, Reached::kStartedAgain}));
  // What a run before this one left there is nothing that this one has shown.
  second_engine.num_engine_starts.reset();
  EXPECT_EQ(Counting().count(Update{}, second_engine, failed_at(came_back(), "A", true)),
            Situations{Reached::kFailedSave});
  EXPECT_EQ(Counting().count(Update{}, shown(), failed_at(with_folder(came_back(), 4), "A", false)),
            (Situations{Reached::kFailedLoad, Reached::kFolderMadeByLoad}));
  Observation half = with_folder(shown(), 4);
  half.files.emplace().push_back({folder_name(counting(4)), 0, false, {}});
  EXPECT_EQ(Counting().count(Update{}, half, failed_at(with_folder(came_back(), 4), "A", false)),
            (Situations{Reached::kFailedLoad, Reached::kHalfFile}));
}

TEST(SynchronousConnectorReach, CountsFailuresOfStepsInFlight) {
  Counting counting_of_two;
  counting_of_two.count(Schedule{}, shown(), planned());
  EXPECT_EQ(counting_of_two.count(Schedule{}, shown(), planned()),
            Situations{Reached::kTwoStepsInFlight});
  EXPECT_EQ(counting_of_two.count(Update{}, shown(), failed_at(came_back(), "A", true)),
            (Situations{Reached::kFailedSave, Reached::kFailedWithStepBehind}));
  EXPECT_EQ(counting_of_two.count(Schedule{}, shown(), planned()), Situations{});

  Counting counting_of_resumed;
  counting_of_resumed.count(Schedule{}, shown(),
                            with_resumed(with_transfer(planned(), "A", false, 4, {1}), "A"));
  EXPECT_EQ(counting_of_resumed.count(Update{}, shown(), failed_at(came_back(), "A", false)),
            (Situations{Reached::kFailedLoad, Reached::kFailedLoadOfResumed}));
}

TEST(SynchronousConnectorReach, CountsWhatHappensToFiles) {
  EXPECT_EQ(
      Counting(config_of(ExampleRecord(), 2)).count(WriteEntry{counting(4), 1}, shown(), shown()),
      Situations{Reached::kPartlyWrittenEntry});
  EXPECT_EQ(Counting().count(WriteEntry{counting(4), 0}, shown(), shown()), Situations{});
  EXPECT_EQ(Counting().count(RemoveEntry{}, shown(), shown()), Situations{Reached::kEntryRemoved});
  EXPECT_EQ(Counting().count(RemoveFile{}, shown(), shown()), Situations{Reached::kFileRemoved});
  EXPECT_EQ(Counting().count(TruncateFile{}, shown(), shown()),
            Situations{Reached::kFileTruncated});
  EXPECT_EQ(Counting().count(FailNextFile{}, shown(), shown()), Situations{});
}

TEST(SynchronousConnectorReach, CountsFills) {
  const Config config = config_of(DecodeBenchRecord());
  const Observation fill = with_new(with_fill(planned(), "A", 5, {{1, 2}}), "A", 5, 1);
  EXPECT_EQ(Counting(config).add("A", 6).count(Schedule{}, shown(), fill),
            Situations{Reached::kFill});
  EXPECT_EQ(Counting(config).add("A", 6).count(
                Schedule{}, shown(), with_new(with_fill(planned(), "A", 1, {{1}}), "A", 5, 1)),
            (Situations{Reached::kFill, Reached::kFillBehindHit}));
  EXPECT_EQ(Counting(config).add("A", 6).count(Schedule{}, shown(), with_fill(fill, "B", 4, {{3}})),
            (Situations{Reached::kFill, Reached::kFillOfSeveral}));
  EXPECT_EQ(Counting(config).count(Schedule{}, shown(), with_fill(planned(), "A", 4, {{1}, {2}})),
            (Situations{Reached::kFill, Reached::kFillOfSeveralGroups}));
  EXPECT_EQ(Counting(config).count(Schedule{}, shown(), with_fill(planned(), "A", 4, {{0}})),
            (Situations{Reached::kFill, Reached::kNullBlockFilled}));
  EXPECT_EQ(Counting(config).add("A", 6).count(
                Schedule{}, shown(), with_request(with_request(fill, "A", {1, 2}), "B", {2})),
            (Situations{Reached::kFill, Reached::kSharedBlockFilled}));
  EXPECT_EQ(Counting(config).add("A", 5).count(Schedule{}, shown(), with_new(planned(), "A", 4, 1)),
            Situations{Reached::kNothingToFill});
}

TEST(SynchronousConnectorReach, CountsFillsOfResumedRequests) {
  Counting counting_of_a(config_of(DecodeBenchRecord()));
  const Observation fill = with_fill(planned(), "A", 4, {{1}});
  EXPECT_EQ(counting_of_a.count(Schedule{}, shown(), with_resumed(fill, "A")),
            (Situations{Reached::kFill, Reached::kFillOfResumed}));
  counting_of_a.count(Update{}, shown(), came_back());
  EXPECT_EQ(counting_of_a.count(Schedule{}, shown(), with_resumed(planned(), "A")),
            Situations{Reached::kNotFilledAgain});
  Observation filled = shown();
  filled.filled_requests.emplace() = {"A"};
  EXPECT_EQ(counting_of_a.count(Update{}, filled, came_back()), Situations{Reached::kFilledEnds});
}

TEST(SynchronousConnectorReach, CountsVictimsAndWhatEndsFromOutside) {
  Observation victim = planned();
  victim.preempted.emplace() = {"A"};
  EXPECT_EQ(Counting().count(Schedule{}, shown(), victim), Situations{Reached::kPreempted});
  Counting counting_of_a;
  FinishRequests finish;
  finish.requests = {"A", "nobody"};
  const Observation there = with_request(shown(), "A");
  EXPECT_EQ(counting_of_a.count(finish, there, shown()), Situations{});
  Observation step = planned();
  step.scheduled.emplace().emplace_back().request = "A";
  counting_of_a.count(Schedule{}, there, step);
  EXPECT_EQ(counting_of_a.count(finish, there, shown()), Situations{Reached::kAbortedInFlight});
  EXPECT_EQ(counting_of_a.count(FinishAllRequests{}, there, shown()),
            Situations{Reached::kAbortedInFlight});
}

TEST(SynchronousConnectorReach, CountsResets) {
  Observation keyed = shown();
  keyed.keys.emplace()[1] = "key";
  Observation done = shown();
  done.success.emplace() = true;
  EXPECT_EQ(Counting().count(ResetPrefixCache{}, keyed, done), Situations{Reached::kResetDone});
  EXPECT_EQ(Counting().count(ResetPrefixCache{}, shown(), done), Situations{});
  done.success.emplace() = false;
  EXPECT_EQ(Counting().count(ResetPrefixCache{.reset_connector = true}, shown(), done),
            (Situations{Reached::kResetRefused, Reached::kResetOfConnector}));
}

TEST(SynchronousConnectorReach, CountsRefusals) {
  const std::vector<std::pair<ErrorCode, Reached>> refusals = {
      {ErrorCode::kUnknownRequest, Reached::kErrorUnknownRequest},
      {ErrorCode::kUnknownKey, Reached::kErrorUnknownKey},
      {ErrorCode::kBadRange, Reached::kErrorBadRange},
      {ErrorCode::kAlreadyDeclared, Reached::kErrorAlreadyDeclared},
      {ErrorCode::kNoTokens, Reached::kErrorNoTokens},
      {ErrorCode::kBeyondModelLength, Reached::kErrorBeyondModelLength},
      {ErrorCode::kNotInConfig, Reached::kErrorNotInConfig},
      {ErrorCode::kNoStepInFlight, Reached::kErrorNoStepInFlight},
      {ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight},
      {ErrorCode::kWrongTokenCount, Reached::kErrorWrongTokenCount},
  };
  for (const auto& [error, reached] : refusals) {
    Observation refused = shown();
    refused.error = error;
    EXPECT_EQ(Counting().count(Update{}, shown(), refused), Situations{reached});
  }
}

}  // namespace
}  // namespace kvfence::engine::files
