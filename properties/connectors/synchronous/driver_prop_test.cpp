// Lives of an engine with a synchronous connector, on the reference: what is stored, loaded and
// filled, and what a file that fails does to the engine. Blocks have 4 tokens.
#include "properties/connectors/synchronous/driver.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "reference/scheduler/scheduler.h"
#include "reference/connectors/synchronous/shared_storage.h"
#include "reference/connectors/synchronous/synchronous_connector.h"

namespace kvfence {
namespace {

using synchronous_connector::AddRequest;
using synchronous_connector::Command;
using synchronous_connector::Config;
using synchronous_connector::FailedFile;
using synchronous_connector::FailNext;
using synchronous_connector::FinishRequests;
using synchronous_connector::Observation;
using synchronous_connector::RemoveEntry;
using synchronous_connector::RemoveFile;
using synchronous_connector::ResetPrefixCache;
using synchronous_connector::Sample;
using synchronous_connector::Schedule;
using synchronous_connector::TruncateFile;
using synchronous_connector::Update;
using synchronous_connector::World;
using synchronous_connector::WriteEntry;

using Blocks = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Symbols = std::vector<KVSymbol>;
using Tokens = std::vector<TokenId>;

struct Side {
  using Scheduler = reference::Scheduler;
  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  std::unique_ptr<SharedStorage> make_storage(const SynchronousConnectorSpec&) const {
    return reference::make_shared_storage();
  }
  std::unique_ptr<SynchronousConnectorScheduler> make_connector(
      const SynchronousConnectorSpec& spec, SharedStorage& storage) const {
    return reference::make_synchronous_connector_scheduler(spec, storage);
  }
  std::unique_ptr<SynchronousConnectorWorker> make_worker(const SynchronousConnectorSpec& spec,
                                                          std::uint32_t,
                                                          SharedStorage& storage) const {
    return reference::make_synchronous_connector_worker(spec, storage);
  }
};

Config config_of(std::string kv_connector, std::string profile = "v0.23") {
  Config config;
  config.kv_connector = std::move(kv_connector);
  config.profile = std::move(profile);
  config.enable_kv_cache_events = false;
  return config;
}

/// A driver and its world.
class Engine {
 public:
  explicit Engine(const Config& config)
      : driver_("synchronous", Side{}), world_(SynchronousConnectorTarget::make_world(config)) {
    const auto invalid = SynchronousConnectorTarget::validate(config, "", {});
    EXPECT_FALSE(invalid) << invalid->found << ": " << invalid->expected;
    EXPECT_FALSE(driver_.reset(config));
  }

  const Observation& submit(const Command& command) {
    world_.apply(command);
    EXPECT_FALSE(driver_.submit(command, world_, Observe::kState));
    EXPECT_FALSE(driver_.collect(seen_));
    return seen_;
  }
  /// A step that is planned and comes back.
  const Observation& step() {
    submit(Schedule{});
    return submit(Update{});
  }
  const Observation& seen() const { return seen_; }

 private:
  SynchronousConnectorDriver<Side> driver_;
  World world_;
  Observation seen_;
};

/// 1, 2, 3, ...
Tokens counting(std::uint32_t num_tokens) {
  Tokens tokens;
  for (TokenId token = 1; token <= num_tokens; ++token) tokens.push_back(token);
  return tokens;
}

AddRequest request(std::string id, std::uint32_t num_tokens, std::uint32_t max_tokens = 4) {
  AddRequest added;
  added.id = std::move(id);
  added.tokens = counting(num_tokens);
  added.max_tokens = max_tokens;
  return added;
}

Symbols symbols_of(std::uint32_t layer, std::uint32_t num_blocks) {
  Symbols symbols;
  for (std::uint32_t end = 1; end <= 4 * num_blocks; ++end) {
    symbols.push_back(symbol_of(layer, counting(end)));
  }
  return symbols;
}

TEST(SynchronousConnectorDriver, WhatIsStoredIsLoadedAgain) {
  Config config = config_of("example");
  config.world_size = 2;
  config.num_layers = 2;
  Engine run(config);
  run.submit(request("A", 10));
  const Observation& planned = run.submit(Schedule{});
  ASSERT_EQ(planned.transfers->size(), 1u);
  EXPECT_TRUE(planned.transfers->front().store);
  EXPECT_TRUE(planned.folders->empty());
  run.submit(Update{});
  ASSERT_EQ(run.seen().saved->size(), 4u);
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ((*run.seen().saved)[layer].layer, layer);
    EXPECT_EQ((*run.seen().saved)[layer].symbols, symbols_of(layer, 2));
  }
  EXPECT_EQ(*run.seen().folders, Names({folder_name(counting(8))}));
  FinishRequests abort;
  abort.requests = {"A"};
  run.submit(abort);
  EXPECT_TRUE(*run.submit(ResetPrefixCache{}).success);

  run.submit(request("B", 12));
  run.submit(Schedule{});
  EXPECT_EQ(run.seen().new_reqs->front().num_computed_tokens, 8u);
  EXPECT_FALSE(run.seen().transfers->front().store);
  run.submit(Update{});
  ASSERT_EQ(run.seen().loaded->size(), 4u);
  EXPECT_EQ((*run.seen().loaded)[3].symbols, symbols_of(3, 2));
  EXPECT_TRUE(run.seen().failed->empty());
  const Blocks table = run.seen().tables->front().blocks.front();
  EXPECT_EQ((*run.seen().symbols)[3][4 * table[2] + 3], symbol_of(3, counting(12)));
}

TEST(SynchronousConnectorDriver, APromptOfWholeBlocksAndOneTokenLooksForWhatNobodyWrote) {
  Engine run(config_of("example"));
  WriteEntry entry;
  entry.tokens = counting(4);
  entry.num_files = 1;
  EXPECT_EQ(run.submit(entry).error, ErrorCode::kNone);
  run.submit(request("A", 9));
  run.submit(Schedule{});
  EXPECT_EQ(run.seen().new_reqs->front().num_computed_tokens, 4u);
  EXPECT_EQ(run.seen().transfers->front().num_tokens, 8u);

  run.submit(Update{});

  EXPECT_EQ(*run.seen().failed, std::vector({FailedFile{"A", false, 0, folder_name(counting(8))}}));
  EXPECT_EQ(run.seen().num_engine_starts, 2u);
  EXPECT_EQ(run.seen().folders->size(), 2u) << "looking for it made its folder";
}

TEST(SynchronousConnectorDriver, AFailedFileEndsTheEngineAndNotItsFiles) {
  Config config = config_of("example");
  config.num_layers = 3;
  config.max_concurrent_batches = 2;
  Engine run(config);
  FailNext fault;
  fault.layer = 1;
  EXPECT_EQ(run.submit(fault).error, ErrorCode::kNone);
  run.submit(request("A", 10));
  run.submit(Schedule{});
  run.submit(request("B", 30));
  run.submit(Schedule{});

  run.submit(Update{});

  EXPECT_EQ(*run.seen().failed, std::vector({FailedFile{"A", true, 1, folder_name(counting(8))}}));
  EXPECT_EQ(run.seen().saved->size(), 1u);
  EXPECT_FALSE(run.seen().outputs.has_value());
  EXPECT_EQ(run.seen().num_engine_starts, 2u);
  EXPECT_EQ(run.seen().num_unfinished, 0u);
  EXPECT_EQ(run.seen().num_referenced_blocks, 1u);
  EXPECT_TRUE(run.seen().requests->empty());
  EXPECT_EQ(run.submit(Update{}).error, ErrorCode::kNoStepInFlight);
  ASSERT_EQ(run.seen().files->size(), 2u);
  EXPECT_TRUE((*run.seen().files)[0].whole);
  EXPECT_FALSE((*run.seen().files)[1].whole);
  EXPECT_EQ((*run.seen().symbols)[0], Symbols(16 * 4, kNothingComputed));
  FinishRequests abort;
  abort.requests = {"B"};
  EXPECT_EQ(run.submit(abort).error, ErrorCode::kNone) << "it is gone";
  EXPECT_EQ(run.submit(request("A", 10)).error, ErrorCode::kAlreadyDeclared);

  run.submit(request("C", 10));
  run.step();
  ASSERT_EQ(run.seen().failed->size(), 1u) << "half an entry is a hit";
  EXPECT_EQ(run.seen().failed->front(), (FailedFile{"C", false, 1, folder_name(counting(8))}));
  RemoveEntry removal;
  removal.tokens = counting(8);
  EXPECT_EQ(run.submit(removal).error, ErrorCode::kNone);
  run.submit(request("D", 10));
  run.step();
  EXPECT_TRUE(run.seen().failed->empty());
  EXPECT_EQ(run.seen().saved->size(), 3u);
  EXPECT_EQ(run.seen().num_engine_starts, 3u);
}

TEST(SynchronousConnectorDriver, TheRanksBehindTheOneThatFailsDoNothing) {
  Config config = config_of("example");
  config.world_size = 2;
  Engine run(config);
  WriteEntry entry;
  entry.tokens = counting(8);
  entry.num_files = 2;
  run.submit(entry);
  RemoveFile removal;
  removal.tokens = counting(8);
  EXPECT_EQ(run.submit(removal).error, ErrorCode::kNone);
  run.submit(request("A", 10));
  run.step();
  EXPECT_EQ(run.seen().failed->front().layer, 0u);
  EXPECT_TRUE(run.seen().loaded->empty());
}

TEST(SynchronousConnectorDriver, ALaterFileMayFail) {
  Config config = config_of("example");
  config.world_size = 2;
  Engine run(config);
  WriteEntry entry;
  entry.tokens = counting(8);
  entry.num_files = 2;
  run.submit(entry);
  TruncateFile truncation;
  truncation.tokens = counting(8);
  truncation.layer = 1;
  EXPECT_EQ(run.submit(truncation).error, ErrorCode::kNone);
  run.submit(request("A", 10));
  run.step();
  EXPECT_EQ(run.seen().failed->front().layer, 1u);
  EXPECT_EQ(run.seen().loaded->size(), 1u);
}

TEST(SynchronousConnectorDriver, RefusesWhatIsNotThere) {
  Engine run(config_of("example"));
  WriteEntry entry;
  entry.tokens = counting(5);
  EXPECT_EQ(run.submit(entry).error, ErrorCode::kBadRange);
  entry.num_files = 2;
  EXPECT_EQ(run.submit(entry).error, ErrorCode::kNotInConfig);
  RemoveFile removal;
  EXPECT_EQ(run.submit(removal).error, ErrorCode::kUnknownKey);
  removal.layer = 1;
  EXPECT_EQ(run.submit(removal).error, ErrorCode::kNotInConfig);
  TruncateFile truncation;
  EXPECT_EQ(run.submit(truncation).error, ErrorCode::kUnknownKey);
  truncation.layer = 1;
  EXPECT_EQ(run.submit(truncation).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(run.submit(RemoveEntry{}).error, ErrorCode::kUnknownKey);
  FailNext fault;
  fault.layer = 1;
  EXPECT_EQ(run.submit(fault).error, ErrorCode::kNotInConfig);
  EXPECT_TRUE(run.seen().folders->empty());
  Engine bench(config_of("decode_bench"));
  EXPECT_EQ(bench.submit(WriteEntry{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.submit(RemoveEntry{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.submit(RemoveFile{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.submit(TruncateFile{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.submit(FailNext{}).error, ErrorCode::kNotInConfig);
}

TEST(SynchronousConnectorDriver, RefusesAStepBeforeItTouchesFiles) {
  Engine run(config_of("example"));
  EXPECT_EQ(run.submit(Update{}).error, ErrorCode::kNoStepInFlight);
  run.submit(request("A", 10));
  run.submit(Schedule{});
  Update update;
  update.samples = {Sample{"A", {1, 2}}};
  EXPECT_EQ(run.submit(update).error, ErrorCode::kWrongTokenCount);
  update.samples = {Sample{"A", {}}};
  EXPECT_EQ(run.submit(update).error, ErrorCode::kWrongTokenCount);
  update.samples = {Sample{"B", {1}}};
  EXPECT_EQ(run.submit(update).error, ErrorCode::kUnknownRequest);
  EXPECT_TRUE(run.seen().folders->empty());
  update.samples = {Sample{"A", {7}}};
  EXPECT_EQ(run.submit(update).error, ErrorCode::kNone);
  EXPECT_EQ(run.seen().outputs->front().tokens, Tokens({7}));
}

TEST(SynchronousConnectorDriver, AnAbortedRequestIsStoredWithTheStepThatHasIt) {
  Engine run(config_of("example"));
  run.submit(request("A", 10));
  run.submit(Schedule{});
  FinishRequests abort;
  abort.requests = {"A"};
  run.submit(abort);

  run.submit(Update{});

  ASSERT_EQ(run.seen().saved->size(), 1u);
  EXPECT_EQ(run.seen().saved->front().request, "A");
  EXPECT_EQ(run.seen().saved->front().symbols, symbols_of(0, 2));
}

TEST(SynchronousConnectorDriver, APreemptedRequestLoadsWhatNobodyWrote) {
  Config config = config_of("example");
  config.num_gpu_blocks = 8;
  config.enable_caching = false;
  Engine run(config);
  run.submit(request("A", 10, /*max_tokens=*/20));
  run.submit(request("B", 10, /*max_tokens=*/20));
  run.step();
  ASSERT_EQ(run.seen().saved->size(), 2u) << "one file, written twice";
  EXPECT_EQ(run.seen().files->size(), 1u);
  bool was_preempted = false;
  for (int step = 0; step < 30 && run.seen().num_engine_starts == 1; ++step) {
    run.submit(Schedule{});
    was_preempted = was_preempted || !run.seen().preempted->empty();
    run.submit(Update{});
  }
  EXPECT_TRUE(was_preempted);
  ASSERT_FALSE(run.seen().failed->empty());
  EXPECT_EQ(run.seen().failed->front().request, "B");
  EXPECT_FALSE(run.seen().failed->front().store);
}

TEST(SynchronousConnectorDriver, DecodeBenchFillsOnce) {
  Config config = config_of("decode_bench");
  config.num_layers = 2;
  Engine run(config);
  run.submit(request("A", 10));
  run.submit(Schedule{});
  EXPECT_EQ(run.seen().new_reqs->front().num_computed_tokens, 9u);
  ASSERT_EQ(run.seen().fills->size(), 1u);
  EXPECT_EQ(run.seen().fills->front().num_tokens, 9u);
  EXPECT_EQ(*run.seen().filled_requests, Names({"A"}));
  const Blocks blocks = run.seen().fills->front().blocks.front();
  EXPECT_EQ(blocks.size(), 3u);

  run.submit(Update{});

  EXPECT_EQ(run.seen().filled->size(), 2u);
  EXPECT_EQ((*run.seen().symbols)[1][4 * blocks[0] + 3], kFilledWithDummies);
  EXPECT_EQ((*run.seen().symbols)[1][4 * blocks[2] + 1], symbol_behind(kFilledWithDummies, 10));
  EXPECT_TRUE(run.submit(Schedule{}).fills->empty());
  FinishRequests abort;
  abort.requests = {"A"};
  EXPECT_TRUE(run.submit(abort).filled_requests->empty());
}

TEST(SynchronousConnectorDriver, SeveralGroupsReadNoCache) {
  Config config = config_of("decode_bench");
  config.groups = {
      KVCacheSpec{.block_size = 4},
      KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 8}};
  Engine run(config);
  AddRequest added = request("A", 10);
  EXPECT_EQ(run.submit(added).error, ErrorCode::kNotInConfig);
  added.id = "B";
  added.skip_reading_prefix_cache = true;
  EXPECT_EQ(run.submit(added).error, ErrorCode::kNone);
  run.submit(Schedule{});
  ASSERT_EQ(run.seen().fills->size(), 1u);
  EXPECT_EQ(run.seen().fills->front().blocks.size(), 2u);
  run.submit(Update{});
  ASSERT_EQ(run.seen().filled->size(), 1u);
}

}  // namespace
}  // namespace kvfence
