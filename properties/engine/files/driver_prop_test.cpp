// Lives of an engine with a synchronous connector, on the reference: what is stored, loaded and
// filled, and what a file that fails does to the engine. Blocks have 4 tokens.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/typed_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence::engine::files {
namespace {

using Blocks = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Symbols = std::vector<KVSymbol>;
using Tokens = std::vector<TokenId>;

Config config_of(ConnectorRecord connector) {
  Config config;
  config.connectors = {std::move(connector)};
  config.profile = "v0.23";
  config.enable_kv_cache_events = false;
  return config;
}

/// A driver and its world.
class Engine : public TypedRun<EngineTarget> {
 public:
  explicit Engine(const Config& config) : TypedRun(engine_sides().make_reference(), config) {}

  /// A step that is planned and comes back.
  const Observation& step() {
    run(Schedule{});
    return run(Update{});
  }
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
  Config config = config_of(ExampleRecord{.num_layers = 2});
  config.ranks = 2;
  Engine engine(config);
  engine.run(request("A", 10));
  const Observation& planned = engine.run(Schedule{});
  ASSERT_EQ(planned.file_transfers->size(), 1u);
  EXPECT_TRUE(planned.file_transfers->front().store);
  EXPECT_TRUE(planned.folders->empty());
  engine.run(Update{});
  ASSERT_EQ(engine.seen().saved->size(), 4u);
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ((*engine.seen().saved)[layer].layer, layer);
    EXPECT_EQ((*engine.seen().saved)[layer].symbols, symbols_of(layer, 2));
  }
  EXPECT_EQ(*engine.seen().folders, Names({folder_name(counting(8))}));
  FinishRequests abort;
  abort.requests = {"A"};
  engine.run(abort);
  EXPECT_TRUE(*engine.run(ResetPrefixCache{}).success);

  engine.run(request("B", 12));
  engine.run(Schedule{});
  EXPECT_EQ(engine.seen().new_reqs->front().num_computed_tokens, 8u);
  EXPECT_FALSE(engine.seen().file_transfers->front().store);
  engine.run(Update{});
  ASSERT_EQ(engine.seen().loaded->size(), 4u);
  EXPECT_EQ((*engine.seen().loaded)[3].symbols, symbols_of(3, 2));
  EXPECT_TRUE(engine.seen().failed->empty());
  const Blocks table = engine.seen().tables->front().blocks.front();
  EXPECT_EQ((*engine.seen().symbols)[3][4 * table[2] + 3], symbol_of(3, counting(12)));
}

TEST(SynchronousConnectorDriver, APromptOfWholeBlocksAndOneTokenLooksForWhatNobodyWrote) {
  Engine engine(config_of(ExampleRecord()));
  WriteEntry entry;
  entry.tokens = counting(4);
  entry.num_files = 1;
  EXPECT_EQ(engine.run(entry).error, ErrorCode::kNone);
  engine.run(request("A", 9));
  engine.run(Schedule{});
  EXPECT_EQ(engine.seen().new_reqs->front().num_computed_tokens, 4u);
  EXPECT_EQ(engine.seen().file_transfers->front().num_tokens, 8u);

  engine.run(Update{});

  EXPECT_EQ(*engine.seen().failed,
            std::vector({FailedFile{"A", false, 0, folder_name(counting(8))}}));
  EXPECT_EQ(*engine.seen().num_engine_starts, 2u);
  EXPECT_EQ(engine.seen().folders->size(), 2u) << "looking for it made its folder";
}

TEST(SynchronousConnectorDriver, AFailedFileEndsTheEngineAndNotItsFiles) {
  Config config = config_of(ExampleRecord{.num_layers = 3});
  config.max_concurrent_batches = 2;
  Engine engine(config);
  FailNextFile fault;
  fault.layer = 1;
  EXPECT_EQ(engine.run(fault).error, ErrorCode::kNone);
  engine.run(request("A", 10));
  engine.run(Schedule{});
  engine.run(request("B", 30));
  engine.run(Schedule{});

  engine.run(Update{});

  EXPECT_EQ(*engine.seen().failed,
            std::vector({FailedFile{"A", true, 1, folder_name(counting(8))}}));
  EXPECT_EQ(engine.seen().saved->size(), 1u);
  EXPECT_FALSE(engine.seen().outputs.has_value());
  EXPECT_EQ(*engine.seen().num_engine_starts, 2u);
  EXPECT_EQ(engine.seen().num_unfinished, 0u);
  EXPECT_EQ(engine.seen().num_referenced_blocks, 1u);
  EXPECT_TRUE(engine.seen().requests->empty());
  EXPECT_EQ(engine.run(Update{}).error, ErrorCode::kNoStepInFlight);
  ASSERT_EQ(engine.seen().files->size(), 2u);
  EXPECT_TRUE((*engine.seen().files)[0].whole);
  EXPECT_FALSE((*engine.seen().files)[1].whole);
  EXPECT_EQ((*engine.seen().symbols)[0], Symbols(16 * 4, kNothingComputed));
  FinishRequests abort;
  abort.requests = {"B"};
  EXPECT_EQ(engine.run(abort).error, ErrorCode::kNone) << "it is gone";
  EXPECT_EQ(engine.run(request("A", 10)).error, ErrorCode::kAlreadyDeclared);

  engine.run(request("C", 10));
  engine.step();
  ASSERT_EQ(engine.seen().failed->size(), 1u) << "half an entry is a hit";
  EXPECT_EQ(engine.seen().failed->front(), (FailedFile{"C", false, 1, folder_name(counting(8))}));
  RemoveEntry removal;
  removal.tokens = counting(8);
  EXPECT_EQ(engine.run(removal).error, ErrorCode::kNone);
  engine.run(request("D", 10));
  engine.step();
  EXPECT_TRUE(engine.seen().failed->empty());
  EXPECT_EQ(engine.seen().saved->size(), 3u);
  EXPECT_EQ(*engine.seen().num_engine_starts, 3u);
}

TEST(SynchronousConnectorDriver, TheRanksBehindTheOneThatFailsDoNothing) {
  Config config = config_of(ExampleRecord());
  config.ranks = 2;
  Engine engine(config);
  WriteEntry entry;
  entry.tokens = counting(8);
  entry.num_files = 2;
  engine.run(entry);
  RemoveFile removal;
  removal.tokens = counting(8);
  EXPECT_EQ(engine.run(removal).error, ErrorCode::kNone);
  engine.run(request("A", 10));
  engine.step();
  EXPECT_EQ(engine.seen().failed->front().layer, 0u);
  EXPECT_TRUE(engine.seen().loaded->empty());
}

TEST(SynchronousConnectorDriver, ALaterFileMayFail) {
  Config config = config_of(ExampleRecord());
  config.ranks = 2;
  Engine engine(config);
  WriteEntry entry;
  entry.tokens = counting(8);
  entry.num_files = 2;
  engine.run(entry);
  TruncateFile truncation;
  truncation.tokens = counting(8);
  truncation.layer = 1;
  EXPECT_EQ(engine.run(truncation).error, ErrorCode::kNone);
  engine.run(request("A", 10));
  engine.step();
  EXPECT_EQ(engine.seen().failed->front().layer, 1u);
  EXPECT_EQ(engine.seen().loaded->size(), 1u);
}

TEST(SynchronousConnectorDriver, RefusesWhatIsNotThere) {
  Engine engine(config_of(ExampleRecord()));
  WriteEntry entry;
  entry.tokens = counting(5);
  EXPECT_EQ(engine.run(entry).error, ErrorCode::kBadRange);
  entry.num_files = 2;
  EXPECT_EQ(engine.run(entry).error, ErrorCode::kNotInConfig);
  RemoveFile removal;
  EXPECT_EQ(engine.run(removal).error, ErrorCode::kUnknownKey);
  removal.layer = 1;
  EXPECT_EQ(engine.run(removal).error, ErrorCode::kNotInConfig);
  TruncateFile truncation;
  EXPECT_EQ(engine.run(truncation).error, ErrorCode::kUnknownKey);
  truncation.layer = 1;
  EXPECT_EQ(engine.run(truncation).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(engine.run(RemoveEntry{}).error, ErrorCode::kUnknownKey);
  FailNextFile fault;
  fault.layer = 1;
  EXPECT_EQ(engine.run(fault).error, ErrorCode::kNotInConfig);
  EXPECT_TRUE(engine.seen().folders->empty());
  Engine bench(config_of(DecodeBenchRecord()));
  EXPECT_EQ(bench.run(WriteEntry{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.run(RemoveEntry{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.run(RemoveFile{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.run(TruncateFile{}).error, ErrorCode::kNotInConfig);
  EXPECT_EQ(bench.run(FailNextFile{}).error, ErrorCode::kNotInConfig);
}

TEST(SynchronousConnectorDriver, RefusesAStepBeforeItTouchesFiles) {
  Engine engine(config_of(ExampleRecord()));
  EXPECT_EQ(engine.run(Update{}).error, ErrorCode::kNoStepInFlight);
  engine.run(request("A", 10));
  engine.run(Schedule{});
  Update update;
  update.samples = {Sample{"A", {1, 2}}};
  EXPECT_EQ(engine.run(update).error, ErrorCode::kWrongTokenCount);
  update.samples = {Sample{"A", {}}};
  EXPECT_EQ(engine.run(update).error, ErrorCode::kWrongTokenCount);
  update.samples = {Sample{"B", {1}}};
  EXPECT_EQ(engine.run(update).error, ErrorCode::kUnknownRequest);
  EXPECT_TRUE(engine.seen().folders->empty());
  update.samples = {Sample{"A", {7}}};
  EXPECT_EQ(engine.run(update).error, ErrorCode::kNone);
  EXPECT_EQ(engine.seen().outputs->front().tokens, Tokens({7}));
}

TEST(SynchronousConnectorDriver, AnAbortedRequestIsStoredWithTheStepThatHasIt) {
  Engine engine(config_of(ExampleRecord()));
  engine.run(request("A", 10));
  engine.run(Schedule{});
  FinishRequests abort;
  abort.requests = {"A"};
  engine.run(abort);

  engine.run(Update{});

  ASSERT_EQ(engine.seen().saved->size(), 1u);
  EXPECT_EQ(engine.seen().saved->front().request, "A");
  EXPECT_EQ(engine.seen().saved->front().symbols, symbols_of(0, 2));
}

TEST(SynchronousConnectorDriver, APreemptedRequestLoadsWhatNobodyWrote) {
  Config config = config_of(ExampleRecord());
  config.num_gpu_blocks = 8;
  config.enable_caching = false;
  Engine engine(config);
  engine.run(request("A", 10, /*max_tokens=*/20));
  engine.run(request("B", 10, /*max_tokens=*/20));
  engine.step();
  ASSERT_EQ(engine.seen().saved->size(), 2u) << "one file, written twice";
  EXPECT_EQ(engine.seen().files->size(), 1u);
  bool was_preempted = false;
  for (int step = 0; step < 30 && *engine.seen().num_engine_starts == 1; ++step) {
    engine.run(Schedule{});
    was_preempted = was_preempted || !engine.seen().preempted->empty();
    engine.run(Update{});
  }
  EXPECT_TRUE(was_preempted);
  ASSERT_FALSE(engine.seen().failed->empty());
  EXPECT_EQ(engine.seen().failed->front().request, "B");
  EXPECT_FALSE(engine.seen().failed->front().store);
}

TEST(SynchronousConnectorDriver, DecodeBenchFillsOnce) {
  Engine engine(config_of(DecodeBenchRecord{.num_layers = 2, .decode_bench_hma = {}}));
  engine.run(request("A", 10));
  engine.run(Schedule{});
  EXPECT_EQ(engine.seen().new_reqs->front().num_computed_tokens, 9u);
  ASSERT_EQ(engine.seen().fills->size(), 1u);
  EXPECT_EQ(engine.seen().fills->front().num_tokens, 9u);
  EXPECT_EQ(*engine.seen().filled_requests, Names({"A"}));
  const Blocks blocks = engine.seen().fills->front().blocks.front();
  EXPECT_EQ(blocks.size(), 3u);

  engine.run(Update{});

  EXPECT_EQ(engine.seen().filled->size(), 2u);
  EXPECT_EQ((*engine.seen().symbols)[1][4 * blocks[0] + 3], kFilledWithDummies);
  EXPECT_EQ((*engine.seen().symbols)[1][4 * blocks[2] + 1], symbol_behind(kFilledWithDummies, 10));
  EXPECT_TRUE(engine.run(Schedule{}).fills->empty());
  FinishRequests abort;
  abort.requests = {"A"};
  EXPECT_TRUE(engine.run(abort).filled_requests->empty());
}

TEST(SynchronousConnectorDriver, SeveralGroupsReadNoCache) {
  Config config = config_of(DecodeBenchRecord());
  config.groups = {
      KVCacheSpec{.block_size = 4},
      KVCacheSpec{.kind = KVCacheSpecKind::kSlidingWindow, .block_size = 4, .sliding_window = 8}};
  Engine engine(config);
  AddRequest added = request("A", 10);
  EXPECT_EQ(engine.run(added).error, ErrorCode::kNotInConfig);
  added.id = "B";
  added.skip_reading_prefix_cache = true;
  EXPECT_EQ(engine.run(added).error, ErrorCode::kNone);
  engine.run(Schedule{});
  ASSERT_EQ(engine.seen().fills->size(), 1u);
  EXPECT_EQ(engine.seen().fills->front().blocks.size(), 2u);
  engine.run(Update{});
  ASSERT_EQ(engine.seen().filled->size(), 1u);
}

}  // namespace
}  // namespace kvfence::engine::files
