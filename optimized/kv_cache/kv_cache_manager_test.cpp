#include "optimized/kv_cache/kv_cache_manager.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvfence::optimized {
namespace {

using Blocks = std::vector<BlockId>;
using Kind = KVCacheSpecKind;

constexpr std::uint32_t kBlockSize = 2;

KVCacheSpec full(std::uint32_t block_size = kBlockSize) { return {.block_size = block_size}; }
KVCacheSpec sliding(std::uint32_t window, std::uint32_t block_size = kBlockSize) {
  return {.kind = Kind::kSlidingWindow, .block_size = block_size, .sliding_window = window};
}
KVCacheSpec chunked(std::uint32_t chunk) {
  return {.kind = Kind::kChunkedLocal, .block_size = kBlockSize, .attention_chunk_size = chunk};
}
KVCacheSpec mamba(bool align = false, std::uint32_t num_speculative_blocks = 0) {
  return {.kind = Kind::kMamba,
          .block_size = kBlockSize,
          .mamba_align = align,
          .num_speculative_blocks = num_speculative_blocks};
}
KVCacheSpec cross() { return {.kind = Kind::kCrossAttention, .block_size = kBlockSize}; }
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

/// A manager with its answers in hand.
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

TEST(KVCacheManagerTest, AHitLeavesTheLastTokenToCompute) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench bench(config);
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

TEST(KVCacheManagerTest, ADecodeTokenTakesABlockOnlyAtABoundary) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench bench(config);
  Owned a(config, 0, 3);
  bench.allocate(a, 3);
  EXPECT_FALSE(bench.is_hashed(2));
  a.request.append_output_token_ids(std::vector<TokenId>{7, 8});
  EXPECT_EQ(bench.allocate(a, 1, 3), BlocksByGroup{kNothing});
  EXPECT_TRUE(bench.is_hashed(2));
  EXPECT_EQ(bench.allocate(a, 1, 4), (BlocksByGroup{{3}}));
}

TEST(KVCacheManagerTest, LookaheadTokensGetSlotsAndAreNotCached) {
  KVCacheManagerConfig config = config_of({full()});
  config.max_model_len = 8;
  Bench bench(config);
  const Owned a(config, 0, 8);
  const KVRequest request = a.view();
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .num_lookahead_tokens = 99}),
            (BlocksByGroup{{1, 2, 3, 4}}));  // as far as max_model_len
  EXPECT_TRUE(bench.is_hashed(1));
  EXPECT_FALSE(bench.is_hashed(2));
}

TEST(KVCacheManagerTest, FreeBlocksThatAHitTakesOutOfTheQueueAreCharged) {
  const KVCacheManagerConfig config = config_of({full()}, 4);
  Bench bench(config);
  const Owned a(config, 0, 6);
  const Owned b(config, 1, 10);
  bench.allocate(a, 6);
  bench.manager.free(0);
  ASSERT_EQ(bench.free_order(), (Blocks{4, 3, 2, 1}));
  const ComputedBlocks computed = bench.hit(b);
  ASSERT_EQ(computed.num_tokens, 6U);
  const KVRequest request = b.view();
  EXPECT_TRUE(bench.is_turned_away({.request = request, .num_new_tokens = 4, .hit = &computed}));
  EXPECT_EQ(bench.free_order(), (Blocks{4, 3, 2, 1}));
  bool fits = true;
  EXPECT_EQ(bench.manager.can_fit_full_sequence(request, &computed, 0, 0, fits), ErrorCode::kNone);
  EXPECT_FALSE(fits);
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .hit = &computed}),
            (BlocksByGroup{{4}}));
}

TEST(KVCacheManagerTest, RefusesInTheOrderOfTheContract) {
  KVCacheManagerConfig config = config_of({full()});
  config.max_model_len = 8;
  Bench bench(config);
  const Owned a(config, 0, 8);
  bench.allocate(a, 4);
  const ComputedBlocks computed = bench.hit(Owned(config, 1, 8));
  ASSERT_EQ(computed.num_tokens, 4U);
  const KVRequest request = a.view(4);
  EXPECT_EQ(bench.refusal({.request = request, .reserved_blocks = 1}), ErrorCode::kNotInProfile);
  EXPECT_EQ(bench.refusal({.request = request, .full_sequence_must_fit = true}),
            ErrorCode::kNotInProfile);
  EXPECT_EQ(bench.refusal({.request = request}), ErrorCode::kNoTokens);
  EXPECT_EQ(bench.refusal({.request = request, .num_new_tokens = 1, .hit = &computed}),
            ErrorCode::kBeyondModelLength);
  EXPECT_EQ(bench.refusal({.request = request, .num_new_tokens = 3, .num_external_tokens = 2}),
            ErrorCode::kBeyondModelLength);
  const KVRequest again = a.view();
  EXPECT_EQ(bench.refusal({.request = again, .num_new_tokens = 1, .hit = &computed}),
            ErrorCode::kAlreadyAllocated);
  EXPECT_EQ(bench.refusal({.request = again, .num_new_tokens = 1, .num_external_tokens = 1}),
            ErrorCode::kAlreadyAllocated);
  const Owned b(config, 1, 8);
  const KVRequest computed_in_part = b.view(2);
  EXPECT_EQ(bench.refusal({.request = computed_in_part, .num_new_tokens = 1, .hit = &computed}),
            ErrorCode::kAlreadyAllocated);
  bool fits = false;
  EXPECT_EQ(bench.manager.can_fit_full_sequence(computed_in_part, &computed, 0, 0, fits),
            ErrorCode::kAlreadyAllocated);
  EXPECT_EQ(bench.manager.can_fit_full_sequence(again, nullptr, 1, 0, fits),
            ErrorCode::kAlreadyAllocated);
}

TEST(KVCacheManagerTest, AnEmptyHitIsNoHit) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench bench(config);
  const Owned a(config, 0, 8);
  const ComputedBlocks nothing = bench.hit(a);
  bench.allocate(a, 4);
  const KVRequest request = a.view(4);
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .hit = &nothing}),
            (BlocksByGroup{{3}}));
}

TEST(KVCacheManagerTest, CacheBlocksIsForALoadThatHasCome) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench bench(config);
  const Owned a(config, 0, 8);
  const KVRequest request = a.view();
  EXPECT_EQ(bench.manager.cache_blocks(request, 1), ErrorCode::kNone);
  EXPECT_EQ(bench.manager.cache_blocks(request, 2), ErrorCode::kBadRange);
  EXPECT_EQ(
      bench.allocate({.request = request, .num_external_tokens = 5, .delay_cache_blocks = true}),
      BlocksByGroup{kNothing});
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{1, 2, 3}}));
  EXPECT_FALSE(bench.is_hashed(1));
  EXPECT_EQ(bench.manager.cache_blocks(request, 9), ErrorCode::kMissingHash);
  EXPECT_EQ(bench.manager.cache_blocks(request, 8), ErrorCode::kBadRange);
  EXPECT_EQ(bench.manager.cache_blocks(request, 5), ErrorCode::kNone);
  EXPECT_TRUE(bench.is_hashed(2));
  EXPECT_FALSE(bench.is_hashed(3));
}

TEST(KVCacheManagerTest, WithoutCachingNothingIsFoundOrCounted) {
  KVCacheManagerConfig config = config_of({full(), full()});
  config.pool.enable_caching = false;
  Bench bench(config);
  const Owned a(config, 0, 8);
  bench.allocate(a, 8);
  EXPECT_EQ(bench.manager.cache_blocks(a.view(), 99), ErrorCode::kNone);
  EXPECT_EQ(bench.hit(Owned(config, 1, 8)).blocks, (BlocksByGroup{{}, {}}));
  EXPECT_EQ(bench.manager.take_prefix_cache_stats(), PrefixCacheStats{});
  std::vector<std::uint32_t> counts;
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{0, 0}));
}

TEST(KVCacheManagerTest, AWindowDropsItsBlocksLastFirstEvenIfTheAllocationFails) {
  const KVCacheManagerConfig config = config_of({sliding(3)}, 6);
  Bench bench(config);
  const Owned a(config, 0, 20);
  bench.allocate(a, 8);
  ASSERT_EQ(bench.free_order(), (Blocks{5, 6}));
  const KVRequest request = a.view(8);
  // Tokens 0-5 are behind the window of token 8.
  EXPECT_TRUE(bench.is_turned_away({.request = request, .num_new_tokens = 12}));
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{0, 0, 0, 4}}));
  EXPECT_EQ(bench.free_order(), (Blocks{5, 6, 3, 2, 1}));
  bench.manager.free(0);
  EXPECT_EQ(bench.free_order(), (Blocks{5, 6, 3, 2, 1, 4}));
}

TEST(KVCacheManagerTest, UnhashedWindowBlocksAreReusedFirst) {
  const KVCacheManagerConfig config = config_of({sliding(3)}, 6, all_rules());
  Bench bench(config);
  const Owned a(config, 0, 9);
  const KVRequest request = a.view();
  bench.allocate({.request = request, .num_new_tokens = 4});
  const KVRequest later = a.view(4);
  bench.allocate({.request = later, .num_new_tokens = 5, .delay_cache_blocks = true});
  ASSERT_EQ(bench.table(0), (BlocksByGroup{{0, 2, 3, 4, 5}}));
  bench.manager.remove_skipped_blocks(0, 8);
  EXPECT_EQ(bench.free_order(), (Blocks{3, 6, 1, 2}));
  bench.manager.free(0);
  EXPECT_EQ(bench.free_order(), (Blocks{5, 4, 3, 6, 1, 2}));
}

TEST(KVCacheManagerTest, AWindowHitIsAWindow) {
  const KVCacheManagerConfig config = config_of({sliding(5)});
  Bench bench(config);
  const Owned a(config, 0, 13);
  bench.allocate(a, 13);
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 0, 0, 5, 6}}));
  bench.manager.evict_blocks(Blocks{5});
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 3, 4}}));
  bench.manager.evict_blocks(Blocks{4, 2});
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{1}}));  // a run from the start
}

TEST(KVCacheManagerTest, ExternalTokensBehindAWindowGetNullBlocks) {
  const KVCacheManagerConfig config = config_of({sliding(3)});
  Bench bench(config);
  const Owned a(config, 0, 10);
  const KVRequest request = a.view();
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .num_external_tokens = 7}),
            (BlocksByGroup{{3}}));
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{0, 0, 1, 2, 3}}));
  std::vector<KVCacheEvent> events;
  bench.manager.take_events(events);
  ASSERT_EQ(events.size(), 1U);
  // The null blocks count as cached.
  EXPECT_EQ(std::get<BlockStored>(events[0]).block_hashes.size(), 2U);
  EXPECT_EQ(std::get<BlockStored>(events[0]).token_ids.front(), 4U);
}

TEST(KVCacheManagerTest, ExternalBlocksMayEvictTheHitOfALaterGroup) {
  const KVCacheManagerConfig config = config_of({sliding(3), full()}, 5);
  Bench bench(config);
  bench.allocate(Owned(config, 0, 5), 4);
  bench.manager.remove_skipped_blocks(0, 4);
  bench.allocate(Owned(config, 2, 2, 90), 2);
  ASSERT_EQ(bench.table(0), (BlocksByGroup{{0, 2}, {3, 4}}));
  bench.manager.free(0);
  bench.manager.free(2);
  ASSERT_EQ(bench.free_order(), (Blocks{2, 4, 3, 5, 1}));

  const Owned b(config, 1, 6);
  const ComputedBlocks computed = bench.hit(b);
  ASSERT_EQ(computed.blocks, (BlocksByGroup{{0, 2}, {3, 4}}));
  const KVRequest request = b.view();
  bench.allocate({.request = request, .hit = &computed, .num_external_tokens = 1});
  // The window took block 4 for its external token before full attention touched it.
  EXPECT_EQ(bench.table(1), (BlocksByGroup{{0, 2, 4}, {3, 4, 5}}));
  EXPECT_EQ(bench.manager.block_pool().ref_cnt(4), 2U);
  EXPECT_FALSE(bench.is_hashed(4));
}

TEST(KVCacheManagerTest, AHybridHitIsWhatAllGroupsHave) {
  const KVCacheManagerConfig config = config_of({sliding(3), full(4)});
  Bench bench(config);
  const Owned a(config, 0, 17);
  bench.allocate(a, 17);
  ASSERT_EQ(bench.table(0)[1], (Blocks{10, 11, 12, 13, 14}));
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 0, 0, 0, 0, 0, 8}, {10, 11, 12, 13}}));
  bench.manager.evict_blocks(Blocks{8});
  const ComputedBlocks computed = bench.hit(a);
  EXPECT_EQ(computed.blocks, (BlocksByGroup{{0, 0, 0, 0, 0, 6}, {10, 11, 12}}));
  EXPECT_EQ(computed.num_tokens, 12U);
}

TEST(KVCacheManagerTest, EagleDropsABlockInEachGroupOrOnce) {
  for (const bool by_group : {false, true}) {
    SCOPED_TRACE(by_group);
    KVCacheManagerConfig config = config_of({full(), sliding(3)});
    config.pool.rules.eagle_by_group = by_group;
    config.use_eagle = true;
    Bench bench(config);
    const Owned a(config, 0, 17);
    bench.allocate(a, 17);
    EXPECT_EQ(bench.hit(a).num_tokens, by_group ? 14U : 12U);
  }
}

TEST(KVCacheManagerTest, EagleGroupsAreTheOnesNamed) {
  KVCacheManagerConfig config = config_of({full(), sliding(3)}, 20, all_rules());
  config.use_eagle = true;
  config.eagle_groups = {1};
  Bench bench(config);
  const Owned a(config, 0, 18);
  bench.allocate(a, 18);
  EXPECT_EQ(bench.hit(a).num_tokens, 14U);  // 16 in the full group, looked one further: 17 - 1
}

TEST(KVCacheManagerTest, OnlyReachableWindowBlocksAreCached) {
  KVCacheManagerConfig config = config_of({full(8), sliding(3)}, 40, all_rules());
  Bench bench(config);
  const Owned a(config, 0, 20);
  bench.allocate(a, 20);
  const Blocks window = bench.table(0)[1];
  std::vector<bool> hashed;
  for (BlockId block : window) hashed.push_back(bench.is_hashed(block));
  // Blocks 3 and 7 end at 8 and 16 tokens; the last two are behind the last boundary.
  EXPECT_EQ(hashed, (std::vector<bool>{false, false, false, true, false, false, false, true, false,
                                       false}));
  EXPECT_EQ(bench.hit(a).num_tokens, 16U);

  config.use_eagle = true;
  Bench eagle(config);
  eagle.allocate(a, 20);
  EXPECT_TRUE(eagle.is_hashed(eagle.table(0)[1][4]));  // behind the boundary
  EXPECT_EQ(eagle.hit(a).num_tokens, 8U);              // full attention drops 8 tokens
}

TEST(KVCacheManagerTest, ARetentionIntervalKeepsItsMultiplesAndThePromptsEnd) {
  for (const std::uint32_t interval : {0U, 24U}) {
    SCOPED_TRACE(interval);
    KVCacheManagerConfig config = config_of({full(8), sliding(3)}, 60, all_rules());
    config.retention_interval = interval;
    Bench bench(config);
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

TEST(KVCacheManagerTest, TheGateCountsWhatAWindowHoldsAtMost) {
  KVCacheManagerConfig config = config_of({sliding(5)}, 8, all_rules());
  config.max_num_batched_tokens = 4;
  Bench bench(config);
  const Owned a(config, 0, 40);
  const KVRequest request = a.view();
  bool fits = false;
  EXPECT_EQ(bench.manager.can_fit_full_sequence(request, nullptr, 0, 0, fits),
            ErrorCode::kNotInProfile);
  // cdiv(4 + 4, 2) + 1 = 5 blocks, of the 20 that the sequence has.
  bench.allocate({.request = request, .num_new_tokens = 4, .full_sequence_must_fit = true});
  const Owned b(config, 1, 40, 50);
  const KVRequest other = b.view();
  bench.allocate(Owned(config, 2, 4, 90), 4);
  EXPECT_TRUE(bench.is_turned_away(
      {.request = other, .num_new_tokens = 4, .full_sequence_must_fit = true}));
  EXPECT_TRUE(bench.is_turned_away({.request = other, .num_new_tokens = 4, .reserved_blocks = 3}));
  bench.allocate({.request = other, .num_new_tokens = 4, .reserved_blocks = 2});
}

TEST(KVCacheManagerTest, RemainingBlocksAreThoseOfTheWholeSequence) {
  KVCacheManagerConfig config = config_of({full(), sliding(5)}, 40, all_rules());
  config.max_num_batched_tokens = 4;
  config.max_model_len = 32;
  Bench bench(config);
  const Owned a(config, 0, 40);  // longer than the model takes
  // cdiv(32, 2) = 16 blocks and, as above, 5.
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(a.view()), 21U);
  bench.allocate(a, 4);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(a.view()), 17U);
  const Owned b(config, 1, 6, 50);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(b.view()), 6U);
  bench.allocate(b, 6);
  EXPECT_EQ(bench.manager.get_num_remaining_blocks(b.view(6)), 0U);

  config.pool.rules.full_sequence_gate_in_allocate_slots = false;
  EXPECT_EQ(Bench(config).manager.get_num_remaining_blocks(a.view()), 0U);
}

TEST(KVCacheManagerTest, BlocksBeforeTheChunkAreHitsWithoutALookup) {
  const KVCacheManagerConfig config = config_of({chunked(8)});
  Bench bench(config);
  const Owned a(config, 0, 15);
  EXPECT_EQ(bench.hit(a).blocks, (BlocksByGroup{{0, 0, 0, 0}}));
  bench.allocate_with_hit(a, 7);
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{0, 0, 0, 0, 1, 2, 3, 4}}));
  EXPECT_EQ(bench.hit(Owned(config, 1, 15)).blocks, (BlocksByGroup{{0, 0, 0, 0, 1, 2, 3}}));
}

TEST(KVCacheManagerTest, AMambaStateOfThisStepIsNotThereYet) {
  const KVCacheManagerConfig config = config_of({mamba()});
  Bench bench(config);
  const Owned a(config, 0, 6);
  const Owned b(config, 1, 8);
  bench.allocate(a, 6);
  ASSERT_EQ(bench.hit(b).blocks, (BlocksByGroup{{0, 0, 3}}));
  const ComputedBlocks computed = bench.hit(b);
  const KVRequest request = b.view();
  const AllocateSlotsArgs args{.request = request, .num_new_tokens = 2, .hit = &computed};
  EXPECT_TRUE(bench.is_turned_away(args));
  bench.manager.new_step_starts();
  EXPECT_EQ(bench.allocate(args), (BlocksByGroup{{4}}));
  EXPECT_EQ(bench.table(1), (BlocksByGroup{{0, 0, 3, 4}}));
}

TEST(KVCacheManagerTest, MambaAlignMovesItsSpeculativeBlocksOn) {
  const KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)});
  Bench bench(config);
  const Owned a(config, 0, 20);
  EXPECT_EQ(bench.allocate(a, 4), (BlocksByGroup{{0, 1, 2}}));
  // The running state goes to block 3; block 2 of the table falls behind and is reused.
  EXPECT_EQ(bench.allocate(a, 4, 4), (BlocksByGroup{{2, 3}}));
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{0, 1, 0, 2, 3}}));
  EXPECT_EQ(bench.allocate(a, 6, 8), (BlocksByGroup{{0, 3, 4}}));
  // The state of the step before last, block 1, has gone; that of the last step stays.
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{0, 0, 0, 2, 0, 0, 3, 4}}));
  EXPECT_EQ(bench.free_order().back(), 1U);
}

TEST(KVCacheManagerTest, BlocksForSpeculationAreNotCached) {
  const KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)});
  Bench bench(config);
  const Owned a(config, 0, 20);
  bench.allocate(a, 4);
  EXPECT_EQ(bench.manager.cache_blocks(a.view(), 6), ErrorCode::kBadRange);
  EXPECT_EQ(bench.manager.cache_blocks(a.view(), 5), ErrorCode::kNone);
}

TEST(KVCacheManagerTest, AMambaAlignTableDoesNotShrink) {
  for (const bool keeps : {false, true}) {
    SCOPED_TRACE(keeps);
    KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)});
    config.pool.rules.mamba_align_keeps_blocks = keeps;
    Bench bench(config);
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

TEST(KVCacheManagerTest, AdmissionThatCannotBeKeptIsTurnedAway) {
  // Upstream admits two blocks here and then asks its pool for three.
  KVCacheManagerConfig config = config_of({mamba(/*align=*/true, 1)}, 2);
  Bench bench(config);
  const Owned a(config, 0, 20);
  const KVRequest request = a.view();
  EXPECT_TRUE(
      bench.is_turned_away({.request = request, .num_new_tokens = 4, .num_external_tokens = 4}));
  EXPECT_EQ(bench.free_order(), (Blocks{1, 2}));
}

TEST(KVCacheManagerTest, CrossAttentionHoldsTheEncodersTokensOnce) {
  KVCacheManagerConfig config = config_of({full(), cross()});
  config.pool.enable_caching = false;
  Bench bench(config);
  const Owned a(config, 0, 8);
  const KVRequest request = a.view();
  EXPECT_EQ(bench.allocate({.request = request, .num_new_tokens = 2, .num_encoder_tokens = 5}),
            (BlocksByGroup{{1}, {2, 3, 4}}));
  const KVRequest later = a.view(2);
  EXPECT_EQ(bench.allocate({.request = later, .num_new_tokens = 1, .num_encoder_tokens = 5}),
            (BlocksByGroup{{5}, {}}));
}

TEST(KVCacheManagerTest, ASinkTakesItsBlocksForGood) {
  const KVCacheManagerConfig config = config_of({sink(4)}, 6);
  Bench bench(config);
  EXPECT_EQ(bench.free_order(), (Blocks{3, 4, 5, 6}));
  EXPECT_EQ(bench.manager.block_pool().ref_cnt(1), 0U);
  EXPECT_EQ(bench.manager.block_pool().block_counts(),
            (BlockCounts{.empty = 4, .cached = 0, .referenced = 3}));
  EXPECT_FALSE(bench.manager.reset_prefix_cache());
  std::vector<std::uint32_t> ids = {9};
  bench.allocate(Owned(config, 0, 4), 4);
  bench.manager.take_new_block_ids(ids);
  EXPECT_TRUE(ids.empty());  // only full attention proper
}

TEST(KVCacheManagerTest, CommonPrefixIsWhatEveryAllocatedRequestHolds) {
  const KVCacheManagerConfig config = config_of({full(), sliding(9)});
  Bench bench(config);
  std::vector<std::uint32_t> counts;
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNotAllocated);
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(99, counts), ErrorCode::kNotAllocated);
  const Owned a(config, 0, 8);
  bench.allocate(a, 8);
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{4, 0}));
  bench.allocate_with_hit(Owned(config, 1, 8), 2);
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{3, 0}));
  bench.allocate(Owned(config, 2, 4, 90), 4);
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(0, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{0, 0}));
  bench.manager.free(2);
  EXPECT_EQ(bench.manager.get_num_common_prefix_blocks(1, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, (std::vector<std::uint32_t>{3, 0}));
}

TEST(KVCacheManagerTest, NewBlockIdsAreTakenOnce) {
  const KVCacheManagerConfig config = config_of({sliding(3), full()});
  Bench bench(config);
  const Owned a(config, 0, 8);
  const KVRequest request = a.view();
  bench.allocate({.request = request, .num_new_tokens = 2, .num_external_tokens = 4});
  std::vector<std::uint32_t> ids;
  bench.manager.take_new_block_ids(ids);
  EXPECT_EQ(ids, bench.table(0)[1]);
  bench.manager.take_new_block_ids(ids);
  EXPECT_TRUE(ids.empty());
}

TEST(KVCacheManagerTest, FreeGoesGroupByGroupTheLastBlockFirst) {
  const KVCacheManagerConfig config = config_of({full(), sliding(9)}, 6);
  Bench bench(config);
  bench.allocate(Owned(config, 0, 5), 5);
  bench.manager.free(0);
  EXPECT_EQ(bench.free_order(), (Blocks{3, 2, 1, 6, 5, 4}));
  bench.manager.free(0);
  bench.manager.free(77);
  EXPECT_EQ(bench.free_order().size(), 6U);
  EXPECT_EQ(bench.table(0), (BlocksByGroup{{}, {}}));
}

TEST(KVCacheManagerTest, StatsCountLookups) {
  const KVCacheManagerConfig config = config_of({full()});
  Bench bench(config);
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

TEST(KVCacheManagerTest, EventsCarryTheGroupsKindAndWindow) {
  const KVCacheManagerConfig config = config_of({full(), sliding(3)}, 20, all_rules());
  Bench bench(config);
  bench.allocate(Owned(config, 0, 4), 4);
  std::vector<KVCacheEvent> events;
  bench.manager.take_events(events);
  ASSERT_EQ(events.size(), 2U);
  const auto& of_full = std::get<BlockStored>(events[0]);
  const auto& of_window = std::get<BlockStored>(events[1]);
  EXPECT_EQ(of_full.kv_cache_spec_kind, "full_attention");
  EXPECT_EQ(of_full.kv_cache_spec_sliding_window, std::nullopt);
  EXPECT_EQ(of_window.kv_cache_spec_kind, "sliding_window");
  EXPECT_EQ(of_window.kv_cache_spec_sliding_window, 3U);
}

TEST(KVCacheManagerTest, ACopyIsAManagerOfItsOwn) {
  const KVCacheManagerConfig config = config_of({full(), sliding(3)});
  Bench bench(config);
  const Owned a(config, 0, 8);
  bench.allocate(a, 4);
  Bench copy = bench;
  const BlocksByGroup of_copy = copy.allocate(a, 4, 4);
  copy.manager.free(0);
  EXPECT_EQ(bench.table(0)[0].size(), 2U);
  EXPECT_EQ(bench.allocate(a, 4, 4), of_copy);
}

}  // namespace
}  // namespace kvfence::optimized
