// Tests the scheduler's half on both sides, in both forms, with a handmade host and steps. GPU
// blocks and hashes have 4 tokens unless a test says otherwise. A key is shown as its request and
// its place among the request's offloaded blocks, "A0"; with several groups "A0/1". Scenarios of
// whole engines are in scenarios/cases/engine/offloading/.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/pool/block_hash.h"
#include "contract/scripted/scripted_tier.h"
#include "optimized/connectors/offloading/offloading_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "properties/kv_cache/group_draws.h"
#include "reference/connectors/offloading/offloading_connector.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;
using Jobs = std::vector<JobId>;
using Names = std::vector<std::string>;
using Tokens = std::vector<TokenId>;

OffloadingSpec spec_of(Profile profile, std::vector<KVCacheSpec> groups = {full(4)},
                       std::uint32_t capacity = 16) {
  OffloadingSpec spec;
  spec.manager.cache.capacity = capacity;
  spec.manager.enable_events = true;
  spec.manager.rules = rules_of(profile);
  spec.kv_cache.pool.num_gpu_blocks = 128;
  spec.kv_cache.pool.hash.hash_block_size = 4;
  spec.kv_cache.pool.rules = rules_of(profile);
  spec.kv_cache.groups = std::move(groups);
  return spec;
}

OffloadingSpec hold_spec(std::uint32_t block_size_factor = 1, std::uint32_t capacity = 16) {
  OffloadingSpec spec = spec_of(Profile::kV019, {full(4)}, capacity);
  spec.block_size_factor = block_size_factor;
  return spec;
}

OffloadingSpec fence_spec(std::vector<KVCacheSpec> groups = {full(4)},
                          std::uint32_t capacity = 16) {
  return spec_of(Profile::kV023, std::move(groups), capacity);
}

/// `num_tokens` tokens that begin with `first`.
Tokens tokens_of(TokenId first, std::uint32_t num_tokens) {
  Tokens tokens(num_tokens, 1);
  tokens.front() = first;
  return tokens;
}

std::string text_of(std::span<const std::uint32_t> numbers) {
  std::string text = "[";
  for (const std::uint32_t number : numbers) {
    if (text.size() > 1) text += " ";
    text += std::to_string(number);
  }
  return text + "]";
}

/// "A [3 4] at 2 -> [0 1]": GPU blocks, block_indices, slots. Several groups: "A [3 4] of [1 1] at
/// [2 5] -> [0 1]".
Names text_of(const std::vector<TransferJob>& jobs) {
  Names all;
  for (const TransferJob& job : jobs) {
    std::string text = job.request + " " + text_of(job.spec.gpu_blocks);
    if (job.spec.group_sizes.size() > 1) text += " of " + text_of(job.spec.group_sizes);
    if (!job.spec.block_indices.empty()) text += " at " + text_of(job.spec.block_indices);
    all.push_back(text + (job.spec.is_store ? " -> " : " <- ") + text_of(job.spec.slots));
  }
  return all;
}

Jobs numbers_of(const std::vector<TransferJob>& jobs) {
  Jobs numbers;
  for (const TransferJob& job : jobs) numbers.push_back(job.job);
  return numbers;
}

using Maker = BySide<decltype(&reference::make_offloading_connector_scheduler)>;
constexpr Maker kSides[] = {{"reference", reference::make_offloading_connector_scheduler},
                            {"optimized", optimized::make_offloading_connector_scheduler}};

/// A scheduler's half and its engine.
class Half final : public ConnectorHost {
 public:
  Half(const Maker& make, const OffloadingSpec& given, std::vector<SecondaryTierHandle> tiers)
      : spec(given), connector(make.make(given, std::move(tiers))) {}

  /// A request's part of a step.
  struct Entry {
    std::string id;
    std::uint32_t num_tokens = 0;
    BlocksByGroup new_blocks;  ///< empty: no group got a block
    bool resumed = false;
  };

  void add(const std::string& id, Tokens tokens,
           std::optional<std::uint32_t> max_offload_tokens = std::nullopt) {
    const auto index = static_cast<RequestIndex>(requests_.size());
    requests_.push_back(std::make_unique<Known>(
        Known{id,
              Request({std::move(tokens), std::nullopt, std::nullopt, {}}, spec.kv_cache.pool.hash),
              0,
              0,
              {max_offload_tokens}}));
    Known& known = *requests_.back();
    known.num_prompt_tokens = static_cast<std::uint32_t>(known.request.all_token_ids().size());
    if (spec.manager.rules.connector_learns_new_requests) {
      connector->on_new_request(request(index));
    }
  }

  /// "8 async", "0", "again".
  std::string match(const std::string& id, std::uint32_t num_local_tokens = 0) {
    const MatchedTokens matched =
        connector->get_num_new_matched_tokens(request(index(id)), num_local_tokens);
    if (!matched.num_tokens) return "again";
    return std::to_string(*matched.num_tokens) + (matched.load_async ? " async" : "");
  }

  /// Admits the request with all its blocks; the first `cached` have a key.
  void alloc(const std::string& id, const BlocksByGroup& blocks, std::uint32_t num_external_tokens,
             std::set<BlockId> cached = {}) {
    cached_ = std::move(cached);
    connector->update_state_after_alloc(*this, request(index(id)), blocks, num_external_tokens);
  }

  /// Plans a step; requests that no earlier step had are new.
  const OffloadingConnectorMetadata& step(const std::vector<Entry>& entries,
                                          const Names& preempted = {}) {
    SchedulerOutput output;
    const auto append_lists = [&](const BlocksByGroup& blocks) {
      const auto first_list = static_cast<std::uint32_t>(output.block_lists.size());
      for (const Ids& group : blocks) {
        output.block_lists.append(group);
        output.block_lists.end_list();
      }
      return first_list;
    };
    for (const Entry& entry : entries) {
      const RequestIndex at = index(entry.id);
      output.scheduled.emplace_back().request = at;
      output.scheduled.back().num_tokens = entry.num_tokens;
      if (scheduled_.insert(entry.id).second) {
        output.scheduled_new_reqs.emplace_back().request = at;
        output.scheduled_new_reqs.back().first_list = append_lists(entry.new_blocks);
      } else {
        SchedulerOutput::Cached& cached = output.scheduled_cached_reqs.emplace_back();
        cached.request = at;
        cached.resumed = entry.resumed;
        if (!entry.new_blocks.empty()) cached.first_list = append_lists(entry.new_blocks);
      }
    }
    for (const std::string& id : preempted) {
      output.preempted.push_back(index(id));
      requests_[index(id)]->num_computed_tokens = 0;
    }
    metadata_ = connector->build_connector_meta(*this, output);
    for (const Entry& entry : entries) {
      requests_[index(entry.id)]->num_computed_tokens += entry.num_tokens;
    }
    return dynamic_cast<const OffloadingConnectorMetadata&>(*metadata_);
  }

  /// Admits the request and computes its whole prompt in one step, in these blocks.
  const OffloadingConnectorMetadata& prefill(const std::string& id, const BlocksByGroup& blocks) {
    alloc(id, blocks, 0);
    const auto num_tokens = requests_[index(id)]->num_prompt_tokens;
    return step({{.id = id, .num_tokens = num_tokens, .new_blocks = blocks}});
  }

  void computed(const std::string& id, std::uint32_t num_tokens) {
    requests_[index(id)]->num_computed_tokens = num_tokens;
  }
  void append(const std::string& id, const Tokens& tokens) {
    requests_[index(id)]->request.append_output_token_ids(tokens);
  }

  void received(const Names& ids) { report({indices(ids), {}, {}, {}}); }
  void sent(const Names& ids) { report({{}, indices(ids), {}, {}}); }
  /// Jobs that one worker reports.
  void completed(const Jobs& jobs, bool success = true) {
    KVConnectorOutput output;
    for (const JobId job : jobs) output.completed_jobs.push_back({job, 1, success ? 0u : 1u});
    report(output);
  }
  void report(const KVConnectorOutput& output) {
    connector->update_connector_output(*this, output);
  }
  bool finish(const std::string& id) {
    return connector->request_finished(*this, request(index(id)), {});
  }

  /// The manager's blocks, the oldest first: "A0 A1? B0+1" for ready, being written, read by one.
  std::string held() const {
    PolicyLists lists;
    connector->policy_lists(lists);
    std::string text;
    for (const PolicyEntry& block : lists.t1) {
      if (!text.empty()) text += " ";
      text += name_of(block.key);
      if (block.status.ref_cnt == kNotReady) text += "?";
      if (block.status.ref_cnt > 0) text += "+" + std::to_string(block.status.ref_cnt);
    }
    return text;
  }

  ScriptedTier& tier(std::uint32_t place) {
    return dynamic_cast<ScriptedTier&>(*connector->tiering()->tiers()[place].get());
  }
  /// The key of a request's block in the first group, for a tier.
  OffloadKey key_of(const std::string& id, std::uint32_t block) const {
    return make_block_hash_with_group_id(requests_[index(id)]->request.block_hashes(4)[block], 0);
  }
  /// The calls to the tiers since the last time: "lookup 0 hit A0", "submit_load 1 A0 A1".
  Names calls() {
    Names all;
    for (const TierCall& call : *tier(0).calls()) {
      std::string text = call.method + " " + std::to_string(call.tier);
      if (!call.answer.empty()) text += " " + call.answer;
      for (const OffloadKey& key : call.keys) text += " " + name_of(key);
      all.push_back(std::move(text));
    }
    tier(0).calls()->clear();
    return all;
  }

  std::string name_of(OffloadKeyView key) const {
    const bool fences = spec.manager.rules.offload_fences_reuse;
    const std::uint32_t group = fences ? get_group_id(key) : 0;
    const std::uint32_t factor =
        spec.kv_cache.groups[group].block_size / 4 * spec.block_size_factor;
    for (const auto& known : requests_) {
      const BlockHashListView hashes = known->request.block_hashes(4);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        if (hashes[i] != (fences ? get_block_hash(key) : key)) continue;
        EXPECT_EQ(i % factor, factor - 1) << "a key is that of the last hash block";
        std::string text = known->id + std::to_string(i / factor);
        return spec.kv_cache.groups.size() > 1 ? text + "/" + std::to_string(group) : text;
      }
    }
    return "?";
  }

  // ConnectorHost
  ConnectorRequest request(RequestIndex at) const override {
    const Known& known = *requests_[at];
    return {.index = at,
            .id = known.id,
            .request = known.request,
            .num_prompt_tokens = known.num_prompt_tokens,
            .num_computed_tokens = known.num_computed_tokens,
            .params = known.params};
  }
  bool is_cached(BlockId block) const override { return cached_.contains(block); }

  OffloadingSpec spec;
  std::unique_ptr<OffloadingConnectorScheduler> connector;

 private:
  struct Known {
    std::string id;
    Request request;
    std::uint32_t num_prompt_tokens = 0;
    std::uint32_t num_computed_tokens = 0;
    KVTransferParams params;
  };

  RequestIndex index(const std::string& id) const {
    RequestIndex at = 0;
    while (at < requests_.size() && requests_[at]->id != id) ++at;
    EXPECT_LT(at, requests_.size()) << id;
    return at;
  }
  std::vector<RequestIndex> indices(const Names& ids) const {
    std::vector<RequestIndex> all;
    for (const std::string& id : ids) all.push_back(index(id));
    return all;
  }

  std::vector<std::unique_ptr<Known>> requests_;
  std::set<std::string> scheduled_;
  std::set<BlockId> cached_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
};

/// Stores `blocks` of a request with `num_tokens` tokens, except null blocks.
void store(Half& half, const std::string& id, std::uint32_t num_tokens, const BlocksByGroup& blocks,
           bool complete = true) {
  half.add(id, tokens_of(1, num_tokens));
  const Jobs jobs = numbers_of(half.prefill(id, blocks).stores);
  if (complete) half.completed(jobs);
}

class OffloadingConnectorRules : public ::testing::TestWithParam<Maker> {
 protected:
  static Half half_of(const OffloadingSpec& spec, std::vector<SecondaryTierHandle> tiers = {}) {
    return {GetParam(), spec, std::move(tiers)};
  }

  /// Makes keys for a lookup by `pattern`: "h" hit, "m" miss, "?" being written. Returns how many
  /// blocks of them one group finds.
  static std::string found(const KVCacheSpec& group, const std::string& pattern) {
    Half half = half_of(fence_spec({group}));
    const auto num_tokens = static_cast<std::uint32_t>(4 * pattern.size() + 1);
    const auto store_where = [&](const std::string& id, char wanted) {
      half.add(id, tokens_of(1, num_tokens));
      Ids blocks;
      for (std::size_t i = 0; i < pattern.size(); ++i) {
        blocks.push_back(pattern[i] == wanted ? static_cast<BlockId>(i + 1) : kNullBlockId);
      }
      blocks.push_back(99);
      return half.prefill(id, {blocks}).stores.size();
    };
    if (store_where("hits", 'h') > 0) half.completed({0});
    store_where("pending", '?');
    half.add("A", tokens_of(1, num_tokens));
    return half.match("A");
  }

  /// A filter of two lookups shows how often each key was looked up.
  static std::string twice_looked_up(const KVCacheSpec& group) {
    OffloadingSpec spec = fence_spec({group});
    spec.manager.store_threshold = 2;
    Half half = half_of(spec);
    half.add("A", tokens_of(1, 13));
    half.match("A");
    half.match("A");
    const auto& metadata = half.prefill("A", {{1, 2, 3, 4}});
    return metadata.stores.empty() ? "" : text_of(metadata.stores.front().spec.gpu_blocks);
  }
};
class HoldingConnector : public OffloadingConnectorRules {};
class FencingConnector : public OffloadingConnectorRules {};
class TieredConnector : public OffloadingConnectorRules {};
INSTANTIATE_TEST_SUITE_P(Offloading, HoldingConnector, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Offloading, FencingConnector, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Offloading, TieredConnector, ::testing::ValuesIn(kSides), SideNames());

// Hold.

// Upstream: test_offloading_connector, its blocks of three.
TEST_P(HoldingConnector, StoresFullOffloadedBlocksUnderTheirLastHash) {
  Half half = half_of(hold_spec(/*block_size_factor=*/3));
  half.add("A", tokens_of(1, 35));
  const auto& metadata = half.prefill("A", {{11, 12, 13, 14, 15, 16, 17, 18, 19}});
  EXPECT_EQ(text_of(metadata.stores), Names({"A [11 12 13 14 15 16] -> [0 1]"}))
      << "the third block is not full";
  EXPECT_EQ(half.held(), "A1? A0?") << "touched after the insertion: the first ends as the newest";
}

TEST_P(HoldingConnector, OnlyWhatIsNotHeldIsStored) {
  Half half = half_of(hold_spec(3));
  half.add("A", tokens_of(1, 24));
  half.add("B", tokens_of(1, 36));
  half.prefill("A", {{11, 12, 13, 14, 15, 16}});
  EXPECT_EQ(text_of(half.prefill("B", {{21, 22, 23, 24, 25, 26, 27, 28, 29}}).stores),
            Names({"B [27 28 29] -> [2]"}));
}

TEST_P(HoldingConnector, StoresGoOnWhereTheyEnded) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 12));
  half.alloc("A", {{1, 2, 3}}, 0);
  EXPECT_EQ(text_of(half.step({{"A", 6, {{1, 2}}}}).stores), Names({"A [1] -> [0]"}));
  EXPECT_EQ(text_of(half.step({{"A", 1, {}}}).stores), Names());
  EXPECT_EQ(text_of(half.step({{"A", 5, {{3}}}}).stores), Names({"A [2 3] -> [1 2]"}));
}

TEST_P(HoldingConnector, TokensThatAreNotThereYetAreNotStored) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 7));
  half.alloc("A", {{1, 2}}, 0);
  half.step({{"A", 7, {{1, 2}}}});
  EXPECT_EQ(text_of(half.step({{"A", 1, {}}}).stores), Names()) << "an output is planned";
  half.append("A", {5});
  half.computed("A", 7);
  EXPECT_EQ(text_of(half.step({{"A", 1, {}}}).stores), Names({"A [2] -> [1]"}));
}

TEST_P(HoldingConnector, NothingToStoreMovesTheCursorAndTouchesNothing) {
  Half half = half_of(hold_spec(1, /*capacity=*/2));
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(1, 8));
  half.prefill("A", {{1, 2}});
  half.sent({"A"});
  EXPECT_EQ(half.held(), "A1 A0");
  half.prefill("B", {{3, 4}});
  EXPECT_EQ(half.held(), "A1 A0");
  half.add("C", tokens_of(3, 8));
  half.prefill("C", {{5, 6}});
  half.sent({"C"});
  EXPECT_EQ(text_of(half.step({{"B", 1, {}}}).stores), Names()) << "though no block of B is held";
}

TEST_P(HoldingConnector, AResumedRequestHasOtherBlocks) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 12));
  half.alloc("A", {{1, 2}}, 0);
  half.step({{"A", 8, {{1, 2}}}});
  half.step({}, {"A"});
  half.alloc("A", {{5, 6, 7}}, 0);
  EXPECT_EQ(text_of(half.step({{"A", 12, {{5, 6, 7}}, true}}).stores), Names({"A [7] -> [2]"}))
      << "the cursor is kept over the preemption";
}

TEST_P(HoldingConnector, NewRequestsArePlannedBeforeCachedOnes) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(2, 4));
  half.alloc("A", {{1, 2}}, 0);
  half.step({{"A", 4, {{1}}}});
  half.alloc("B", {{3}}, 0);
  EXPECT_EQ(text_of(half.step({{"A", 4, {{2}}}, {"B", 4, {{3}}}}).stores),
            Names({"B [3] -> [1]", "A [2] -> [2]"}));
}

TEST_P(HoldingConnector, ALookupTouchesEverythingFirst) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(2, 4));
  half.prefill("A", {{1, 2}});
  half.prefill("B", {{3}});
  EXPECT_EQ(half.held(), "A1? A0? B0?");
  half.add("C", tokens_of(1, 8));
  EXPECT_EQ(half.match("C", 8), "0") << "nothing is left to load";
  EXPECT_EQ(half.held(), "B0? A1? A0?");
}

// Upstream: test_offloading_connector: one token short, a miss, a hit, a hit in the middle.
TEST_P(HoldingConnector, LessThanABlockIsNotLoaded) {
  Half half = half_of(hold_spec(3));
  half.add("A", tokens_of(1, 24));
  half.add("B", tokens_of(1, 23));
  half.add("C", tokens_of(1, 24));
  half.prefill("A", {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(half.match("C"), "0") << "it is being written";
  half.sent({"A"});
  EXPECT_EQ(half.match("C"), "24 async");
  EXPECT_EQ(half.match("B"), "12 async");
  EXPECT_EQ(half.match("C", 4), "20 async");
  EXPECT_EQ(half.match("C", 12), "12 async");
  EXPECT_EQ(half.match("C", 16), "0") << "8 tokens are left";
}

TEST_P(HoldingConnector, AHitOfLessThanABlockIsNone) {
  Half half = half_of(hold_spec(3));
  half.add("A", tokens_of(1, 12));
  half.add("B", tokens_of(1, 24));
  half.prefill("A", {{1, 2, 3}});
  half.sent({"A"});
  EXPECT_EQ(half.match("B", 4), "0") << "the 8 tokens after the local hit";
  EXPECT_EQ(half.match("B"), "12 async");
}

TEST_P(HoldingConnector, ALoadGoesIntoTheBlocksWithoutAKey) {
  Half half = half_of(hold_spec(3));
  half.add("A", tokens_of(1, 24));
  half.add("B", tokens_of(1, 25));
  half.prefill("A", {{1, 2, 3, 4, 5, 6}});
  half.sent({"A"});
  EXPECT_EQ(half.match("B", 16), "0");
  EXPECT_EQ(half.match("B", 8), "16 async");
  half.alloc("B", {{1, 2, 13, 14, 15, 16}}, 16, /*cached=*/{1, 2});
  EXPECT_EQ(half.held(), "A1+1 A0+1");
  const auto& metadata = half.step({});
  EXPECT_EQ(text_of(metadata.loads), Names({"B [13 14 15 16] at [2] <- [0 1]"}));
  EXPECT_EQ(text_of(half.step({}).loads), Names()) << "reported once";
  half.received({"B"});
  EXPECT_EQ(half.held(), "A1 A0");
}

TEST_P(HoldingConnector, TheCursorStandsAfterWhatIsLoaded) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(1, 12));
  half.prefill("A", {{1}});
  half.sent({"A"});
  EXPECT_EQ(half.match("B"), "4 async");
  half.alloc("B", {{2}}, 4);
  half.step({});
  half.received({"B"});
  half.computed("B", 4);
  half.alloc("B", {{2, 3, 4}}, 0);
  EXPECT_EQ(text_of(half.step({{"B", 8, {{2, 3, 4}}}}).stores), Names({"B [3 4] -> [1 2]"}));
  half.step({}, {"B"});
  half.alloc("B", {{5}}, 4);
  half.step({});
  half.received({"B"});
  half.computed("B", 4);
  half.alloc("B", {{5, 6, 7}}, 0);
  half.add("C", tokens_of(3, 64));
  half.prefill("C", {{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25}});
  EXPECT_EQ(half.held().find('B'), std::string::npos) << "C is all that fits";
  half.sent({"C"});
  EXPECT_EQ(half.step({{"B", 8, {{5, 6, 7}}}}).stores.at(0).spec.gpu_blocks, Ids({6, 7}))
      << "it moved back with the load";
}

// Upstream: test_concurrent_lookups_of_the_same_prefix.
TEST_P(HoldingConnector, WhatIsBeingLoadedIsWaitedFor) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 8));
  half.prefill("A", {{1, 2}});
  half.sent({"A"});
  half.add("B", tokens_of(1, 4));
  half.add("C", tokens_of(1, 8));
  half.match("B");
  half.alloc("B", {{3}}, 4);
  EXPECT_EQ(half.match("C"), "again");
  EXPECT_EQ(half.match("C", 4), "4 async") << "the second block is not being loaded";
  half.received({"B"});
  EXPECT_EQ(half.match("C"), "8 async");
}

TEST_P(HoldingConnector, WithoutPrefixCachingNothingIsWaitedFor) {
  OffloadingSpec spec = hold_spec();
  spec.kv_cache.pool.enable_caching = false;
  Half half = half_of(spec);
  half.add("A", tokens_of(1, 4));
  half.prefill("A", {{1}});
  half.sent({"A"});
  half.add("B", tokens_of(1, 4));
  half.add("C", tokens_of(1, 4));
  half.match("B");
  half.alloc("B", {{3}}, 4);
  EXPECT_EQ(half.match("C"), "4 async");
  half.alloc("C", {{4}}, 4);
  EXPECT_EQ(half.held(), "A0+2");
}

TEST_P(HoldingConnector, ARequestThatEverStoredIsHeldUntilItIsSent) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(2, 3));
  half.add("C", tokens_of(3, 4));
  half.prefill("A", {{1}});
  half.prefill("B", {{2}});
  half.prefill("C", {{3}});
  EXPECT_TRUE(half.finish("A"));
  EXPECT_FALSE(half.finish("B")) << "it had nothing to store";
  half.step({}, {"C"});
  EXPECT_TRUE(half.finish("C")) << "its store was completed with its preemption";
  EXPECT_EQ(half.held(), "A0? C0");
  half.sent({"A", "C"});
  EXPECT_EQ(half.held(), "A0 C0");
}

TEST_P(HoldingConnector, ALoadForgetsEarlierStores) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 4));
  half.prefill("A", {{1}});
  half.step({}, {"A"});
  EXPECT_EQ(half.match("A"), "4 async");
  half.alloc("A", {{2}}, 4);
  EXPECT_FALSE(half.finish("A")) << "its load alone holds it";
  half.received({"A"});
  EXPECT_EQ(half.held(), "A0");
}

TEST_P(HoldingConnector, AFinishedRequestIsForgotten) {
  Half half = half_of(hold_spec(1, /*capacity=*/1));
  half.add("A", tokens_of(1, 4));
  half.add("B", tokens_of(2, 4));
  half.prefill("A", {{1}});
  half.finish("A");
  half.sent({"A"});
  half.prefill("B", {{2}});
  half.sent({"B"});
  half.computed("A", 0);
  EXPECT_EQ(text_of(half.prefill("A", {{3}}).stores), Names({"A [3] -> [0]"}))
      << "another request of that id begins with its first block";
}

TEST_P(HoldingConnector, PendingStoresAreCompletedInTheOrderOfPlanning) {
  Half half = half_of(hold_spec());
  half.add("A", tokens_of(1, 12));
  half.alloc("A", {{1, 2, 3}}, 0);
  half.step({{"A", 8, {{1, 2}}}});
  half.step({{"A", 4, {{3}}}});
  half.sent({"A"});
  std::vector<KVCacheEvent> events;
  half.connector->take_events(events);
  ASSERT_EQ(events.size(), 1u) << "in one call";
  const BlockHashListView hashes = half.request(0).request.block_hashes(4);
  BlockStored expected;
  expected.block_hashes = {BlockHash(hashes[0]), BlockHash(hashes[1]), BlockHash(hashes[2])};
  expected.block_size = 4;
  expected.medium = "CPU";
  EXPECT_EQ(std::get<BlockStored>(events.front()), expected);
  half.connector->take_events(events);
  EXPECT_EQ(events.size(), 1u) << "reported once, and appended to what is there";
}

TEST_P(HoldingConnector, AnEvictionIsOneEventPerBlock) {
  Half half = half_of(hold_spec(2, /*capacity=*/2));
  half.add("A", tokens_of(1, 16));
  half.add("B", tokens_of(2, 16));
  half.prefill("A", {{1, 2, 3, 4}});
  half.sent({"A"});
  std::vector<KVCacheEvent> events;
  half.connector->take_events(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<BlockStored>(events.front()).block_size, 8u) << "of the offloaded block";
  events.clear();
  half.prefill("B", {{5, 6, 7, 8}});
  half.connector->take_events(events);
  ASSERT_EQ(events.size(), 2u);
  const BlockHashListView hashes = half.request(0).request.block_hashes(4);
  BlockRemoved expected;
  expected.block_hash = BlockHash(hashes[3]);
  expected.medium = "CPU";
  EXPECT_EQ(std::get<BlockRemoved>(events[0]), expected);
  expected.block_hash = BlockHash(hashes[1]);
  EXPECT_EQ(std::get<BlockRemoved>(events[1]), expected);
}

// Fence: lookups.

// Upstream: TestMaximalPrefixLookup, all cases.
TEST_P(FencingConnector, FullAttentionFindsAPrefix) {
  EXPECT_EQ(found(full(4), "hh"), "8 async");
  EXPECT_EQ(found(full(4), "mm"), "0");
  EXPECT_EQ(found(full(4), "hhm"), "8 async");
  EXPECT_EQ(found(full(4), "mh"), "0");
  EXPECT_EQ(found(full(4), "h"), "4 async");
  EXPECT_EQ(found(full(4), ""), "0");
  EXPECT_EQ(found(full(4), "?h"), "again");
  EXPECT_EQ(found(full(4), "h?"), "again");
  EXPECT_EQ(found(full(4), "?mh"), "again");
}

// Upstream: TestSlidingWindowLookup, all cases.
TEST_P(FencingConnector, AWindowFindsTheLastRunThatFillsIt) {
  EXPECT_EQ(found(window_of(8, 4), "hh"), "8 async");
  EXPECT_EQ(found(window_of(8, 4), "mm"), "0");
  EXPECT_EQ(found(window_of(8, 4), "mhh"), "12 async");
  EXPECT_EQ(found(window_of(8, 4), "mhhm"), "12 async");
  EXPECT_EQ(found(window_of(12, 4), "hhm"), "8 async") << "the run that reaches the first";
  EXPECT_EQ(found(window_of(4, 4), "mhh"), "12 async");
  EXPECT_EQ(found(window_of(8, 4), "mhhmh"), "12 async");
  EXPECT_EQ(found(window_of(8, 4), "hhmhh"), "20 async");
  EXPECT_EQ(found(window_of(16, 4), "hmhhh"), "4 async");
  EXPECT_EQ(found(window_of(8, 4), ""), "0");
  EXPECT_EQ(found(window_of(8, 4), "h?"), "again");
  EXPECT_EQ(found(window_of(8, 4), "hh?h"), "again");
  EXPECT_EQ(found(window_of(8, 4), "m?"), "again")
      << "a pending one is waited for even if all miss";
}

TEST_P(FencingConnector, AWindowIsRoundedUpToOffloadedBlocksAndMambaNeedsOne) {
  EXPECT_EQ(found(window_of(5, 4), "hm"), "4 async");
  EXPECT_EQ(found(window_of(5, 4), "mhm"), "0") << "two blocks";
  EXPECT_EQ(found(window_of(4, 4), "mhm"), "8 async") << "one block";
  EXPECT_EQ(found(mamba(4), "mhm"), "8 async");
}

TEST_P(FencingConnector, ALookupEndsWhereItsAnswerIsKnown) {
  EXPECT_EQ(twice_looked_up(full(4)), "[1]") << "the first is missing";
  EXPECT_EQ(twice_looked_up(window_of(8, 4)), "[1 2 3]") << "no window is full";
}

TEST_P(FencingConnector, TheLastTokenIsLeftOutWhereAGroupHasAWindow) {
  for (const bool windowed : {false, true}) {
    Half half = half_of(fence_spec({windowed ? window_of(8, 4) : full(4)}));
    half.add("A", tokens_of(1, 12));
    half.prefill("A", {{1, 2, 3}});
    half.completed({0});
    half.add("B", tokens_of(1, 8));
    EXPECT_EQ(half.match("B"), windowed ? "7 async" : "8 async");
    half.add("C", tokens_of(1, 9));
    EXPECT_EQ(half.match("C"), "8 async");
  }
}

TEST_P(FencingConnector, LessThanABlockIsNotLoaded) {
  Half half = half_of(fence_spec());
  half.add("A", tokens_of(1, 8));
  half.prefill("A", {{1, 2}});
  half.completed({0});
  half.add("B", tokens_of(1, 11));
  EXPECT_EQ(half.match("B", 4), "4 async");
  EXPECT_EQ(half.match("B", 5), "0");
  EXPECT_EQ(half.match("B", 8), "0");
}

TEST_P(FencingConnector, FullAttentionIsAskedFirstThenTheGreatestWindow) {
  OffloadingSpec spec = fence_spec({window_of(4, 4), full(4), window_of(8, 4)});
  spec.manager.store_threshold = 2;
  Half half = half_of(spec);
  half.add("A", tokens_of(1, 5));
  half.match("A");
  half.match("A");
  EXPECT_EQ(text_of(half.prefill("A", {{1, 2}, {11, 12}, {21, 22}}).stores),
            Names({"A [11] of [0 1 0] at [0 0 0] -> [0]"}));
  half.completed({0});
  half.add("B", tokens_of(1, 5));
  half.match("B");
  half.match("B");
  EXPECT_EQ(text_of(half.prefill("B", {{1, 2}, {11, 12}, {21, 22}}).stores),
            Names({"B [21] of [0 0 1] at [0 0 0] -> [1]"}));
}

TEST_P(FencingConnector, AShorterHitSendsWindowsIntoAnotherPass) {
  Half half = half_of(fence_spec({full(4), window_of(8, 4), mamba(4)}));
  store(half, "A", 17, {{1, 2, 3, 4, 5}, {1, 0, 3, 4, 5}, {1, 0, 3, 0, 5}});
  half.add("B", tokens_of(1, 17));
  EXPECT_EQ(half.match("B"), "4 async") << "12 tokens, and then the window has a gap";
  half.add("C", tokens_of(1, 13));
  EXPECT_EQ(half.match("C"), "4 async");
}

TEST_P(FencingConnector, ADeferredLookupStartsAnewWithAShorterHit) {
  Half half = half_of(fence_spec({full(4), window_of(4, 4)}));
  store(half, "A", 17, {{1, 2, 0, 4, 5}, {0, 12, 0, 0, 15}});
  store(half, "B", 17, {{1, 2, 3, 4, 5}, {0, 0, 0, 0, 15}}, /*complete=*/false);
  half.add("C", tokens_of(1, 17));
  EXPECT_EQ(half.match("C"), "8 async") << "the pending one comes after it";
}

TEST_P(FencingConnector, ADeferredLookupAsksAgain) {
  Half half = half_of(fence_spec({full(4), window_of(4, 4)}));
  store(half, "A", 9, {{1, 2, 3}, {11, 0, 13}});
  store(half, "B", 9, {{1, 2, 3}, {11, 12, 13}}, /*complete=*/false);
  half.add("C", tokens_of(1, 9));
  EXPECT_EQ(half.match("C"), "again");
}

TEST_P(FencingConnector, WhatIsBeingLoadedIsWaitedFor) {
  Half half = half_of(fence_spec({window_of(4, 4)}));
  store(half, "A", 17, {{1, 2, 3, 4, 5}});
  half.add("B", tokens_of(1, 13));
  half.add("C", tokens_of(1, 17));
  half.add("D", tokens_of(1, 13));
  EXPECT_EQ(half.match("B"), "12 async");
  half.alloc("B", {{0, 0, 23, 24}}, 12);
  EXPECT_EQ(half.match("C"), "16 async") << "no block of its window is being loaded";
  EXPECT_EQ(half.match("D"), "again");
  half.step({});
  half.completed({1});
  EXPECT_EQ(half.match("D"), "12 async");
}

TEST_P(FencingConnector, WithoutPrefixCachingNothingIsWaitedFor) {
  OffloadingSpec spec = fence_spec();
  spec.kv_cache.pool.enable_caching = false;
  Half half = half_of(spec);
  store(half, "A", 4, {{1}});
  half.add("B", tokens_of(1, 4));
  half.add("C", tokens_of(1, 4));
  half.match("B");
  half.alloc("B", {{2}}, 4);
  EXPECT_EQ(half.match("C"), "4 async");
}

// The release after v0.23.0: test_pending_transfer_defers_prefix_lookup (vllm#46014).
TEST_P(FencingConnector, ARequestWithJobsUnderWayIsAskedForAgainAndTouchesNothing) {
  Half half = half_of(fence_spec());
  store(half, "A", 8, {{1, 2}}, /*complete=*/false);
  store(half, "B", 8, {{1, 2}});
  half.add("C", tokens_of(3, 4));
  half.prefill("C", {{3}});
  EXPECT_EQ(half.held(), "A1? A0? C0?");
  half.step({}, {"A"});
  EXPECT_EQ(half.match("A"), "again");
  EXPECT_EQ(half.held(), "A1? A0? C0?");
  half.completed({0});
  EXPECT_EQ(half.match("A"), "8 async");
}

TEST_P(FencingConnector, OfAWindowedGroupOnlyWhatTheHitNeedsIsTouched) {
  Half half = half_of(fence_spec({window_of(8, 4)}));
  store(half, "A", 13, {{1, 2, 3, 4}});
  EXPECT_EQ(half.held(), "A2 A1 A0");
  half.add("B", tokens_of(1, 13));
  half.match("B");
  EXPECT_EQ(half.held(), "A0 A2 A1");
}

TEST_P(FencingConnector, GroupsAreTouchedByNumber) {
  Half half = half_of(fence_spec({window_of(4, 4), full(4)}));
  store(half, "A", 9, {{1, 2, 3}, {11, 12, 13}});
  EXPECT_EQ(half.held(), "A1/0 A0/0 A1/1 A0/1");
}

// Fence: loads.

// Upstream: test_two_groups_full_and_sliding_window.
TEST_P(FencingConnector, OneJobLoadsAllGroups) {
  Half half = half_of(fence_spec({full(4), window_of(8, 4)}));
  store(half, "A", 12, {{1, 2, 3}, {11, 12, 13}});
  half.add("B", tokens_of(1, 17));
  EXPECT_EQ(half.match("B"), "12 async");
  half.alloc("B", {{21, 22, 23}, {0, 32, 33}}, 12);
  EXPECT_EQ(half.held(), "A0/1 A2/0+1 A1/0+1 A0/0+1 A2/1+1 A1/1+1");
  const OffloadingConnectorMetadata metadata = half.step({});
  EXPECT_EQ(text_of(metadata.loads),
            Names({"B [21 22 23 32 33] of [3 2] at [0 1] <- [0 1 2 4 5]"}));
  EXPECT_EQ(numbers_of(metadata.loads), Jobs({1})) << "numbered with the stores";
  EXPECT_EQ(text_of(half.step({}).loads), Names()) << "reported once";
  half.completed({1});
  half.computed("B", 12);
  half.alloc("B", {{21, 22, 23, 24, 25}, {0, 32, 33, 34, 35}}, 0);
  EXPECT_EQ(text_of(half.step({{"B", 5, {{21, 22, 23, 24, 25}, {0, 32, 33, 34, 35}}}}).stores),
            Names({"B [24 34] of [1 1] at [3 3] -> [6 7]"}));
}

// Upstream: test_two_groups_different_block_sizes, with its numbers.
TEST_P(FencingConnector, ALoadIsRoundedUpToTheBlocksOfEachGroup) {
  Half half = half_of(fence_spec({full(12), full(16)}));
  store(half, "A", 85, {{1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16}});
  half.add("B", tokens_of(1, 85));
  EXPECT_EQ(half.match("B", 48), "32 async");
  half.alloc("B", {{21, 22, 23, 24, 25, 26, 27}, {31, 32, 33, 34, 35}}, 32,
             /*cached=*/{21, 22, 23, 24, 31, 32, 33});
  EXPECT_EQ(text_of(half.step({}).loads),
            Names({"B [25 26 27 34 35] of [3 2] at [4 3] <- [4 5 6 10 11]"}));
}

TEST_P(FencingConnector, AGroupThatHasAllItNeedsLoadsNothing) {
  Half half = half_of(fence_spec({full(4), full(8)}));
  store(half, "A", 8, {{1, 2}, {11}});
  half.add("B", tokens_of(1, 8));
  EXPECT_EQ(half.match("B"), "8 async");
  half.alloc("B", {{21, 22}, {31}}, 8, /*cached=*/{31});
  EXPECT_EQ(text_of(half.step({}).loads), Names({"B [21 22] of [2 0] at [0 1] <- [0 1]"}));
}

TEST_P(FencingConnector, ALoadMayBeginInTheMiddleOfAnOffloadedBlock) {
  OffloadingSpec spec = fence_spec();
  spec.block_size_factor = 3;
  Half half = half_of(spec);
  store(half, "A", 24, {{1, 2, 3, 4, 5, 6}});
  half.add("B", tokens_of(1, 24));
  EXPECT_EQ(half.match("B", 8), "16 async");
  half.alloc("B", {{11, 12, 13, 14, 15, 16}}, 16, /*cached=*/{11, 12});
  EXPECT_EQ(text_of(half.step({}).loads), Names({"B [13 14 15 16] at [2] <- [0 1]"}));
}

// Upstream: test_request_level_policy_stores_all_blocks.
TEST_P(FencingConnector, TheRequestLevelPolicyStoresWhatWasLoaded) {
  for (const bool request_level_policy : {false, true}) {
    OffloadingSpec spec = fence_spec({full(4)}, /*capacity=*/3);
    spec.request_level_policy = request_level_policy;
    Half half = half_of(spec);
    store(half, "A", 8, {{1, 2}});
    half.add("B", tokens_of(1, 8));
    half.match("B");
    half.alloc("B", {{3, 4}}, 8);
    half.step({});
    half.completed({1});
    half.add("C", tokens_of(3, 12));
    half.prefill("C", {{5, 6, 7}});
    half.completed({2});
    half.computed("B", 7);
    half.alloc("B", {{3, 4}}, 0);
    EXPECT_EQ(text_of(half.step({{"B", 1, {{3, 4}}}}).stores).empty(), !request_level_policy);
  }
}

// Fence: stores.

TEST_P(FencingConnector, OfAWindowOnlyWholeBlocksAreStored) {
  OffloadingSpec spec = fence_spec({window_of(8, 4)});
  spec.block_size_factor = 3;
  Half half = half_of(spec);
  half.add("A", tokens_of(1, 36));
  EXPECT_EQ(text_of(half.prefill("A", {{0, 5, 6, 7, 8, 0, 1, 2, 3}}).stores),
            Names({"A [1 2 3] at [6] -> [0]"}));
}

TEST_P(FencingConnector, OfMambaTheLastStateIsEnough) {
  OffloadingSpec spec = fence_spec({mamba(4)});
  spec.block_size_factor = 3;
  Half half = half_of(spec);
  half.add("A", tokens_of(1, 24));
  EXPECT_EQ(text_of(half.prefill("A", {{0, 0, 6, 7, 8, 0}}).stores),
            Names({"A [6] at [2] -> [0]"}));
}

// Upstream: test_swa_alignment_skip, with its numbers.
TEST_P(FencingConnector, WindowBlocksThatNoHitCanNeedAreNotStored) {
  Half half = half_of(fence_spec({full(16), window_of(8, 4)}));
  half.add("A", tokens_of(1, 32));
  EXPECT_EQ(text_of(half.prefill("A", {{1, 2}, {11, 12, 13, 14, 15, 16, 17, 18}}).stores),
            Names({"A [1 2 13 14 17 18] of [2 4] at [0 2] -> [0 1 2 3 4 5]"}));
  half.completed({0});
  half.add("B", tokens_of(1, 33));
  EXPECT_EQ(half.match("B"), "32 async");
  half.alloc("B", {{21, 22}, {0, 0, 0, 0, 0, 0, 37, 38}}, 32);
  EXPECT_EQ(text_of(half.step({}).loads),
            Names({"B [21 22 37 38] of [2 2] at [0 6] <- [0 1 4 5]"}));
}

TEST_P(FencingConnector, AWindowAsLargeAsTheDistanceOfHitsIsStoredWhole) {
  Half half = half_of(fence_spec({full(8), window_of(8, 4)}));
  half.add("A", tokens_of(1, 16));
  EXPECT_EQ(text_of(half.prefill("A", {{1, 2}, {11, 12, 13, 14}}).stores),
            Names({"A [1 2 11 12 13 14] of [2 4] at [0 0] -> [0 1 2 3 4 5]"}));
}

// Upstream: test_stale_sliding_window_block_after_prepare_store_failure.
TEST_P(FencingConnector, AWindowBlockThatIsGivenOutAnewIsNotStored) {
  Half half = half_of(fence_spec({window_of(8, 4)}, /*capacity=*/2));
  half.add("A", tokens_of(2, 8));
  half.prefill("A", {{8, 9}});
  half.add("B", tokens_of(1, 12));
  half.alloc("B", {{1, 2}}, 0);
  half.step({{"B", 4, {{1}}}});
  half.step({{"B", 4, {{2}}}});
  half.completed({0});
  EXPECT_EQ(text_of(half.step({{"B", 4, {{1}}}}).stores), Names({"B [2 1] at [1] -> [0 1]"}))
      << "the first place had block 1 before";
}

// v0.23.0 checks only blocks after the cursor, which a reset moves back.
TEST_P(FencingConnector, AlsoAfterAResetAWindowBlockThatWasGivenOutAnewIsNotStored) {
  Half half = half_of(fence_spec({window_of(8, 4)}));
  half.add("A", tokens_of(1, 16));
  half.step({{"A", 8, {{1, 2}}}});
  half.step({{"A", 4, {{3}}}});
  EXPECT_EQ(text_of(half.step({{"A", 4, {{1}}}}).stores), Names({"A [1] at [3] -> [3]"}));
  half.connector->reset_cache();
  EXPECT_EQ(text_of(half.step({{"A", 1, {}}}).stores), Names({"A [2 3 1] at [1] -> [0 1 2]"}));
}

TEST_P(FencingConnector, CursorsFollowTheStepAlsoBack) {
  Half half = half_of(fence_spec({full(4)}, /*capacity=*/3));
  store(half, "A", 12, {{1, 2, 3}});
  half.step({}, {"A"});
  half.alloc("A", {{4, 5, 6}}, 0);
  half.step({{"A", 4, {{4}}, true}});
  half.add("B", tokens_of(2, 12));
  half.prefill("B", {{7, 8, 9}});
  half.completed({1});
  EXPECT_EQ(half.step({{"A", 8, {{5, 6}}}}).stores.at(0).spec.gpu_blocks, Ids({5, 6}))
      << "evicted meanwhile, from the step's first block on";
  EXPECT_EQ(half.held(), "B0 A2? A1?");
}

TEST_P(FencingConnector, StoresArePlannedInTheOrderOfTheStep) {
  Half half = half_of(fence_spec());
  half.add("A", tokens_of(1, 8));
  half.add("B", tokens_of(2, 4));
  half.step({{"A", 4, {{1}}}});
  EXPECT_EQ(text_of(half.step({{"A", 4, {{2}}}, {"B", 4, {{3}}}}).stores),
            Names({"A [2] at [1] -> [1]", "B [3] at [0] -> [2]"}));
}

// Fence: flushes.

// Upstream: test_fence_at_build_store_jobs.
TEST_P(FencingConnector, AJobIsFlushedBeforeABlockOfItsFinishedRequestIsUsedAgain) {
  Half half = half_of(fence_spec());
  store(half, "A", 8, {{1, 2}}, /*complete=*/false);
  half.add("B", tokens_of(2, 12));
  half.alloc("B", {{3, 2}}, 0);
  EXPECT_EQ(half.step({{"B", 4, {{3}}}}).jobs_to_flush, Jobs());
  EXPECT_FALSE(half.finish("A")) << "never holds";
  EXPECT_EQ(half.step({{"B", 4, {{2}}}}).jobs_to_flush, Jobs({0}));
  EXPECT_EQ(half.step({{"B", 4, {{4}}}}).jobs_to_flush, Jobs()) << "reported once";
}

TEST_P(FencingConnector, ARunningRequestsBlocksOfFullAttentionAreItsOwn) {
  Half half = half_of(fence_spec({full(4), window_of(4, 4)}));
  store(half, "A", 8, {{1, 2}, {11, 12}}, /*complete=*/false);
  half.add("B", tokens_of(2, 8));
  half.alloc("B", {{1, 3}, {11, 13}}, 0);
  EXPECT_EQ(half.step({{"B", 4, {{1}, {13}}}}).jobs_to_flush, Jobs());
  EXPECT_EQ(half.step({{"B", 4, {{3}, {11}}}}).jobs_to_flush, Jobs({0}))
      << "those of a window are watched from the beginning";
}

// Upstream: test_fence_at_update_state_after_alloc.
TEST_P(FencingConnector, BlocksThatAreLoadedIntoCountAsUsedAgain) {
  Half half = half_of(fence_spec());
  store(half, "A", 4, {{1}});
  half.add("B", tokens_of(2, 4));
  half.prefill("B", {{2}});
  half.add("C", tokens_of(1, 8));
  half.finish("B");
  half.match("C");
  half.alloc("C", {{2}}, 4);
  EXPECT_EQ(half.step({}).jobs_to_flush, Jobs({1}));
}

// Upstream: test_loads_do_not_populate_fence_index.
TEST_P(FencingConnector, LoadsWatchNothing) {
  Half half = half_of(fence_spec());
  store(half, "A", 4, {{1}});
  half.add("B", tokens_of(1, 4));
  half.add("C", tokens_of(2, 4));
  half.match("B");
  half.alloc("B", {{2}}, 4);
  half.step({});
  half.finish("B");
  EXPECT_EQ(half.prefill("C", {{2}}).jobs_to_flush, Jobs());
}

TEST_P(FencingConnector, AJobThatIsDoneWatchesNothing) {
  Half half = half_of(fence_spec());
  store(half, "A", 4, {{1}}, /*complete=*/false);
  half.add("B", tokens_of(2, 4));
  half.finish("A");
  half.completed({0});
  EXPECT_EQ(half.prefill("B", {{1}}).jobs_to_flush, Jobs());
}

// Fence: completion.

// Upstream: test_complete_store_waits_for_all_worker_acks, test_complete_store_called_per_job.
TEST_P(FencingConnector, AJobIsDoneWhenAllWorkersReportedIt) {
  OffloadingSpec spec = fence_spec();
  spec.num_workers = 2;
  Half half = half_of(spec);
  store(half, "A", 8, {{1, 2}}, /*complete=*/false);
  half.add("B", tokens_of(2, 4));
  half.prefill("B", {{3}});
  half.completed({0});
  EXPECT_EQ(half.held(), "A1? A0? B0?");
  half.completed({1, 0});
  EXPECT_EQ(half.held(), "A1 A0 B0?");
}

TEST_P(FencingConnector, AStoreThatFailedOnAnyWorkerLeavesNothing) {
  OffloadingSpec spec = fence_spec();
  spec.num_workers = 2;
  Half half = half_of(spec);
  store(half, "A", 8, {{1, 2}}, /*complete=*/false);
  half.completed({0}, /*success=*/false);
  EXPECT_EQ(half.held(), "A1? A0?");
  half.completed({0});
  EXPECT_EQ(half.held(), "");
  EXPECT_EQ(half.connector->num_free_slots(), 16u);
}

// Upstream: test_reset_cache.
TEST_P(FencingConnector, AResetFlushesEveryJobAndForgetsIt) {
  Half half = half_of(fence_spec());
  store(half, "A", 4, {{1}});
  store(half, "B", 8, {{2, 3}}, /*complete=*/false);
  half.add("C", tokens_of(1, 4));
  half.match("C");
  half.alloc("C", {{4}}, 4);
  half.step({});
  EXPECT_TRUE(half.connector->reset_cache());
  EXPECT_EQ(half.held(), "");
  EXPECT_EQ(half.connector->num_free_slots(), 16u);
  EXPECT_TRUE(half.connector->reset_cache()) << "also before the next step";
  EXPECT_EQ(half.step({}).jobs_to_flush, Jobs({1, 2}));
  EXPECT_EQ(half.step({}).jobs_to_flush, Jobs());
  half.completed({1, 2});
  EXPECT_EQ(half.held(), "") << "reports from before the reset";
  half.add("D", tokens_of(1, 8));
  EXPECT_EQ(half.match("D"), "0");
}

TEST_P(FencingConnector, AReportFromBeforeAResetHidesNoneAfterIt) {
  Half half = half_of(fence_spec());
  half.add("A", tokens_of(1, 12));
  half.alloc("A", {{1, 2, 3}}, 0);
  half.step({{"A", 8, {{1, 2}}}});
  half.connector->reset_cache();
  half.step({{"A", 4, {{3}}}});
  half.completed({0, 1});
  EXPECT_EQ(half.held(), "A2 A1 A0");
}

TEST_P(FencingConnector, AfterAResetEverythingIsStoredAnew) {
  Half half = half_of(fence_spec());
  half.add("A", tokens_of(1, 12));
  half.alloc("A", {{1, 2, 3}}, 0);
  half.step({{"A", 8, {{1, 2}}}});
  half.connector->reset_cache();
  const OffloadingConnectorMetadata metadata = half.step({{"A", 4, {{3}}}});
  EXPECT_EQ(metadata.jobs_to_flush, Jobs({0}));
  EXPECT_EQ(text_of(metadata.stores), Names({"A [1 2 3] at [0] -> [0 1 2]"}));
  EXPECT_EQ(numbers_of(metadata.stores), Jobs({1})) << "numbers go on";
  half.completed({0});
  EXPECT_EQ(half.held(), "A2? A1? A0?");
  half.completed({1});
  EXPECT_EQ(half.held(), "A2 A1 A0");
}

TEST_P(FencingConnector, EventsNameHashesWithoutTheGroup) {
  Half half = half_of(fence_spec({full(4), full(8)}));
  store(half, "A", 8, {{1, 2}, {11}});
  std::vector<KVCacheEvent> events;
  half.connector->take_events(events);
  ASSERT_EQ(events.size(), 1u);
  const BlockHashListView hashes = half.request(0).request.block_hashes(4);
  BlockStored expected;
  expected.block_hashes = {BlockHash(hashes[0]), BlockHash(hashes[1]), BlockHash(hashes[1])};
  expected.medium = "CPU";
  EXPECT_EQ(std::get<BlockStored>(events.front()), expected) << "and no block size";
}

// Tiers.

OffloadingSpec tiers_spec(std::uint32_t capacity = 16) {
  OffloadingSpec spec = fence_spec({full(4)}, capacity);
  spec.has_tiers = true;
  return spec;
}

std::vector<SecondaryTierHandle> tiers(std::uint32_t num_tiers,
                                       OffloadPolicy policy = OffloadPolicy::kBlockLevel) {
  std::vector<SecondaryTierHandle> all;
  const auto calls = std::make_shared<TierCalls>();
  for (std::uint32_t place = 0; place < num_tiers; ++place) {
    auto tier = std::make_unique<ScriptedTier>(place, calls);
    tier->want(policy);
    all.emplace_back(std::move(tier));
  }
  return all;
}

TEST_P(TieredConnector, ARequestWaitsForWhatATierBringsUp) {
  Half half = half_of(tiers_spec(), tiers(2));
  half.add("A", tokens_of(1, 9));
  half.tier(1).add(half.key_of("A", 0));
  half.tier(1).add(half.key_of("A", 1));
  half.calls();
  EXPECT_EQ(half.match("A"), "again");
  EXPECT_EQ(half.calls(), Names({"get_finished_jobs 0", "get_finished_jobs 1", "lookup 0 miss A0",
                                 "lookup 1 hit A0", "lookup 0 miss A1", "lookup 1 hit A1",
                                 "touch 0 A0 A1", "touch 1 A0 A1"}));
  half.step({});
  EXPECT_EQ(half.calls(), Names({"submit_load 1 A0 A1", "on_schedule_end 0", "on_schedule_end 1"}));
  EXPECT_EQ(half.match("A"), "again") << "under way";
  half.step({});
  half.tier(1).finish(0, true);
  EXPECT_EQ(half.match("A"), "8 async");
  half.alloc("A", {{1, 2, 3}}, 8);
  EXPECT_EQ(text_of(half.step({}).loads), Names({"A [1 2] at [0] <- [0 1]"}));
  EXPECT_EQ(half.held(), "A1+1 A0+1");
}

TEST_P(TieredConnector, ATierThatWantsRequestsGetsTheLoadedPrefix) {
  Half half = half_of(tiers_spec(), tiers(1, OffloadPolicy::kRequestLevel));
  half.add("A", tokens_of(1, 5));
  half.tier(0).add(half.key_of("A", 0));
  half.match("A");
  half.step({});
  half.tier(0).finish(0, true);
  half.match("A");
  half.alloc("A", {{1, 2}}, 4);
  half.step({});
  half.completed({0});
  half.computed("A", 4);
  half.calls();
  EXPECT_EQ(text_of(half.step({{"A", 1, {{1, 2}}}}).stores), Names()) << "it is held";
  EXPECT_EQ(half.calls(), Names({"get_finished_jobs 0", "on_schedule_end 0", "get_finished_jobs 0",
                                 "submit_store 0 A0"}));
}

TEST_P(TieredConnector, TiersAreNotifiedOfRequestsAndSteps) {
  Half half = half_of(tiers_spec(), tiers(1));
  half.add("A", tokens_of(1, 4));
  EXPECT_EQ(half.calls(), Names({"on_new_request 0 block_level"}));
  half.prefill("A", {{1}});
  EXPECT_EQ(half.calls(), Names({"get_finished_jobs 0", "on_schedule_end 0", "get_finished_jobs 0",
                                 "touch 0 A0"}))
      << "the store is of the next step";
  half.step({});
  EXPECT_EQ(half.calls(), Names({"on_schedule_end 0"})) << "polled by the store";
  half.finish("A");
  EXPECT_EQ(half.calls(), Names({"on_request_finished 0"}));
}

// Calls that the reference refuses.

Half reference_half(const OffloadingSpec& spec) { return {kSides[0], spec, {}}; }

TEST(ReferenceOffloadingConnectorDeathTest, ALoadFillsTheBlocksWithoutAKeyAndNoMoreThanItsWindow) {
  Half holding = reference_half(hold_spec());
  holding.add("A", tokens_of(1, 8));
  holding.prefill("A", {{1, 2}});
  holding.sent({"A"});
  holding.add("B", tokens_of(1, 8));
  holding.match("B");
  EXPECT_DEATH(holding.alloc("B", {{3, 4, 5}}, 8), "are those to load");

  Half fencing = reference_half(fence_spec({window_of(4, 4)}));
  store(fencing, "A", 9, {{1, 2, 3}});
  fencing.add("B", tokens_of(1, 9));
  fencing.match("B");
  EXPECT_DEATH(fencing.alloc("B", {{21, 22}}, 8), "no more than its window");
}

TEST(ReferenceOffloadingConnectorDeathTest, AnIdIsFreeOnceTheJobsOfItsRequestAreDone) {
  Half half = reference_half(fence_spec());
  store(half, "A", 4, {{1}}, /*complete=*/false);
  half.finish("A");
  EXPECT_DEATH(half.connector->on_new_request(half.request(0)), "of that id");
  half.completed({0});
  half.connector->on_new_request(half.request(0));
  EXPECT_DEATH(half.completed({0}), "under way");
}

}  // namespace
}  // namespace kvfence
