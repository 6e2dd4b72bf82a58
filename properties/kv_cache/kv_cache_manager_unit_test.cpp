// Several rules of the KV-cache manager together, on both sides, with numbers worked out by hand,
// and what only a caller in C++ gets. scenarios/cases/kv_cache/ has each single rule and refusal.
// Blocks have two tokens unless stated otherwise.

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/kv_cache/kv_cache_manager.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/kv_cache/kv_cache_manager.h"

namespace kvfence {
namespace {

using Blocks = std::vector<BlockId>;
using Kind = KVCacheSpecKind;

constexpr std::uint32_t kBlockSize = 2;

KVCacheSpec full(std::uint32_t block_size = kBlockSize) { return {.block_size = block_size}; }
KVCacheSpec sliding(std::uint32_t window, std::uint32_t block_size = kBlockSize) {
  return {.kind = Kind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
KVCacheSpec mamba(bool align = false, std::uint32_t num_speculative_blocks = 0) {
  return {.kind = Kind::kMamba,
          .block_size = kBlockSize,
          .mamba_align = align,
          .num_speculative_blocks = num_speculative_blocks};
}
KVCacheSpec sink(std::uint32_t sink_len) {
  return {.kind = Kind::kSinkFullAttention, .block_size = kBlockSize, .sink_len = sink_len};
}

Rules all_rules() {
  Rules rules;
  for (const RuleField& field : kRuleFields) rules.*field.member = true;
  return rules;
}

KVCacheManagerConfig config_of(std::vector<KVCacheSpec> groups, std::uint32_t num_blocks = 20,
                               Rules rules = {}) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = num_blocks + 1;
  config.pool.enable_kv_cache_events = true;
  config.pool.hash.hash_block_size = kBlockSize;
  config.pool.max_block_size = 8;
  config.pool.rules = rules;
  config.groups = std::move(groups);
  config.max_model_len = 64;
  config.max_num_batched_tokens = 64;
  return config;
}

/// A request as its owner sees it; tokens first, first + 1, ...
struct Owned {
  Owned(const KVCacheManagerConfig& config, RequestIndex index_in, std::uint32_t num_tokens,
        TokenId first = 0)
      : index(index_in), request(spec_of(num_tokens, first), config.pool.hash) {}

  static RequestSpec spec_of(std::uint32_t num_tokens, TokenId first) {
    RequestSpec spec;
    for (std::uint32_t i = 0; i < num_tokens; ++i) spec.tokens.push_back(first + i);
    return spec;
  }

  KVRequest view(std::uint32_t num_computed_tokens = 0) const {
    return {.index = index,
            .request = request,
            .num_computed_tokens = num_computed_tokens,
            .num_prompt_tokens = static_cast<std::uint32_t>(request.all_token_ids().size()),
            .skip_reading_prefix_cache = skip_reading_prefix_cache,
            .was_preempted = was_preempted};
  }

  RequestIndex index;
  Request request;
  bool skip_reading_prefix_cache = false;
  bool was_preempted = false;
};

/// A manager of one side and its answers.
template <class KVCacheManager>
class Bench {
 public:
  explicit Bench(const KVCacheManagerConfig& config) : manager(config) {}

  ComputedBlocks hit(const Owned& owned) {
    ComputedBlocks out;
    manager.get_computed_blocks(owned.view(), out);
    return out;
  }

  /// Allocates and expects success; the new blocks.
  BlocksByGroup allocate(const Owned& owned, std::uint32_t num_new_tokens,
                         std::uint32_t num_computed_tokens = 0) {
    const KVRequest request = owned.view(num_computed_tokens);
    return allocate({.request = request, .num_new_tokens = num_new_tokens});
  }
  BlocksByGroup allocate(const AllocateSlotsArgs& args) {
    bool allocated = false;
    BlocksByGroup out;
    EXPECT_EQ(manager.allocate_slots(args, allocated, out), ErrorCode::kNone);
    EXPECT_TRUE(allocated);
    return out;
  }
  BlocksByGroup allocate_with_hit(const Owned& owned, std::uint32_t num_new_tokens) {
    const ComputedBlocks computed = hit(owned);
    const KVRequest request = owned.view();
    return allocate({.request = request, .num_new_tokens = num_new_tokens, .hit = &computed});
  }

  ErrorCode refusal(const AllocateSlotsArgs& args) {
    const Bench before = *this;
    bool allocated = false;
    BlocksByGroup out;
    const ErrorCode code = manager.allocate_slots(args, allocated, out);
    EXPECT_EQ(free_order(), before.free_order());
    EXPECT_EQ(table(args.request.index), before.table(args.request.index));
    return code;
  }
  bool is_turned_away(const AllocateSlotsArgs& args) {
    bool allocated = true;
    BlocksByGroup out;
    EXPECT_EQ(manager.allocate_slots(args, allocated, out), ErrorCode::kNone);
    return !allocated;
  }

  BlocksByGroup table(RequestIndex request) const {
    BlocksByGroup out;
    manager.get_block_ids(request, out);
    return out;
  }
  Blocks free_order() const {
    Blocks out;
    manager.block_pool().get_all_free_blocks(out);
    return out;
  }
  bool is_hashed(BlockId block) const { return !manager.block_pool().block_key(block).empty(); }

  KVCacheManager manager;
};

const Blocks kNothing;

template <class Manager>
class KVCacheManagerRules : public ::testing::Test {};
using Managers = ::testing::Types<reference::KVCacheManager, optimized::KVCacheManager>;
TYPED_TEST_SUITE(KVCacheManagerRules, Managers, SideNames);

TYPED_TEST(KVCacheManagerRules, AHitLeavesTheLastTokenToCompute) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 8);
  const Owned b(config, 1, 8);
  EXPECT_EQ(bench.hit(a).blocks, BlocksByGroup{kNothing});
  EXPECT_EQ(bench.allocate(a, 8), (BlocksByGroup{{1, 2, 3, 4}}));

  const ComputedBlocks computed = bench.hit(b);
  EXPECT_EQ(computed.blocks, (BlocksByGroup{{1, 2, 3}}));
  EXPECT_EQ(computed.num_tokens, 6U);
  EXPECT_EQ(bench.manager.block_pool().ref_cnt(1), 1U);

  EXPECT_EQ(bench.allocate_with_hit(b, 2), (BlocksByGroup{{5}}));
  EXPECT_EQ(bench.table(1), (BlocksByGroup{{1, 2, 3, 5}}));
  EXPECT_EQ(bench.manager.block_pool().ref_cnt(1), 2U);
  EXPECT_TRUE(bench.is_hashed(5));
}

TYPED_TEST(KVCacheManagerRules, AnEmptyHitIsNoHit) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 8);
  const ComputedBlocks nothing = bench.hit(a);
  bench.allocate(a, 4);
  const KVRequest request = a.view(4);
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .hit = &nothing}),
            (BlocksByGroup{{3}}));
}

TYPED_TEST(KVCacheManagerRules, AWindowHitIsAWindow) {
  const KVCacheManagerConfig config = config_of({sliding(5)});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 13);
  bench.allocate(a, 13);
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 0, 0, 5, 6}}));
  bench.manager.evict_blocks(Blocks{5});
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 3, 4}}));
  bench.manager.evict_blocks(Blocks{4, 2});
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{1}}));  // a run from the start
}

TYPED_TEST(KVCacheManagerRules, AHybridHitIsTheHitOfAllGroups) {
  const KVCacheManagerConfig config = config_of({sliding(3), full(4)});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 17);
  bench.allocate(a, 17);
  ASSERT_EQ(bench.table(0)[1], (Blocks{10, 11, 12, 13, 14}));
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 0, 0, 0, 0, 0, 8}, {10, 11, 12, 13}}));
  bench.manager.evict_blocks(Blocks{8});
  const ComputedBlocks computed = bench.hit(a);
  EXPECT_EQ(computed.blocks, (BlocksByGroup{{0, 0, 0, 0, 0, 6}, {10, 11, 12}}));
  EXPECT_EQ(computed.num_tokens, 12U);
}

TYPED_TEST(KVCacheManagerRules, EagleDropsABlockInEachGroupOrOnce) {
  for (const bool by_group : {false, true}) {
    SCOPED_TRACE(by_group);
    KVCacheManagerConfig config = config_of({full(), sliding(3)});
    config.pool.rules.eagle_by_group = by_group;
    config.use_eagle = true;
    Bench<TypeParam> bench(config);
    const Owned a(config, 0, 17);
    bench.allocate(a, 17);
    EXPECT_EQ(bench.hit(a).num_tokens, by_group ? 14U : 12U);
  }
}

TYPED_TEST(KVCacheManagerRules, EagleGroupsAreTheOnesNamed) {
  KVCacheManagerConfig config = config_of({full(), sliding(3)}, 20, all_rules());
  config.use_eagle = true;
  config.eagle_groups = {1};
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 18);
  bench.allocate(a, 18);
  EXPECT_EQ(bench.hit(a).num_tokens, 14U);  // 16 in the full group, one looked up beyond: 17 - 1
}

TYPED_TEST(KVCacheManagerRules, ARetentionIntervalKeepsItsMultiplesAndThePromptsEnd) {
  for (const std::uint32_t interval : {0U, 24U}) {
    SCOPED_TRACE(interval);
    KVCacheManagerConfig config = config_of({full(8), sliding(3)}, 60, all_rules());
    config.retention_interval = interval;
    Bench<TypeParam> bench(config);
    const Owned a(config, 0, 42);
    bench.allocate(a, 42);
    Blocks kept;
    const Blocks window = bench.table(0)[1];
    for (BlockId i = 0; i < window.size(); ++i) {
      if (bench.is_hashed(window[i])) kept.push_back(i);
    }
    EXPECT_EQ(kept, interval == 0 ? (Blocks{19}) : (Blocks{11, 19}));
  }
}

TYPED_TEST(KVCacheManagerRules, RemainingBlocksAreThoseOfTheWholeSequence) {
  KVCacheManagerConfig config = config_of({full(), sliding(5)}, 40, all_rules());
  config.max_num_batched_tokens = 4;
  config.max_model_len = 32;
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 40);  // longer than the model accepts
  // cdiv(32, 2) = 16 blocks and, as above, 5.
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(a.view()), 21U);
  bench.allocate(a, 4);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(a.view()), 17U);
  const Owned b(config, 1, 6, 50);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(b.view()), 6U);
  bench.allocate(b, 6);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(b.view(6)), 0U);

  config.pool.rules.full_sequence_gate_in_allocate_slots = false;
  EXPECT_EQ(Bench<TypeParam>(config).manager.get_num_remaining_blocks(a.view()), 0U);
}

TYPED_TEST(KVCacheManagerRules, BlocksForSpeculationAreNotCached) {
  const KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 20);
  bench.allocate(a, 4);
  EXPECT_EQ(bench.manager.cache_blocks(a.view(), 6), ErrorCode::kBadRange);
  EXPECT_EQ(bench.manager.cache_blocks(a.view(), 5), ErrorCode::kNone);
}

TYPED_TEST(KVCacheManagerRules, AMambaAlignTableDoesNotShrink) {
  for (const bool keeps : {false, true}) {
    SCOPED_TRACE(keeps);
    KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)});
    config.pool.rules.mamba_align_keeps_blocks = keeps;
    Bench<TypeParam> bench(config);
    const Owned a(config, 0, 20);
    bench.allocate(a, 8);
    const KVRequest request = a.view();
    const AllocateSlotsArgs args{.request = request, .num_new_tokens = 4};
    if (keeps) {
      EXPECT_EQ(bench.allocate(args), BlocksByGroup{kNothing});
    } else {
      EXPECT_EQ(bench.refusal(args), ErrorCode::kTableShrinks);
    }
  }
}

TYPED_TEST(KVCacheManagerRules, AdmissionThatCannotBeKeptIsTurnedAway) {
  // Upstream admits two blocks here and then asks its pool for three.
  KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)}, 2);
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 20);
  const KVRequest request = a.view();
  EXPECT_TRUE(
      bench.is_turned_away({.request = request, .num_new_tokens = 4, .num_external_tokens = 4}));
  EXPECT_EQ(bench.free_order(), (Blocks{1, 2}));
}

TYPED_TEST(KVCacheManagerRules, StatsCountLookups) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench<TypeParam> bench(config);
  Owned a(config, 0, 8);
  bench.allocate(a, 8);
  bench.hit(a);
  a.was_preempted = true;
  bench.hit(a);
  a.skip_reading_prefix_cache = true;
  EXPECT_EQ(bench.hit(a).num_tokens, 0U);
  bench.manager.free(0);
  EXPECT_TRUE(bench.manager.reset_prefix_cache());
  const PrefixCacheStats expected{.reset = true,
                                  .requests = 1,
                                  .queries = 8,
                                  .hits = 6,
                                  .preempted_requests = 1,
                                  .preempted_queries = 8,
                                  .preempted_hits = 6};
  EXPECT_EQ(bench.manager.take_prefix_cache_stats(), expected);
  EXPECT_EQ(bench.manager.take_prefix_cache_stats(), PrefixCacheStats{});
}

// Upstream: test_prefill_hybrid_model_combinations
TYPED_TEST(KVCacheManagerRules, EveryMixOfKindsSharesThePrefix) {
  const std::vector<std::vector<KVCacheSpec>> mixes = {
      {full(), sliding(4)},
      {sliding(4), sliding(8)},
      {full(), mamba()},
      {full(), sliding(4), mamba()},
      {sliding(4), sliding(8), mamba()},
      {full(), sliding(4), full(), sliding(4)},
      {sliding(4), full(), sliding(8)},
      {mamba(), full(), sliding(4)},
      {sliding(8), sliding(4), full(), mamba()},
  };
  for (const std::vector<KVCacheSpec>& mix : mixes) {
    SCOPED_TRACE(&mix - mixes.data());
    const KVCacheManagerConfig config = config_of(mix, 40);
    Bench<TypeParam> bench(config);
    bench.allocate(Owned(config, 0, 7), 7);
    bench.manager.new_step_starts();
    const Owned b(config, 1, 7);
    for (const Blocks& blocks : bench.hit(b).blocks) EXPECT_EQ(blocks.size(), 3U);
    bench.allocate_with_hit(b, 1);
    for (const Blocks& blocks : bench.table(1)) EXPECT_EQ(blocks.size(), 4U);
  }
}

// Only the first full-attention kind is cut to the length of the hit.
TYPED_TEST(KVCacheManagerRules, ASecondFullAttentionKindKeepsMoreThanTheHit) {
  const KVCacheManagerConfig config = config_of({full(), sink(2), mamba()});
  Bench<TypeParam> bench(config);
  bench.allocate(Owned(config, 0, 4), 4);
  bench.manager.new_step_starts();
  ASSERT_EQ(bench.table(0), (BlocksByGroup{{2, 3}, {4, 5}, {6, 7}}));
  bench.manager.evict_blocks(Blocks{6, 7});
  const Owned b(config, 1, 5);
  const ComputedBlocks computed = bench.hit(b);
  EXPECT_EQ(computed.blocks, (BlocksByGroup{{}, {4, 5}, {}}));
  EXPECT_EQ(computed.num_tokens, 0U);
  const KVRequest request = b.view();
  bench.allocate(
      {.request = request, .num_new_tokens = 1, .hit = &computed, .num_external_tokens = 1});
  EXPECT_EQ(bench.table(1), (BlocksByGroup{{8}, {4, 5}, {9}}));
}

TYPED_TEST(KVCacheManagerRules, HybridCachingIsRoundedDownExceptForEaglesBlock) {
  const auto num_cached = [](Rules rules, bool use_eagle) {
    KVCacheManagerConfig config = config_of({full(4), sliding(8)}, 20, rules);
    config.use_eagle = use_eagle;
    Bench<TypeParam> bench(config);
    bench.allocate(Owned(config, 0, 6), 6);
    return bench.manager.block_pool().num_cached_keys();
  };
  EXPECT_EQ(num_cached(all_rules(), false), 1U + 2U);
  EXPECT_EQ(num_cached(all_rules(), true), 1U + 3U);
  EXPECT_EQ(num_cached({}, false), 1U + 3U);
}

TYPED_TEST(KVCacheManagerRules, ARefusalDoesNotChangeTheAnswer) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench<TypeParam> bench(config);
  const Owned a(config, 0, 8);
  const KVRequest request = a.view();
  bool allocated = true;
  BlocksByGroup blocks = {{99}};
  EXPECT_EQ(bench.manager.allocate_slots({.request = request}, allocated, blocks),
            ErrorCode::kNoTokens);
  EXPECT_TRUE(allocated);
  EXPECT_EQ(blocks, (BlocksByGroup{{99}}));
  std::vector<std::uint32_t> counts = {77};
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNotAllocated);
  EXPECT_EQ(counts, std::vector<std::uint32_t>{77});
  EXPECT_EQ(bench.manager.evict_blocks(Blocks{1, 21}), ErrorCode::kUnknownBlock);
}

}  // namespace
}  // namespace kvfence
