// Goal: the scheduler's half of a simple CPU offload connector stores, loads, pins and frees as its
// rules say. Method: small lives in front of a GPU pool that the test fills, under both releases.

#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kBlockSize = 4;

using Blocks = std::vector<BlockId>;

SimpleCPUOffloadSpec spec_of(Profile profile, std::uint32_t num_cpu_blocks = 8) {
  SimpleCPUOffloadSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 32;
  spec.kv_cache.pool.hash.hash_block_size = kBlockSize;
  spec.kv_cache.pool.profile = profile;
  spec.kv_cache.pool.rules = rules_of(profile);
  spec.kv_cache.groups = {{.block_size = kBlockSize}};
  spec.kv_cache.max_model_len = 256;
  spec.kv_cache.max_num_batched_tokens = 4;
  spec.num_cpu_blocks = num_cpu_blocks;
  return spec;
}

SimpleCPUOffloadSpec with_window(SimpleCPUOffloadSpec spec, std::uint32_t sliding_window) {
  spec.kv_cache.groups.push_back({.kind = KVCacheSpecKind::kSlidingWindow,
                                  .block_size = kBlockSize,
                                  .sliding_window = sliding_window});
  return spec;
}

/// A connector's half, the GPU's pool, and requests whose blocks the test takes and caches.
class Engine final : private ConnectorHost, private GpuBlockPool {
 public:
  explicit Engine(const SimpleCPUOffloadSpec& spec)
      : connector(make_simple_cpu_offload_scheduler(spec)), gpu(spec.kv_cache.pool), spec_(spec) {}

  /// Tokens first, first + 1, ...
  RequestIndex add(TokenId first, std::uint32_t num_tokens) {
    RequestSpec tokens;
    for (TokenId token = 0; token < num_tokens; ++token) tokens.tokens.push_back(first + token);
    Record& record = records_.emplace_back(Record{Request(tokens, spec_.kv_cache.pool.hash)});
    record.id = std::to_string(records_.size() - 1);
    record.blocks.resize(spec_.kv_cache.groups.size());
    return static_cast<RequestIndex>(records_.size() - 1);
  }

  /// Tokens that the connector finds behind num_local_tokens.
  std::uint32_t look_up(RequestIndex index, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens found =
        connector->get_num_new_matched_tokens(request(index), num_local_tokens);
    EXPECT_TRUE(found.num_tokens);
    EXPECT_EQ(found.load_async, found.num_tokens.value_or(0) > 0);
    return found.num_tokens.value_or(0);
  }

  /// That many more blocks in each group.
  void take_blocks(RequestIndex index, std::uint32_t num_blocks) {
    for (Blocks& blocks : records_[index].blocks) {
      const std::size_t before = blocks.size();
      blocks.resize(before + num_blocks);
      ASSERT_EQ(gpu.get_new_blocks(std::span(blocks).subspan(before)), ErrorCode::kNone);
    }
  }

  void admit(RequestIndex index, std::uint32_t num_external_tokens = 0) {
    connector->update_state_after_alloc(*this, request(index), records_[index].blocks,
                                        num_external_tokens);
  }

  /// The blocks [begin, end) of a group get the request's keys.
  void cache(RequestIndex index, std::uint32_t begin, std::uint32_t end, GroupId group = 0) {
    const Record& record = records_[index];
    ASSERT_EQ(gpu.cache_full_blocks({.request = record.request,
                                     .blocks = record.blocks[group],
                                     .num_cached_blocks = begin,
                                     .num_full_blocks = end,
                                     .block_size = kBlockSize,
                                     .kv_cache_group_id = group,
                                     .block_mask = std::nullopt}),
              ErrorCode::kNone);
  }

  void plan_new(RequestIndex index) {
    output.scheduled.push_back({index, 1, 0, true});
    output.scheduled_new_reqs.push_back(
        {index, records_[index].num_computed_tokens, list(records_[index].blocks)});
  }
  void plan_cached(RequestIndex index, bool resumed = false) {
    output.scheduled.push_back({index, 1, 0, true});
    SchedulerOutput::Cached& entry = output.scheduled_cached_reqs.emplace_back();
    entry.request = index;
    entry.resumed = resumed;
    if (resumed) entry.first_list = list(records_[index].blocks);
  }

  /// What the workers are told of the step that was planned.
  const SimpleCPUOffloadMetadata& step() {
    metadata_ = std::static_pointer_cast<const SimpleCPUOffloadMetadata>(
        connector->build_connector_meta(*this, output));
    output = {};
    return *metadata_;
  }

  void report_store(JobId event, std::uint32_t num_workers = 1) {
    KVConnectorOutput report;
    report.completed_jobs.push_back({event, num_workers, 0});
    connector->update_connector_output(*this, report);
  }
  void report_load(RequestIndex index) {
    KVConnectorOutput report;
    report.finished_recving.push_back(index);
    connector->update_connector_output(*this, report);
  }

  /// The engine frees its blocks too.
  void finish(RequestIndex index) {
    BlocksByGroup& blocks = records_[index].blocks;
    EXPECT_FALSE(connector->request_finished(*this, request(index), blocks));
    for (Blocks& group : blocks) {
      EXPECT_EQ(gpu.free_blocks(group), ErrorCode::kNone);
      group.clear();
    }
  }

  /// A life up to the completion of its stores.
  void store(TokenId first, std::uint32_t num_tokens) {
    const RequestIndex index = add(first, num_tokens);
    const std::uint32_t num_blocks = num_tokens / kBlockSize;
    take_blocks(index, num_blocks);
    admit(index);
    for (GroupId group = 0; group < spec_.kv_cache.groups.size(); ++group) {
      cache(index, 0, num_blocks, group);
    }
    records_[index].num_computed_tokens = num_tokens;
    plan_new(index);
    const std::optional<JobId> event = step().store_event;
    ASSERT_TRUE(event);
    report_store(*event);
    finish(index);
  }

  Blocks pinned() const {
    std::vector<PinnedHit> hits;
    connector->pinned_hits(hits);
    return hits.empty() ? Blocks() : hits.back().cpu_blocks;
  }
  CpuPoolState cpu() const {
    CpuPoolState state;
    connector->cpu_pool(state);
    return state;
  }

  void set_computed(RequestIndex index, std::uint32_t num_tokens,
                    std::uint32_t num_placeholders = 0) {
    records_[index].num_computed_tokens = num_tokens;
    records_[index].num_placeholders = num_placeholders;
  }
  BlocksByGroup& blocks(RequestIndex index) { return records_[index].blocks; }

  std::unique_ptr<SimpleCPUOffloadScheduler> connector;
  BlockPool gpu;
  SchedulerOutput output;  ///< of the next step

 private:
  struct Record {
    Request request;
    std::string id = {};
    BlocksByGroup blocks = {};
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_placeholders = 0;
  };

  std::uint32_t list(const BlocksByGroup& blocks) {
    const auto first = static_cast<std::uint32_t>(output.block_lists.size());
    for (const Blocks& group : blocks) {
      output.block_lists.append(group);
      output.block_lists.end_list();
    }
    return first;
  }

  ConnectorRequest request(RequestIndex index) const override {
    const Record& record = records_[index];
    const auto num_tokens = static_cast<std::uint32_t>(record.request.all_token_ids().size());
    return {index, record.id, record.request, num_tokens, record.num_computed_tokens, params_};
  }
  bool is_cached(BlockId block) const override { return !gpu.block_key(block).empty(); }
  std::uint32_t num_output_placeholders(RequestIndex index) const override {
    return records_[index].num_placeholders;
  }
  GpuBlockPool* gpu_block_pool() override { return this; }

  std::string_view block_key(BlockId block) const override { return gpu.block_key(block); }
  void touch(std::span<const BlockId> touched) override {
    EXPECT_EQ(gpu.touch(touched), ErrorCode::kNone);
  }
  void free_blocks(std::span<const BlockId> freed) override {
    EXPECT_EQ(gpu.free_blocks(freed), ErrorCode::kNone);
  }
  bool is_free(BlockId block) const override { return gpu.is_free(block); }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override {
    return gpu.next_free_block(block);
  }

  SimpleCPUOffloadSpec spec_;
  std::deque<Record> records_;
  KVTransferParams params_;
  std::shared_ptr<const SimpleCPUOffloadMetadata> metadata_;
};

class SimpleCPUOffloadSchedulerTest : public testing::TestWithParam<Profile> {
 protected:
  static bool is_new() { return GetParam() == Profile::kV023; }
};

INSTANTIATE_TEST_SUITE_P(Profiles, SimpleCPUOffloadSchedulerTest, testing::ValuesIn(kProfiles),
                         [](const auto& param) {
                           return param.param == Profile::kV019 ? "v019" : "v023";
                         });

// ---- Eager ----

TEST_P(SimpleCPUOffloadSchedulerTest, StoresWhatIsComputedWithoutTheStep) {
  Engine engine(spec_of(GetParam()));
  const RequestIndex a = engine.add(1, 9);
  engine.take_blocks(a, 3);
  engine.admit(a);
  engine.cache(a, 0, 2);
  engine.plan_new(a);
  EXPECT_FALSE(engine.step().store_event);
  EXPECT_FALSE(engine.connector->has_pending_stores());

  engine.set_computed(a, 9, /*num_placeholders=*/2);
  engine.plan_cached(a);
  const SimpleCPUOffloadMetadata& one = engine.step();
  EXPECT_EQ(one.store_event, JobId{0});
  EXPECT_EQ(one.store_gpu_blocks, Blocks({1}));
  EXPECT_EQ(one.store_cpu_blocks, Blocks({1}));
  EXPECT_FALSE(one.load_event);
  EXPECT_TRUE(engine.connector->has_pending_stores());
  EXPECT_EQ(engine.gpu.ref_cnt(1), 2U);
  EXPECT_EQ(engine.cpu().keys[1], "") << "not findable before it is completed";

  engine.set_computed(a, 9);
  engine.plan_cached(a);
  const SimpleCPUOffloadMetadata& two = engine.step();
  EXPECT_EQ(two.store_event, JobId{1});
  EXPECT_EQ(two.store_gpu_blocks, Blocks({2}));
  engine.plan_cached(a);
  EXPECT_FALSE(engine.step().store_event);

  const std::string key(engine.gpu.block_key(1));
  engine.finish(a);
  EXPECT_EQ(engine.gpu.ref_cnt(1), 1U) << "held by its store";
  engine.report_store(0);
  EXPECT_EQ(engine.gpu.ref_cnt(1), 0U);
  EXPECT_EQ(engine.cpu().keys[1], key);
  EXPECT_EQ(engine.cpu().keys[2], "");
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 1, 2}));
  engine.report_store(1);
  EXPECT_FALSE(engine.connector->has_pending_stores());
}

TEST_P(SimpleCPUOffloadSchedulerTest, AStoreIsCompletedByAllWorkers) {
  SimpleCPUOffloadSpec spec = spec_of(GetParam());
  spec.num_workers = 3;
  Engine engine(spec);
  const RequestIndex a = engine.add(1, 8);
  engine.take_blocks(a, 2);
  engine.admit(a);
  engine.cache(a, 0, 2);
  engine.set_computed(a, 8);
  engine.plan_new(a);
  ASSERT_TRUE(engine.step().store_event);
  engine.report_store(0, 2);
  EXPECT_TRUE(engine.connector->has_pending_stores());
  engine.report_store(0, 1);
  EXPECT_FALSE(engine.connector->has_pending_stores());
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 2, 1}));
}

// Two requests with the same tokens: what the CPU has, or another one stores, is not stored.
TEST_P(SimpleCPUOffloadSchedulerTest, ABlockIsStoredOnce) {
  Engine engine(spec_of(GetParam()));
  const RequestIndex a = engine.add(1, 8);
  const RequestIndex b = engine.add(1, 8);
  const RequestIndex c = engine.add(1, 8);
  engine.take_blocks(a, 2);
  engine.cache(a, 0, 2);
  for (const RequestIndex index : {b, c}) {
    engine.blocks(index) = engine.blocks(a);
    ASSERT_EQ(engine.gpu.touch(engine.blocks(a)[0]), ErrorCode::kNone);
  }
  for (const RequestIndex index : {a, b, c}) {
    engine.admit(index);
    engine.set_computed(index, 8);
  }
  engine.plan_new(a);
  engine.plan_new(b);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({1, 2}));
  engine.plan_new(c);
  // Before simple_offload_skips_stores_under_way, of this step only.
  EXPECT_EQ(engine.step().store_event.has_value(), !is_new());
  engine.report_store(0);
  engine.finish(b);
  engine.plan_cached(a, /*resumed=*/true);
  EXPECT_FALSE(engine.step().store_event) << "the CPU has them";
}

TEST_P(SimpleCPUOffloadSchedulerTest, ABlockWithoutAKeyIsPassedOverOrWaitedFor) {
  Engine engine(spec_of(GetParam()));
  const RequestIndex a = engine.add(1, 12);
  engine.take_blocks(a, 3);
  engine.admit(a);
  engine.cache(a, 0, 1);
  engine.cache(a, 2, 3);
  engine.set_computed(a, 12);
  engine.plan_new(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, is_new() ? Blocks({1, 3}) : Blocks({1}));
  engine.cache(a, 1, 2);
  engine.plan_cached(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, is_new() ? Blocks() : Blocks({2, 3}));
}

// The block moved on to another request, as those of a window do.
TEST_P(SimpleCPUOffloadSchedulerTest, ABlockThatWasUsedAnewIsPassedOver) {
  Engine engine(spec_of(GetParam()));
  const RequestIndex a = engine.add(1, 8);
  const RequestIndex b = engine.add(101, 4);
  engine.take_blocks(a, 2);
  engine.admit(a);
  engine.cache(a, 0, 2);
  engine.plan_new(a);
  engine.step();
  engine.blocks(b) = {{1}};
  ASSERT_EQ(engine.gpu.evict_blocks(engine.blocks(b)[0]), ErrorCode::kNone);
  engine.cache(b, 0, 1);
  engine.set_computed(a, 8);
  engine.plan_cached(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({2}));
}

TEST_P(SimpleCPUOffloadSchedulerTest, WithoutSpaceTheRequestWaits) {
  Engine engine(spec_of(GetParam(), /*num_cpu_blocks=*/2));
  const RequestIndex a = engine.add(1, 8);
  engine.take_blocks(a, 2);
  engine.admit(a);
  engine.cache(a, 0, 2);
  engine.set_computed(a, 8);
  engine.plan_new(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({1}));
  engine.plan_cached(a);
  EXPECT_FALSE(engine.step().store_event);
  engine.report_store(0);
  engine.plan_cached(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({2})) << "evicts the first one";
  EXPECT_EQ(engine.cpu().keys[1], "");
}

TEST_P(SimpleCPUOffloadSchedulerTest, AResumedRequestForgetsItsBlocks) {
  Engine engine(spec_of(GetParam()));
  const RequestIndex a = engine.add(1, 8);
  engine.take_blocks(a, 1);
  engine.admit(a);
  engine.plan_new(a);
  engine.step();
  engine.output.preempted.push_back(a);
  EXPECT_TRUE(engine.step().need_flush);
  ASSERT_EQ(engine.gpu.free_blocks(engine.blocks(a)[0]), ErrorCode::kNone);
  engine.blocks(a)[0].clear();
  engine.take_blocks(a, 2);
  engine.cache(a, 0, 2);
  engine.set_computed(a, 8);
  engine.plan_cached(a, /*resumed=*/true);
  const SimpleCPUOffloadMetadata& metadata = engine.step();
  EXPECT_EQ(metadata.store_gpu_blocks, engine.blocks(a)[0]);
  EXPECT_FALSE(metadata.need_flush);
}

// Groups of blocks of 4 and 8 tokens: hits end at multiples of 8.
TEST_P(SimpleCPUOffloadSchedulerTest, StoresOfSeveralGroupsAreAlignedByRule) {
  SimpleCPUOffloadSpec spec = with_window(spec_of(GetParam()), 6);
  spec.kv_cache.groups.back().block_size = 2 * kBlockSize;
  spec.kv_cache.pool.max_block_size = 2 * kBlockSize;
  Engine engine(spec);
  const RequestIndex a = engine.add(1, 12);
  engine.take_blocks(a, 3);
  engine.admit(a);
  engine.cache(a, 0, 3);
  engine.set_computed(a, 12);
  engine.plan_new(a);
  EXPECT_EQ(engine.step().store_gpu_blocks, is_new() ? Blocks({1, 2}) : Blocks({1, 2, 3}));
}

// ---- Loads ----

TEST_P(SimpleCPUOffloadSchedulerTest, WhatIsStoredIsFoundButForTheLastToken) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  const RequestIndex b = engine.add(1, 8);
  EXPECT_EQ(engine.look_up(b), 4U);
  EXPECT_EQ(engine.pinned(), is_new() ? Blocks({1}) : Blocks());
  const RequestIndex c = engine.add(1, 9);
  EXPECT_EQ(engine.look_up(c), 8U);
  EXPECT_EQ(engine.look_up(c, 8), 0U);
  EXPECT_EQ(engine.look_up(c, 4), 4U) << "behind the local hit";
  EXPECT_EQ(engine.pinned(), is_new() ? Blocks({2}) : Blocks());
  EXPECT_EQ(engine.cpu().ref_cnts[1], is_new() ? 1U : 0U) << "b's; c's old one is freed";
  engine.finish(b);
  engine.finish(c);
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 2, 1}));
}

TEST_P(SimpleCPUOffloadSchedulerTest, ALoadGoesBehindTheLocalHitAndHoldsBothSides) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 12);
  const RequestIndex b = engine.add(1, 14);
  engine.take_blocks(b, 4);
  engine.cache(b, 0, 1);
  const Blocks table = engine.blocks(b)[0];
  ASSERT_EQ(engine.look_up(b, 4), 8U);
  engine.admit(b, 8);
  EXPECT_EQ(engine.pinned(), Blocks());
  EXPECT_EQ(engine.cpu().ref_cnts[2], 1U);
  EXPECT_EQ(engine.gpu.ref_cnt(table[1]), 2U);
  const SimpleCPUOffloadMetadata& metadata = engine.step();
  EXPECT_EQ(metadata.load_event, JobId{0});
  EXPECT_EQ(metadata.load_gpu_blocks, Blocks({table[1], table[2]}));
  EXPECT_EQ(metadata.load_cpu_blocks, Blocks({2, 3}));
  EXPECT_EQ(metadata.load_requests, std::vector<std::string>({"1"}));
  EXPECT_FALSE(engine.step().load_event) << "told once";

  // Told of, it is not over with its request.
  engine.finish(b);
  EXPECT_EQ(engine.cpu().ref_cnts[2], 1U);
  EXPECT_EQ(engine.gpu.ref_cnt(table[1]), 1U);
  engine.report_load(b);
  EXPECT_EQ(engine.cpu().ref_cnts[2], 0U);
  EXPECT_EQ(engine.gpu.ref_cnt(table[1]), 0U);
  engine.report_load(b);
  EXPECT_EQ(engine.gpu.ref_cnt(table[1]), 0U) << "there is none any more";
}

TEST_P(SimpleCPUOffloadSchedulerTest, ALoadThatNobodyWasToldOfIsOverWithItsRequest) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  const RequestIndex b = engine.add(1, 9);
  engine.take_blocks(b, 3);
  ASSERT_EQ(engine.look_up(b), 8U);
  engine.admit(b, 8);
  engine.finish(b);
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 2, 1}));
  EXPECT_EQ(engine.gpu.get_num_free_blocks(), 31U);
  EXPECT_FALSE(engine.step().load_event);
}

TEST_P(SimpleCPUOffloadSchedulerTest, AnAdmissionThatLoadsNothingFreesThePin) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  const RequestIndex b = engine.add(1, 9);
  ASSERT_EQ(engine.look_up(b), 8U);
  engine.admit(b, 0);
  EXPECT_EQ(engine.pinned(), Blocks());
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 2, 1}));
}

// Only the window at the end of the hit is loaded into the second group.
TEST_P(SimpleCPUOffloadSchedulerTest, NullBlocksOfAHitAreNotLoaded) {
  Engine engine(with_window(spec_of(GetParam(), /*num_cpu_blocks=*/16), 5));
  engine.store(1, 12);
  const RequestIndex b = engine.add(1, 13);
  engine.take_blocks(b, 4);
  const BlocksByGroup tables = engine.blocks(b);
  ASSERT_EQ(engine.look_up(b), 12U);
  engine.admit(b, 12);
  const SimpleCPUOffloadMetadata& metadata = engine.step();
  EXPECT_EQ(metadata.load_gpu_blocks,
            Blocks({tables[0][0], tables[0][1], tables[0][2], tables[1][2]}));
  EXPECT_EQ(metadata.load_cpu_blocks, Blocks({1, 2, 3, 6}));
}

TEST_P(SimpleCPUOffloadSchedulerTest, LoadsOfAStepAreOneEvent) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  engine.store(101, 4);
  const RequestIndex b = engine.add(101, 5);
  const RequestIndex c = engine.add(1, 9);
  for (const RequestIndex index : {b, c}) {
    engine.take_blocks(index, 3);
    const std::uint32_t num_tokens = engine.look_up(index);
    engine.admit(index, num_tokens);
  }
  const SimpleCPUOffloadMetadata& metadata = engine.step();
  EXPECT_EQ(metadata.load_requests, std::vector<std::string>({"2", "3"}));
  EXPECT_EQ(metadata.load_cpu_blocks, Blocks({3, 1, 2}));
}

// ---- Lazy ----

/// max_num_batched_tokens of one block: two blocks a step.
SimpleCPUOffloadSpec lazy_spec(Profile profile, std::uint32_t num_cpu_blocks = 8) {
  SimpleCPUOffloadSpec spec = spec_of(profile, num_cpu_blocks);
  spec.lazy_offload = true;
  spec.kv_cache.pool.num_gpu_blocks = 8;
  return spec;
}

/// Leaves num_blocks cached blocks at the end of the free queue, the last block first.
void leave_cached(Engine& engine, TokenId first, std::uint32_t num_blocks) {
  const RequestIndex index = engine.add(first, num_blocks * kBlockSize);
  engine.take_blocks(index, num_blocks);
  engine.cache(index, 0, num_blocks);
  engine.finish(index);
}

TEST_P(SimpleCPUOffloadSchedulerTest, TheWalkLooksAtSoManyFreeBlocksAStep) {
  Engine engine(lazy_spec(GetParam()));
  leave_cached(engine, 1, 3);  // 4 5 6 7 | 1 2 3
  EXPECT_EQ(engine.connector->lazy_cursor(), std::nullopt);
  EXPECT_FALSE(engine.step().store_event);
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{5});
  EXPECT_FALSE(engine.step().store_event);
  const SimpleCPUOffloadMetadata& metadata = engine.step();
  EXPECT_EQ(metadata.store_event, JobId{0});
  EXPECT_EQ(metadata.store_gpu_blocks, Blocks({1, 2}));
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{2});
  EXPECT_EQ(engine.gpu.ref_cnt(2), 1U);

  // Its block is held, so that the walk begins at the head.
  engine.step();
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{5});
  engine.report_store(0);
  EXPECT_EQ(engine.cpu().keys[2], engine.gpu.block_key(2));
  engine.step();  // 4 5 6 7 3 1 2
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{7});
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({3})) << "the CPU has the other";
}

TEST_P(SimpleCPUOffloadSchedulerTest, TheWalkEndsWithTheSpace) {
  Engine engine(lazy_spec(GetParam(), /*num_cpu_blocks=*/2));
  leave_cached(engine, 1, 7);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({1}));
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{1});
  EXPECT_FALSE(engine.step().store_event);
  EXPECT_EQ(engine.connector->lazy_cursor(), std::nullopt) << "no walk, and block 1 is held";
  engine.report_store(0);
  EXPECT_EQ(engine.step().store_gpu_blocks, Blocks({2}));
}

TEST_P(SimpleCPUOffloadSchedulerTest, TheWalkEndsWithTheQueue) {
  Engine engine(lazy_spec(GetParam()));
  for (int i = 0; i < 6; ++i) engine.step();
  EXPECT_EQ(engine.connector->lazy_cursor(), BlockId{7});
}

TEST_P(SimpleCPUOffloadSchedulerTest, ALazyLoadIsALoad) {
  Engine engine(lazy_spec(GetParam()));
  leave_cached(engine, 1, 7);
  engine.step();
  engine.report_store(0);
  const RequestIndex b = engine.add(1, 9);
  ASSERT_EQ(engine.look_up(b), 8U);
  engine.take_blocks(b, 3);
  engine.admit(b, 8);
  EXPECT_EQ(engine.step().load_cpu_blocks, Blocks({1, 2}));
}

// ---- The rest ----

TEST_P(SimpleCPUOffloadSchedulerTest, HasNoResetAndNoEvents) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  EXPECT_FALSE(engine.connector->reset_cache());
  std::vector<KVCacheEvent> events;
  engine.connector->take_events(events);
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{5, 2, 1}));
}

TEST_P(SimpleCPUOffloadSchedulerTest, ACopyGoesItsOwnWay) {
  Engine engine(spec_of(GetParam()));
  engine.store(1, 8);
  const std::unique_ptr<KVConnector> copy = engine.connector->clone();
  engine.store(101, 8);
  EXPECT_EQ(static_cast<SimpleCPUOffloadScheduler&>(*copy).cpu_block_counts(),
            (BlockCounts{5, 2, 1}));
  EXPECT_EQ(engine.connector->cpu_block_counts(), (BlockCounts{3, 4, 1}));
}

}  // namespace
}  // namespace kvfence::optimized
