// Tests the scheduler's half of a simple connector on both sides, with a handmade host and steps.
// Blocks and hashes have 4 tokens unless a test says otherwise. A key is shown as its request and
// its place, "A0"; with several groups "A0/1".

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/simple/simple_cpu_offload.h"
#include "properties/core/both_sides_test_support.h"
#include "properties/kv_cache/group_draws.h"
#include "reference/connectors/simple/simple_cpu_offload.h"
#include "reference/pool/block_pool.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;
using Names = std::vector<std::string>;
using Tokens = std::vector<TokenId>;

SimpleCPUOffloadSpec spec_of(Profile profile, std::uint32_t num_cpu_blocks = 9,
                             std::vector<KVCacheSpec> groups = {full(4)}) {
  SimpleCPUOffloadSpec spec;
  spec.kv_cache.pool.num_gpu_blocks = 17;
  spec.kv_cache.pool.hash.hash_block_size = 4;
  spec.kv_cache.pool.profile = profile;
  spec.kv_cache.pool.rules = rules_of(profile);
  spec.kv_cache.groups = std::move(groups);
  for (const KVCacheSpec& group : spec.kv_cache.groups) {
    spec.kv_cache.pool.max_block_size =
        std::max(spec.kv_cache.pool.max_block_size, group.block_size);
  }
  spec.kv_cache.max_model_len = 64;
  spec.kv_cache.max_num_batched_tokens = 64;
  spec.num_cpu_blocks = num_cpu_blocks;
  return spec;
}

SimpleCPUOffloadSpec lazy_spec(std::uint32_t max_num_batched_tokens,
                               std::uint32_t num_cpu_blocks = 9) {
  SimpleCPUOffloadSpec spec = spec_of(Profile::kV019, num_cpu_blocks);
  spec.lazy_offload = true;
  spec.kv_cache.max_num_batched_tokens = max_num_batched_tokens;
  return spec;
}

/// `num_tokens` tokens that begin with `first`.
Tokens tokens_of(TokenId first, std::uint32_t num_tokens) {
  Tokens tokens(num_tokens, 1);
  tokens.front() = first;
  return tokens;
}

using Maker = BySide<decltype(&reference::make_simple_cpu_offload_scheduler)>;
constexpr Maker kSides[] = {{"reference", reference::make_simple_cpu_offload_scheduler},
                            {"optimized", optimized::make_simple_cpu_offload_scheduler}};

/// A scheduler's half, and its engine with a real GPU pool.
class Half final : public ConnectorHost, public GpuBlockPool {
 public:
  Half(const Maker& make, const SimpleCPUOffloadSpec& given)
      : spec(given), gpu(given.kv_cache.pool), connector(make.make(given)) {}

  /// A request's part of a step.
  struct Entry {
    std::string id;
    BlocksByGroup new_blocks = {};  ///< empty: no group got a block
    bool resumed = false;
  };

  void add(const std::string& id, Tokens tokens) {
    requests_.push_back(std::make_unique<Known>(Known{
        id,
        Request({std::move(tokens), std::nullopt, std::nullopt, {}}, spec.kv_cache.pool.hash)}));
    requests_.back()->table.resize(spec.kv_cache.groups.size());
  }

  /// Gives the request new GPU blocks in that group. Returns them.
  Ids take(const std::string& id, std::size_t num_blocks, std::size_t group = 0) {
    Ids blocks(num_blocks);
    EXPECT_EQ(gpu.get_new_blocks(blocks), ErrorCode::kNone);
    Ids& table = known(id).table[group];
    table.insert(table.end(), blocks.begin(), blocks.end());
    return blocks;
  }

  /// Gives the blocks [begin, end) of the request's table in that group their keys.
  void cache(const std::string& id, std::uint32_t begin, std::uint32_t end, GroupId group = 0) {
    const Known& owner = known(id);
    EXPECT_EQ(gpu.cache_full_blocks({.request = owner.request,
                                     .blocks = owner.table[group],
                                     .num_cached_blocks = begin,
                                     .num_full_blocks = end,
                                     .block_size = spec.kv_cache.groups[group].block_size,
                                     .kv_cache_group_id = group,
                                     .block_mask = std::nullopt}),
              ErrorCode::kNone);
  }

  void set_table(const std::string& id, BlocksByGroup table) { known(id).table = std::move(table); }

  /// Frees the request's blocks, last one first.
  void give_back(const std::string& id) {
    for (Ids& table : known(id).table) {
      EXPECT_EQ(gpu.free_blocks(Ids(table.rbegin(), table.rend()), FreeTo::kTail),
                ErrorCode::kNone);
      table.clear();
    }
  }

  /// "8 async" or "0".
  std::string match(const std::string& id, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens matched =
        connector->get_num_new_matched_tokens(request(index(id)), num_local_tokens);
    return std::to_string(matched.num_tokens.value()) + (matched.load_async ? " async" : "");
  }

  void alloc(const std::string& id, std::uint32_t num_external_tokens = 0) {
    connector->update_state_after_alloc(*this, request(index(id)), known(id).table,
                                        num_external_tokens);
  }

  /// "store 0: 1>1 2>2; load 1 (B C): 3<1; flush", GPU blocks first.
  std::string step(const std::vector<Entry>& entries, const Names& preempted = {}) {
    SchedulerOutput output;
    for (const Entry& entry : entries) {
      const RequestIndex at = index(entry.id);
      output.scheduled.emplace_back().request = at;
      output.scheduled.back().num_tokens = 1;
      std::uint32_t first_list = SchedulerOutput::kNoLists;
      if (!entry.new_blocks.empty()) {
        first_list = static_cast<std::uint32_t>(output.block_lists.size());
        for (const Ids& group : entry.new_blocks) {
          output.block_lists.append(group);
          output.block_lists.end_list();
        }
      }
      SchedulerOutput::Cached& cached = output.scheduled_cached_reqs.emplace_back();
      cached.request = at;
      cached.resumed = entry.resumed;
      cached.first_list = first_list;
    }
    for (const std::string& id : preempted) output.preempted.push_back(index(id));
    const auto metadata = connector->build_connector_meta(*this, output);
    return text_of(dynamic_cast<const SimpleCPUOffloadMetadata&>(*metadata));
  }

  /// Admits the request and computes all its full blocks in this step. The next step stores them.
  /// Returns: the next step's text.
  std::string compute(const std::string& id, std::uint32_t num_blocks) {
    const Ids blocks = take(id, num_blocks);
    cache(id, 0, num_blocks);
    alloc(id);
    EXPECT_EQ(step({{id, {blocks}}}), "");
    computed(id, num_blocks * spec.kv_cache.groups.front().block_size);
    return step({{id}});
  }

  void computed(const std::string& id, std::uint32_t num_tokens) {
    known(id).num_computed_tokens = num_tokens;
  }
  void placeholders(const std::string& id, std::uint32_t num_tokens) {
    known(id).num_output_placeholders = num_tokens;
  }

  void stored(JobId event, std::uint32_t num_workers = 1) {
    KVConnectorOutput output;
    output.completed_jobs.push_back({event, num_workers, 0});
    connector->update_connector_output(*this, output);
  }
  void loaded(const std::string& id) {
    KVConnectorOutput output;
    output.finished_recving.push_back(index(id));
    connector->update_connector_output(*this, output);
  }
  void finish(const std::string& id) {
    EXPECT_FALSE(connector->request_finished(*this, request(index(id)), known(id).table));
  }

  /// CPU blocks that are held or have a key: "1=A0 2=A1+1 3+1".
  std::string cpu() const {
    ShownBlocks blocks;
    connector->cpu_pool(blocks);
    const std::vector<std::uint32_t>& ref_cnts = *blocks.ref_cnts;
    const KeyList& keys = *blocks.keys;
    std::string text;
    for (BlockId block = 1; block < ref_cnts.size(); ++block) {
      if (ref_cnts[block] == 0 && keys[block].empty()) continue;
      if (!text.empty()) text += " ";
      text += std::to_string(block);
      if (!keys[block].empty()) text += "=" + name_of(keys[block]);
      if (ref_cnts[block] > 0) text += "+" + std::to_string(ref_cnts[block]);
    }
    return text;
  }
  Ids cpu_queue() const {
    ShownBlocks blocks;
    connector->cpu_pool(blocks);
    return *blocks.free_queue;
  }
  Ids gpu_queue() const {
    Ids queue;
    gpu.get_all_free_blocks(queue);
    return queue;
  }
  std::string pins() const {
    std::vector<PinnedHit> hits;
    connector->pinned_hits(hits);
    std::string text;
    for (const PinnedHit& hit : hits) {
      text += requests_[hit.request]->id + ":";
      for (const BlockId block : hit.cpu_blocks) text += " " + std::to_string(block);
    }
    return text;
  }

  // ConnectorHost
  ConnectorRequest request(RequestIndex at) const override {
    const Known& found = *requests_[at];
    return {.index = at,
            .id = found.id,
            .request = found.request,
            .num_prompt_tokens = 0,
            .num_computed_tokens = found.num_computed_tokens,
            .params = params_};
  }
  bool is_cached(BlockId block) const override { return !gpu.block_key(block).empty(); }
  std::uint32_t num_output_placeholders(RequestIndex at) const override {
    return requests_[at]->num_output_placeholders;
  }
  GpuBlockPool* gpu_block_pool() override { return this; }

  // GpuBlockPool
  std::string_view block_key(BlockId block) const override { return gpu.block_key(block); }
  void touch(std::span<const BlockId> blocks) override {
    EXPECT_EQ(gpu.touch(blocks), ErrorCode::kNone);
  }
  void free_blocks(std::span<const BlockId> blocks) override {
    EXPECT_EQ(gpu.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);
  }
  bool is_free(BlockId block) const override { return gpu.ref_cnt(block) == 0; }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const override {
    const Ids queue = gpu_queue();
    std::size_t next = 0;
    if (block) {
      while (queue[next] != *block) ++next;
      ++next;
    }
    return next < queue.size() ? std::optional(queue[next]) : std::nullopt;
  }

  SimpleCPUOffloadSpec spec;
  reference::BlockPool gpu;
  std::unique_ptr<SimpleCPUOffloadScheduler> connector;

 private:
  struct Known {
    std::string id;
    Request request;
    BlocksByGroup table = {};
    std::uint32_t num_computed_tokens = 0;
    std::uint32_t num_output_placeholders = 0;
  };

  RequestIndex index(const std::string& id) const {
    RequestIndex at = 0;
    while (at < requests_.size() && requests_[at]->id != id) ++at;
    EXPECT_LT(at, requests_.size()) << id;
    return at;
  }
  Known& known(const std::string& id) { return *requests_[index(id)]; }

  static std::string text_of(const SimpleCPUOffloadMetadata& metadata) {
    std::string text;
    const auto append = [&text](const std::string& part) {
      if (!text.empty()) text += "; ";
      text += part;
    };
    const auto pairs = [](const Ids& gpu_blocks, const Ids& cpu_blocks, const char* arrow) {
      EXPECT_EQ(gpu_blocks.size(), cpu_blocks.size());
      std::string all;
      for (std::size_t i = 0; i < gpu_blocks.size(); ++i) {
        all += " " + std::to_string(gpu_blocks[i]) + arrow + std::to_string(cpu_blocks[i]);
      }
      return all;
    };
    if (metadata.store_event) {
      append("store " + std::to_string(*metadata.store_event) + ":" +
             pairs(metadata.store_gpu_blocks, metadata.store_cpu_blocks, ">"));
    }
    if (metadata.load_event) {
      std::string names;
      for (const std::string& name : metadata.load_requests) {
        names += (names.empty() ? "" : " ") + name;
      }
      append("load " + std::to_string(*metadata.load_event) + " (" + names +
             "):" + pairs(metadata.load_gpu_blocks, metadata.load_cpu_blocks, "<"));
    }
    if (metadata.need_flush) append("flush");
    return text;
  }

  std::string name_of(std::string_view key) const {
    const GroupId group = get_group_id(key);
    for (const auto& each : requests_) {
      const BlockHashListView hashes =
          each->request.block_hashes(spec.kv_cache.groups[group].block_size);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        if (hashes[i] != get_block_hash(key)) continue;
        const std::string text = each->id + std::to_string(i);
        return spec.kv_cache.groups.size() > 1 ? text + "/" + std::to_string(group) : text;
      }
    }
    return "?";
  }

  std::vector<std::unique_ptr<Known>> requests_;
  KVTransferParams params_;
};

class BothProfiles : public ::testing::TestWithParam<std::tuple<Maker, Profile>> {
 protected:
  static Half half_of(const SimpleCPUOffloadSpec& spec) { return {std::get<0>(GetParam()), spec}; }
  static Profile profile() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Simple, BothProfiles,
                         ::testing::Combine(::testing::ValuesIn(kSides),
                                            ::testing::ValuesIn(kProfiles)),
                         SideNames());

class OneProfile : public ::testing::TestWithParam<Maker> {
 protected:
  static Half half_of(const SimpleCPUOffloadSpec& spec) { return {GetParam(), spec}; }
};
INSTANTIATE_TEST_SUITE_P(Simple, OneProfile, ::testing::ValuesIn(kSides), SideNames());

// Eager stores.

TEST_P(BothProfiles, WhatIsComputedIsStoredWithTheNextStep) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 10));
  EXPECT_EQ(half.compute("A", 2), "store 0: 1>1 2>2");
  EXPECT_EQ(half.cpu(), "1+1 2+1") << "not findable before the copies ended";
  EXPECT_EQ(half.gpu.ref_cnt(1), 2u);
  EXPECT_EQ(half.step({{"A"}}), "") << "once";
  half.stored(0);
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  EXPECT_EQ(half.cpu_queue(), Ids({3, 4, 5, 6, 7, 8, 1, 2}));
  EXPECT_EQ(half.gpu.ref_cnt(1), 1u);
}

TEST_P(BothProfiles, AStoreIsCompletedWhenAllWorkersReportedIt) {
  SimpleCPUOffloadSpec spec = spec_of(profile());
  spec.num_workers = 3;
  Half half = half_of(spec);
  half.add("A", tokens_of(1, 10));
  half.add("B", tokens_of(1, 10));
  half.compute("A", 2);
  half.stored(0, 2);
  EXPECT_EQ(half.match("B"), "0");
  EXPECT_TRUE(half.connector->has_pending_stores());
  half.stored(0, 1);
  EXPECT_EQ(half.match("B"), "8 async");
  EXPECT_FALSE(half.connector->has_pending_stores());
}

TEST_P(BothProfiles, PlannedOutputsAreNotComputed) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  const Ids blocks = half.take("A", 2);
  half.cache("A", 0, 2);
  half.alloc("A");
  half.step({{"A", {blocks}}});
  half.computed("A", 8);
  half.placeholders("A", 1);
  EXPECT_EQ(half.step({{"A"}}), "store 0: 1>1");
  half.placeholders("A", 9);
  EXPECT_EQ(half.step({{"A"}}), "") << "never below 0";
  half.placeholders("A", 0);
  EXPECT_EQ(half.step({{"A"}}), "store 1: 2>2");
}

TEST_P(BothProfiles, WhatTheCpuHasIsNotStored) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(1, 13));
  half.compute("A", 2);
  half.stored(0);
  EXPECT_EQ(half.compute("B", 3), "store 1: 5>3");
}

TEST_P(BothProfiles, ABlockOfTwoRequestsIsStoredOncePerStep) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(1, 4));
  const Ids blocks = half.take("A", 1);
  half.cache("A", 0, 1);
  half.alloc("A");
  half.alloc("B");
  half.step({{"A", {blocks}}, {"B", {blocks}}});
  half.computed("A", 4);
  half.computed("B", 4);
  EXPECT_EQ(half.step({{"A"}, {"B"}}), "store 0: 1>1");
}

// Upstream: eager_in_flight_store_dedup_across_steps.
TEST_P(BothProfiles, ABlockWhoseStoreIsUnderWay) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(1, 4));
  const Ids blocks = half.take("A", 1);
  half.cache("A", 0, 1);
  half.alloc("A");
  half.alloc("B");
  half.step({{"A", {blocks}}});
  half.computed("A", 4);
  EXPECT_EQ(half.step({{"A"}}), "store 0: 1>1");
  half.computed("B", 4);
  const bool skips = half.spec.kv_cache.pool.rules.simple_offload_skips_stores_under_way;
  EXPECT_EQ(half.step({{"B", {blocks}}}), skips ? "" : "store 1: 1>2");
  half.stored(0);
  if (!skips) half.stored(1);
  EXPECT_EQ(half.cpu(), skips ? "1=A0" : "1=A0 2=A0") << "duplicates stay";
  EXPECT_EQ(half.gpu.ref_cnt(1), 1u);
}

TEST_P(BothProfiles, ABlockWithoutAKey) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 12));
  const Ids blocks = half.take("A", 3);
  half.cache("A", 0, 1);
  half.cache("A", 2, 3);
  half.alloc("A");
  half.step({{"A", {blocks}}});
  half.computed("A", 12);
  const bool skips = half.spec.kv_cache.pool.rules.simple_offload_skips_unhashed_blocks;
  EXPECT_EQ(half.step({{"A"}}), skips ? "store 0: 1>1 3>2" : "store 0: 1>1");
  half.cache("A", 1, 2);
  EXPECT_EQ(half.step({{"A"}}), skips ? "" : "store 1: 2>2 3>3");
}

TEST_P(BothProfiles, WhereTheStoresOfSeveralGroupsEnd) {
  Half half = half_of(spec_of(profile(), 9, {full(4), window_of(16, 8)}));
  half.add("A", tokens_of(1, 16));
  const BlocksByGroup blocks = {half.take("A", 3, 0), half.take("A", 2, 1)};
  half.cache("A", 0, 3, 0);
  half.cache("A", 0, 1, 1);
  half.alloc("A");
  half.step({{"A", blocks}});
  half.computed("A", 12);
  const bool aligns = half.spec.kv_cache.pool.rules.simple_offload_aligns_stores;
  EXPECT_EQ(half.step({{"A"}}), aligns ? "store 0: 1>1 2>2 4>3" : "store 0: 1>1 2>2 3>3 4>4");
}

// Upstream: multi_group_null_blocks_skipped.
TEST_P(BothProfiles, NullBlocksArePassedOver) {
  Half half = half_of(spec_of(profile(), 9, {full(4), window_of(4, 4)}));
  half.add("A", tokens_of(1, 12));
  const Ids of_full = half.take("A", 2, 0);
  const Ids of_window = half.take("A", 1, 1);
  half.cache("A", 0, 2, 0);
  half.alloc("A");
  half.step({{"A", {of_full, {kNullBlockId, of_window.front()}}}});
  half.computed("A", 8);
  EXPECT_EQ(half.gpu.block_key(of_window.front()), "");
  EXPECT_EQ(half.step({{"A"}}), "store 0: 1>1 2>2");
}

// Ours: a freed block of a window has another owner when its turn comes.
TEST_P(BothProfiles, AFreedBlockIsNoLongerTheRequests) {
  Half half = half_of(spec_of(profile(), /*num_cpu_blocks=*/2, {full(4), window_of(8, 4)}));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(2, 4));
  const BlocksByGroup blocks = {half.take("A", 2, 0), half.take("A", 2, 1)};
  half.cache("A", 0, 2, 0);
  half.cache("A", 0, 2, 1);
  half.alloc("A");
  half.step({{"A", blocks}});
  half.computed("A", 8);
  EXPECT_EQ(half.step({{"A"}}), "store 0: 1>1") << "nothing else fits";
  half.stored(0);
  // Block 3, the window's first, is evicted and gets B's first tokens.
  EXPECT_EQ(half.gpu.free_blocks(Ids{3}, FreeTo::kTail), ErrorCode::kNone);
  Ids all(half.gpu_queue().size());
  EXPECT_EQ(half.gpu.get_new_blocks(all), ErrorCode::kNone);
  const std::vector<BlockId> of_b = {3};
  EXPECT_EQ(half.gpu.cache_full_blocks({.request = half.request(1).request,
                                        .blocks = of_b,
                                        .num_cached_blocks = 0,
                                        .num_full_blocks = 1,
                                        .block_size = 4,
                                        .kv_cache_group_id = 0,
                                        .block_mask = std::nullopt}),
            ErrorCode::kNone);
  EXPECT_EQ(half.step({{"A"}}), "store 1: 2>1");
  half.stored(1);
  EXPECT_EQ(half.step({{"A"}}), "store 2: 4>1") << "block 3 was passed over";
}

TEST_P(BothProfiles, NoFreeCpuBlockEndsTheRequest) {
  Half half = half_of(spec_of(profile(), /*num_cpu_blocks=*/3));
  half.add("A", tokens_of(1, 12));
  half.add("B", tokens_of(2, 4));
  EXPECT_EQ(half.compute("A", 3), "store 0: 1>1 2>2");
  half.take("B", 1);
  half.cache("B", 0, 1);
  half.alloc("B");
  half.step({{"B", {{4}}}});
  half.computed("B", 4);
  EXPECT_EQ(half.step({{"A"}, {"B"}}), "") << "all CPU blocks are held";
  half.stored(0);
  EXPECT_EQ(half.step({{"A"}, {"B"}}), "store 1: 3>1 4>2") << "it goes on where it ended";
  EXPECT_EQ(half.cpu(), "1+1 2+1") << "which evicts";
}

// Upstream: lru_eviction_order, touched_blocks_survive_eviction.
TEST_P(BothProfiles, TheOldestCpuBlocksAreEvictedUnlessTheyAreLoaded) {
  Half half = half_of(spec_of(profile(), /*num_cpu_blocks=*/5));
  half.add("A", tokens_of(1, 9));
  half.add("B", tokens_of(2, 8));
  half.add("C", tokens_of(3, 8));
  half.add("A2", tokens_of(1, 9));
  half.compute("A", 2);
  half.stored(0);
  half.compute("B", 2);
  half.stored(1);
  EXPECT_EQ(half.match("A2"), "8 async");
  half.take("A2", 3);
  half.alloc("A2", 8);
  EXPECT_EQ(half.step({}), "load 0 (A2): 5<1 6<2");
  half.compute("C", 2);
  half.stored(2);
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1 3=C0 4=C1");
}

// Upstream: chunked_prefill_reads_live_block_ids.
TEST_P(BothProfiles, AResumedRequestBeginsAnew) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  half.compute("A", 2);
  half.stored(0);
  half.give_back("A");
  half.computed("A", 0);
  EXPECT_EQ(half.step({}, {"A"}), "flush");
  Ids all(half.gpu_queue().size());
  EXPECT_EQ(half.gpu.get_new_blocks(all), ErrorCode::kNone) << "nothing of A is left on the GPU";
  EXPECT_EQ(half.gpu.free_blocks(Ids{7, 8}, FreeTo::kTail), ErrorCode::kNone);
  const Ids blocks = half.take("A", 2);
  EXPECT_EQ(blocks, Ids({7, 8}));
  half.cache("A", 0, 2);
  half.alloc("A");
  half.step({{.id = "A", .new_blocks = {blocks}, .resumed = true}});
  half.computed("A", 8);
  EXPECT_EQ(half.step({{"A"}}), "") << "the CPU has them";
}

TEST_P(BothProfiles, AResumedRequestForgetsItsOldBlocks) {
  Half half = half_of(spec_of(profile(), /*num_cpu_blocks=*/3));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(2, 8));
  const Ids old_blocks = half.take("A", 2);
  half.cache("A", 0, 2);
  half.alloc("A");
  half.step({{"A", {old_blocks}}});
  half.give_back("A");
  const Ids blocks = half.take("A", 2);
  EXPECT_NE(blocks, old_blocks);
  half.cache("A", 0, 2);
  half.step({{.id = "A", .new_blocks = {blocks}, .resumed = true}});
  half.computed("A", 8);
  EXPECT_EQ(half.step({{"A"}}), "store 0: 3>1 4>2");
}

// Lookup and load.

// Upstream: max_hit_len_cap_drops_last_full_block.
TEST_P(BothProfiles, OneTokenIsLeftToCompute) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(1, 9));
  half.compute("A", 2);
  half.stored(0);
  EXPECT_EQ(half.match("A"), "4 async");
  EXPECT_EQ(half.match("B"), "8 async");
  EXPECT_EQ(half.match("B", 8), "0");
}

// Upstream: partial_gpu_prefix_plus_cpu_load.
TEST_P(BothProfiles, ALoadGoesAfterTheLocalHit) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 17));
  half.add("B", tokens_of(1, 17));
  half.compute("A", 4);
  half.stored(0);
  EXPECT_EQ(half.match("B", 8), "8 async");
  half.take("B", 5);
  half.cache("B", 0, 2);
  half.alloc("B", 8);
  EXPECT_EQ(half.cpu(), "1=A0 2=A1 3=A2+1 4=A3+1");
  EXPECT_EQ(half.gpu.ref_cnt(7), 2u);
  EXPECT_EQ(half.step({}), "load 0 (B): 7<3 8<4");
  EXPECT_EQ(half.step({}), "") << "reported once";
  half.loaded("B");
  EXPECT_EQ(half.cpu(), "1=A0 2=A1 3=A2 4=A3");
  EXPECT_EQ(half.gpu.ref_cnt(7), 1u);
  half.loaded("B");
  EXPECT_EQ(half.gpu.ref_cnt(7), 1u) << "nothing is under way";
}

TEST_P(BothProfiles, LoadsOfAStepAreOneEvent) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 5));
  half.add("B", tokens_of(1, 5));
  half.add("C", tokens_of(1, 5));
  half.compute("A", 1);
  half.stored(0);
  for (const char* id : {"B", "C"}) {
    EXPECT_EQ(half.match(id), "4 async");
    half.take(id, 2);
    half.alloc(id, 4);
  }
  EXPECT_EQ(half.step({}), "load 0 (B C): 2<1 4<1");
  EXPECT_EQ(half.cpu(), "1=A0+2");
  half.loaded("C");
  EXPECT_EQ(half.cpu(), "1=A0+1");
}

// The flag is the group's, so upstream's lookup in CPU memory drops a block too.
TEST_P(OneProfile, AGroupOfEagleFindsABlockLess) {
  SimpleCPUOffloadSpec spec = spec_of(Profile::kV023);
  spec.kv_cache.use_eagle = true;
  Half all = half_of(spec);
  spec.kv_cache.eagle_groups = {0};
  Half flagged = half_of(spec);
  for (Half* half : {&all, &flagged}) {
    half->add("A", tokens_of(1, 13));
    half->add("B", tokens_of(1, 13));
    EXPECT_EQ(half->compute("A", 3), "store 0: 1>1 2>2 3>3");
    half->stored(0);
  }
  EXPECT_EQ(all.match("B"), "12 async") << "no group has a flag";
  EXPECT_EQ(flagged.match("B"), "8 async");
}

TEST_P(BothProfiles, AWindowLoadsItsEnd) {
  Half half = half_of(spec_of(profile(), 9, {full(4), window_of(5, 4)}));
  half.add("A", tokens_of(1, 13));
  half.add("B", tokens_of(1, 13));
  const BlocksByGroup blocks = {half.take("A", 3, 0), half.take("A", 3, 1)};
  half.cache("A", 0, 3, 0);
  half.cache("A", 0, 3, 1);
  half.alloc("A");
  half.step({{"A", blocks}});
  half.computed("A", 12);
  EXPECT_EQ(half.step({{"A"}}), "store 0: 1>1 2>2 3>3 4>4 5>5 6>6");
  half.stored(0);
  EXPECT_EQ(half.match("B"), "12 async");
  const Ids of_full = half.take("B", 4, 0);
  const Ids of_window = half.take("B", 2, 1);
  EXPECT_EQ(of_window, Ids({11, 12}));
  half.set_table("B", {of_full, {kNullBlockId, kNullBlockId, 11, 12}});
  half.alloc("B", 12);
  EXPECT_EQ(half.step({}), "load 0 (B): 7<1 8<2 9<3 11<6");
}

// Between the lookup and the allocation.
TEST_P(OneProfile, APinnedHitOutlivesStoresThatEvict) {
  Half half = half_of(spec_of(Profile::kV023, /*num_cpu_blocks=*/4));
  half.add("A", tokens_of(1, 9));
  half.add("B", tokens_of(1, 9));
  half.add("C", tokens_of(3, 12));
  half.compute("A", 2);
  half.stored(0);
  EXPECT_EQ(half.match("B"), "8 async");
  EXPECT_EQ(half.pins(), "B: 1 2");
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1");
  EXPECT_EQ(half.compute("C", 3), "store 1: 3>3") << "one CPU block is left";
  half.take("B", 3);
  half.alloc("B", 8);
  EXPECT_EQ(half.pins(), "");
  EXPECT_EQ(half.step({}), "load 0 (B): 6<1 7<2");
}

TEST_P(OneProfile, WithoutPinsAHitMayBeEvictedBeforeItIsAskedForAgain) {
  Half half = half_of(spec_of(Profile::kV019, /*num_cpu_blocks=*/4));
  half.add("A", tokens_of(1, 9));
  half.add("B", tokens_of(1, 9));
  half.add("C", tokens_of(3, 12));
  half.compute("A", 2);
  half.stored(0);
  EXPECT_EQ(half.match("B"), "8 async");
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  EXPECT_EQ(half.compute("C", 3), "store 1: 3>3 4>1 5>2");
  EXPECT_EQ(half.match("B"), "0");
}

TEST_P(OneProfile, APinEndsWithTheNextLookupTheAllocationOrTheRequest) {
  Half half = half_of(spec_of(Profile::kV023));
  half.add("A", tokens_of(1, 9));
  half.add("B", tokens_of(1, 9));
  half.compute("A", 2);
  half.stored(0);
  half.match("B");
  half.match("B");
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1") << "pinned once";
  EXPECT_EQ(half.match("B", 8), "0");
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  half.match("B");
  half.alloc("B", 0);
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  half.match("B");
  half.finish("B");
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  EXPECT_EQ(half.pins(), "");
}

TEST_P(OneProfile, FewerTokensThanFoundTakeTheFirstBlocks) {
  Half half = half_of(spec_of(Profile::kV023));
  half.add("A", tokens_of(1, 17));
  half.add("B", tokens_of(1, 17));
  half.compute("A", 4);
  half.stored(0);
  EXPECT_EQ(half.match("B"), "16 async");
  half.take("B", 3);
  half.alloc("B", 8);
  EXPECT_EQ(half.step({}), "load 0 (B): 5<1 6<2");
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1 3=A2 4=A3");
}

// The end of a request.

// Upstream: eager_store_preemption_cleanup.
TEST_P(BothProfiles, AbortedWhileItIsStored) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(1, 9));
  half.compute("A", 2);
  half.finish("A");
  half.give_back("A");
  EXPECT_EQ(half.gpu.ref_cnt(1), 1u) << "the copy holds it";
  half.stored(0);
  EXPECT_EQ(half.gpu.ref_cnt(1), 0u);
  EXPECT_EQ(half.gpu_queue().back(), 2u) << "in the order of the store";
  EXPECT_EQ(half.match("B"), "8 async") << "what was stored stays";
}

// Upstream: inflight_finish_deferred_cleanup, preemption_no_cpu_block_leak.
TEST_P(BothProfiles, AbortedWhileItIsLoaded) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 9));
  half.add("B", tokens_of(1, 9));
  half.add("C", tokens_of(1, 9));
  half.compute("A", 2);
  half.stored(0);
  for (const char* id : {"B", "C"}) {
    half.match(id);
    half.take(id, 3);
    half.alloc(id, 8);
    if (std::string(id) == "B") half.step({});
  }
  EXPECT_EQ(half.cpu(), "1=A0+2 2=A1+2");
  half.finish("C");
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1") << "no worker knows of C's load";
  EXPECT_EQ(half.step({}), "");
  half.finish("B");
  EXPECT_EQ(half.cpu(), "1=A0+1 2=A1+1") << "B's copies are under way";
  EXPECT_EQ(half.gpu.ref_cnt(3), 2u);
  half.loaded("B");
  EXPECT_EQ(half.cpu(), "1=A0 2=A1");
  EXPECT_EQ(half.gpu.ref_cnt(3), 1u);
}

TEST_P(BothProfiles, AFinishedRequestIsNotStoredFurther) {
  Half half = half_of(spec_of(profile()));
  half.add("A", tokens_of(1, 8));
  const Ids blocks = half.take("A", 2);
  half.cache("A", 0, 2);
  half.alloc("A");
  half.step({{"A", {blocks}}});
  half.computed("A", 8);
  half.finish("A");
  EXPECT_EQ(half.step({{"A"}}), "");
}

TEST_P(BothProfiles, NoEventsAndNoReset) {
  Half half = half_of(spec_of(profile(), /*num_cpu_blocks=*/2));
  half.add("A", tokens_of(1, 8));
  half.compute("A", 1);
  half.stored(0);
  EXPECT_EQ(half.step({{"A"}}), "");
  std::vector<KVCacheEvent> events;
  half.connector->take_events(events);
  EXPECT_TRUE(events.empty());
  EXPECT_FALSE(half.connector->reset_cache());
  EXPECT_EQ(half.cpu(), "1=A0");
}

// Lazy stores. The pool's 16 free blocks are 1 to 16, in order, before anything is taken.

TEST_P(OneProfile, StoresWhatStandsNearTheHead) {
  Half half = half_of(lazy_spec(/*max_num_batched_tokens=*/8));
  half.add("A", tokens_of(1, 12));
  Ids all = half.take("A", 16);
  half.cache("A", 0, 3);
  half.give_back("A");
  EXPECT_EQ(half.gpu_queue().front(), 16u);
  // 4 blocks per step: 16 to 13 are empty, ... 3 to 1 have keys.
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.connector->lazy_cursor(), 13u);
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.connector->lazy_cursor(), 5u);
  EXPECT_EQ(half.step({}), "store 0: 3>1 2>2 1>3");
  EXPECT_EQ(half.connector->lazy_cursor(), 1u);
  EXPECT_EQ(half.gpu.get_num_free_blocks(), 13u) << "the copies hold them";
  half.stored(0);
  EXPECT_EQ(half.gpu_queue(), Ids({16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(half.cpu(), "1=A2 2=A1 3=A0");
  EXPECT_EQ(half.step({}), "") << "no block comes after the cursor";
}

TEST_P(OneProfile, ACursorThatIsTakenIsForgotten) {
  Half half = half_of(lazy_spec(/*max_num_batched_tokens=*/8));
  half.add("A", tokens_of(1, 12));
  half.add("B", tokens_of(2, 16));
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.connector->lazy_cursor(), 4u);
  EXPECT_EQ(half.take("A", 3), Ids({1, 2, 3}));
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.connector->lazy_cursor(), 8u) << "4 is still free";
  EXPECT_EQ(half.take("B", 5).back(), 8u);
  EXPECT_EQ(half.step({}), "");
  EXPECT_EQ(half.connector->lazy_cursor(), 12u) << "from the head, which is 9";
}

TEST_P(OneProfile, EndsWithTheFreeCpuBlocks) {
  Half half = half_of(lazy_spec(/*max_num_batched_tokens=*/64, /*num_cpu_blocks=*/3));
  half.add("A", tokens_of(1, 16));
  half.take("A", 4);
  half.cache("A", 0, 4);
  half.give_back("A");
  EXPECT_EQ(half.step({}), "store 0: 4>1 3>2");
  EXPECT_EQ(half.connector->lazy_cursor(), 3u);
  EXPECT_EQ(half.step({}), "") << "no CPU block is free";
  EXPECT_FALSE(half.connector->lazy_cursor()) << "3 is held, and forgotten";
  half.stored(0);
  EXPECT_EQ(half.step({}), "store 1: 2>1 1>2");
}

TEST_P(OneProfile, WhatTheCpuHasIsNotStoredButDuplicatesAre) {
  Half half = half_of(lazy_spec(/*max_num_batched_tokens=*/64));
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(1, 4));
  half.add("C", tokens_of(1, 4));
  for (const char* id : {"A", "B"}) {
    half.take(id, 1);
    half.cache(id, 0, 1);
  }
  half.give_back("A");
  half.give_back("B");
  EXPECT_EQ(half.step({}), "store 0: 1>1 2>2");
  half.stored(0);
  half.take("C", 1);
  half.cache("C", 0, 1);
  half.give_back("C");
  EXPECT_EQ(half.step({}), "");
}

TEST_P(OneProfile, HowManyBlocksAWalkLooksAt) {
  SimpleCPUOffloadSpec spec = lazy_spec(/*max_num_batched_tokens=*/5);
  spec.kv_cache.groups.push_back(window_of(5, 4));
  Half half = half_of(spec);
  half.step({});
  EXPECT_EQ(half.connector->lazy_cursor(), 10u) << "2 * (2 + 3)";
  KVCacheSpec mamba = full(4);
  mamba.kind = KVCacheSpecKind::kMamba;
  spec.kv_cache.groups.back() = mamba;
  Half other = half_of(spec);
  other.step({});
  EXPECT_EQ(other.connector->lazy_cursor(), 8u) << "2 * (2 + 2)";
}

TEST(SimpleCPUOffloadSpec, WhatCanBeBuilt) {
  EXPECT_FALSE(check_spec(spec_of(Profile::kV019)));
  EXPECT_FALSE(check_spec(spec_of(Profile::kV023, 9, {window_of(8, 4), full(4)})));
  EXPECT_TRUE(check_spec(spec_of(Profile::kV019, 0)));
  EXPECT_TRUE(check_spec(spec_of(Profile::kV023, 9, {window_of(8, 4)})));
  EXPECT_FALSE(check_spec(spec_of(Profile::kV019, 9, {full(4), window_of(2, 4)})));
  EXPECT_TRUE(check_spec(spec_of(Profile::kV019, 9, {full(4), window_of(1, 4)})));
  EXPECT_TRUE(check_spec(spec_of(Profile::kV019, 9, {full(8), window_of(8, 4)})));
  EXPECT_FALSE(check_spec(spec_of(Profile::kV023, 9, {full(8), window_of(8, 4)})));
  SimpleCPUOffloadSpec spec = spec_of(Profile::kV023, 9, {full(4), window_of(8, 4)});
  spec.kv_cache.use_eagle = true;
  spec.kv_cache.eagle_groups = {1};
  EXPECT_FALSE(check_spec(spec));
  spec.kv_cache.pool.rules.simple_offload_pins_hits = false;
  EXPECT_TRUE(check_spec(spec)) << "a second lookup drops a block again";
  spec.kv_cache.pool.rules.simple_offload_pins_hits = true;
  spec.kv_cache.groups.back() = full(4);
  spec.kv_cache.groups.back().kind = KVCacheSpecKind::kMamba;
  EXPECT_TRUE(check_spec(spec)) << "a hit may overshoot";
  spec = spec_of(Profile::kV023);
  spec.num_workers = 0;
  EXPECT_TRUE(check_spec(spec));
  spec = spec_of(Profile::kV023);
  spec.kv_cache.pool.enable_caching = false;
  EXPECT_TRUE(check_spec(spec));
}

}  // namespace
}  // namespace kvfence
