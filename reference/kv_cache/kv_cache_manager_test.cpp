// Each rule and each refusal of the manager, and upstream's own cases
// (tests/v1/core/test_prefix_caching.py) in our words. A refusal is checked against everything that
// an observer can read. Requests are lists of tokens; blocks have 16 of them unless said otherwise.
#include "reference/kv_cache/kv_cache_manager.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvfence::reference {
namespace {

using Ids = std::vector<BlockId>;
using Tokens = std::vector<TokenId>;
using Counts = std::vector<std::uint32_t>;

constexpr std::uint32_t kBlockSize = 16;

const KVCacheSpec kFull = {.block_size = kBlockSize};
const KVCacheSpec kMamba = {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize};
const KVCacheSpec kMambaAlign = {
    .kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize, .mamba_align = true};
const KVCacheSpec kSink = {
    .kind = KVCacheSpecKind::kSinkFullAttention, .block_size = kBlockSize, .sink_len = kBlockSize};

KVCacheSpec window_of(std::uint32_t num_tokens) {
  return {.kind = KVCacheSpecKind::kSlidingWindow,
          .block_size = kBlockSize,
          .sliding_window = num_tokens};
}

KVCacheManagerConfig config_of(std::vector<KVCacheSpec> groups, std::uint32_t num_gpu_blocks = 11,
                               Profile profile = Profile::kV019) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = num_gpu_blocks;
  config.pool.enable_kv_cache_events = true;
  config.pool.hash.hash_block_size = kBlockSize;
  config.pool.max_block_size = 2 * kBlockSize;
  config.pool.profile = profile;
  config.pool.rules = rules_of(profile);
  config.groups = std::move(groups);
  config.max_model_len = 8192;
  config.max_num_batched_tokens = 8192;
  return config;
}

KVCacheManagerConfig without_caching(KVCacheManagerConfig config) {
  config.pool.enable_caching = false;
  return config;
}

KVCacheManagerConfig with_eagle(KVCacheManagerConfig config) {
  config.use_eagle = true;
  return config;
}

/// num_blocks blocks full of tokens, each of which starts with its own number, then tail_tokens
/// tokens that start with tail.
Tokens tokens_of(std::size_t num_blocks, std::size_t tail_tokens = 0, TokenId tail = 900) {
  Tokens tokens;
  for (std::size_t i = 0; i < num_blocks * kBlockSize; ++i) {
    tokens.push_back(static_cast<TokenId>(i / kBlockSize));
  }
  tokens.insert(tokens.end(), tail_tokens, tail);
  return tokens;
}

struct Options {
  bool from_cache = false;
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;
  bool delay_cache_blocks = false;
  std::uint32_t num_encoder_tokens = 0;
  bool full_sequence_must_fit = false;
  std::uint32_t reserved_blocks = 0;
};

/// Everything that an observer can read.
struct Observed {
  Ids free_blocks;
  Counts ref_cnts;
  std::vector<std::string> keys;
  std::vector<BlocksByGroup> tables;
  Ids new_block_ids;
  std::vector<KVCacheEvent> events;
  PrefixCacheStats stats;
  bool operator==(const Observed&) const = default;
};

/// A manager and the requests that it is asked about.
class World {
 public:
  explicit World(const KVCacheManagerConfig& config) : manager(config) {}

  RequestIndex declare(const Tokens& tokens) {
    RequestSpec spec;
    spec.tokens = tokens;
    requests_.emplace_back(std::move(spec), manager.config().pool.hash);
    num_prompt_tokens_.push_back(static_cast<std::uint32_t>(tokens.size()));
    return static_cast<RequestIndex>(requests_.size() - 1);
  }
  void append(RequestIndex index, const Tokens& tokens) {
    requests_[index].append_output_token_ids(tokens);
  }
  KVRequest request(RequestIndex index, std::uint32_t num_computed_tokens = 0) const {
    return {.index = index,
            .request = requests_[index],
            .num_computed_tokens = num_computed_tokens,
            .num_prompt_tokens = num_prompt_tokens_[index]};
  }

  ComputedBlocks hit(RequestIndex index) {
    ComputedBlocks out;
    manager.get_computed_blocks(request(index), out);
    return out;
  }

  ErrorCode try_allocate(RequestIndex index, std::uint32_t num_computed_tokens,
                         std::uint32_t num_new_tokens, const Options& options = {}) {
    ComputedBlocks found;
    const KVRequest view = request(index, num_computed_tokens);
    if (options.from_cache) manager.get_computed_blocks(view, found);
    return manager.allocate_slots(
        {view, num_new_tokens, options.from_cache ? &found : nullptr, options.num_lookahead_tokens,
         options.num_external_tokens, options.delay_cache_blocks, options.num_encoder_tokens,
         options.full_sequence_must_fit, options.reserved_blocks},
        allocated, new_blocks);
  }

  /// The new blocks by group; nothing if the free blocks did not suffice.
  std::optional<BlocksByGroup> allocate(RequestIndex index, std::uint32_t num_computed_tokens,
                                        std::uint32_t num_new_tokens, const Options& options = {}) {
    EXPECT_EQ(try_allocate(index, num_computed_tokens, num_new_tokens, options), ErrorCode::kNone);
    if (!allocated) return std::nullopt;
    return new_blocks;
  }

  /// A new request whose tokens all get slots, after what the cache has of them.
  RequestIndex run(const Tokens& tokens) {
    const RequestIndex index = declare(tokens);
    const std::uint32_t num_hit_tokens = hit(index).num_tokens;
    const auto num_new = static_cast<std::uint32_t>(tokens.size()) - num_hit_tokens;
    EXPECT_TRUE(allocate(index, 0, num_new, {.from_cache = true}));
    return index;
  }

  BlocksByGroup table(RequestIndex index) const {
    BlocksByGroup out;
    manager.get_block_ids(index, out);
    return out;
  }
  Ids free_blocks() const {
    Ids out;
    manager.block_pool().get_all_free_blocks(out);
    return out;
  }
  bool has_key(BlockId block) const { return !manager.block_pool().block_key(block).empty(); }
  std::uint32_t ref_cnt(BlockId block) const { return manager.block_pool().ref_cnt(block); }

  Observed observe() const {
    KVCacheManager copy = manager;
    Observed seen;
    seen.free_blocks = free_blocks();
    for (BlockId block = 0; block < copy.config().pool.num_gpu_blocks; ++block) {
      seen.ref_cnts.push_back(copy.block_pool().ref_cnt(block));
      seen.keys.emplace_back(copy.block_pool().block_key(block));
    }
    for (RequestIndex index = 0; index < requests_.size(); ++index) {
      seen.tables.push_back(table(index));
    }
    copy.take_new_block_ids(seen.new_block_ids);
    copy.take_events(seen.events);
    seen.stats = copy.take_prefix_cache_stats();
    return seen;
  }

  /// Length of the hit in blocks of the first group if these blocks lose their hashes.
  std::size_t num_hit_blocks_without(RequestIndex index, const Ids& evicted) const {
    World copy = *this;
    EXPECT_EQ(copy.manager.evict_blocks(evicted), ErrorCode::kNone);
    const ComputedBlocks found = copy.hit(index);
    EXPECT_EQ(found.blocks.front().size() * kBlockSize, found.num_tokens);
    return found.num_tokens / kBlockSize;
  }

  KVCacheManager manager;
  bool allocated = false;
  BlocksByGroup new_blocks;

 private:
  std::deque<Request> requests_;
  std::vector<std::uint32_t> num_prompt_tokens_;
};

// test_prefill
TEST(KVCacheManager, ASecondRequestSharesThePrefixOfTheFirst) {
  World world(config_of({kFull}));
  const RequestIndex a = world.declare(tokens_of(3, 7, 901));
  EXPECT_EQ(world.hit(a).num_tokens, 0u);
  EXPECT_EQ(world.allocate(a, 0, 55), BlocksByGroup({{1, 2, 3, 4}}));
  EXPECT_TRUE(world.has_key(3));
  EXPECT_FALSE(world.has_key(4));

  const RequestIndex b = world.declare(tokens_of(3, 5, 902));
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2, 3}}));
  EXPECT_EQ(world.hit(b).num_tokens, 48u);
  EXPECT_EQ(world.allocate(b, 0, 5, {.from_cache = true}), BlocksByGroup({{5}}));
  EXPECT_EQ(world.table(b), BlocksByGroup({{1, 2, 3, 5}}));
  EXPECT_EQ(world.ref_cnt(3), 2u);

  world.manager.free(a);
  world.manager.free(b);
  EXPECT_EQ(world.free_blocks(), Ids({6, 7, 8, 9, 10, 4, 5, 3, 2, 1}));

  const RequestIndex c = world.declare(tokens_of(3, 6, 903));
  EXPECT_EQ(world.allocate(c, 0, 6, {.from_cache = true}), BlocksByGroup({{6}}));
  EXPECT_EQ(world.manager.block_pool().get_num_free_blocks(), 6u);
  world.manager.free(c);

  const RequestIndex d = world.declare(Tokens(160, 99));
  EXPECT_EQ(world.hit(d).num_tokens, 0u);
  EXPECT_EQ(world.allocate(d, 0, 160), BlocksByGroup({{7, 8, 9, 10, 4, 5, 6, 3, 2, 1}}));
  EXPECT_EQ(world.free_blocks(), Ids{});
}

// test_prefill_hybrid_model
TEST(KVCacheManager, AHybridHitIsWhatEveryGroupHas) {
  World world(config_of({kFull, window_of(32), window_of(32)}, 21));
  const RequestIndex a = world.declare(tokens_of(3, 7, 901));
  EXPECT_EQ(world.allocate(a, 0, 55), BlocksByGroup({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}));

  const RequestIndex b = world.declare(tokens_of(3, 5, 902));
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2, 3}, {0, 6, 7}, {0, 10, 11}}));
  EXPECT_EQ(world.num_hit_blocks_without(b, {5, 9}), 3u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {1}), 0u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {3, 7, 11}), 2u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {3}), 2u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {7}), 2u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {11}), 2u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {3, 5, 9}), 0u);
}

// test_prefill_hybrid_model_eagle
TEST(KVCacheManager, EagleDropsABlockInEveryLookup) {
  World world(with_eagle(config_of({kFull, window_of(48), window_of(48)}, 31)));
  world.run(tokens_of(6, 7, 901));

  const RequestIndex b = world.declare(tokens_of(6, 5, 902));
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2, 3, 4}, {0, 9, 10, 11}, {0, 16, 17, 18}}));
  EXPECT_EQ(world.num_hit_blocks_without(b, {8, 15}), 4u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {1}), 0u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {6, 12, 19}), 3u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {6}), 3u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {12}), 3u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {19}), 3u);
  EXPECT_EQ(world.num_hit_blocks_without(b, {6, 8, 15}), 0u);
}

TEST(KVCacheManager, EagleByGroupDropsOneBlockOnce) {
  World world(with_eagle(config_of({kFull, window_of(48)}, 31, Profile::kV023)));
  world.run(tokens_of(6, 7, 901));

  EXPECT_EQ(world.hit(world.declare(tokens_of(6, 5, 902))).num_tokens, 5 * kBlockSize);
}

TEST(KVCacheManager, EagleByGroupLeavesOtherGroupsAlone) {
  KVCacheManagerConfig config = with_eagle(config_of({kFull, window_of(48)}, 31, Profile::kV023));
  config.eagle_groups = {1};
  World world(config);
  world.run(tokens_of(6, 7, 901));

  EXPECT_EQ(world.hit(world.declare(tokens_of(6, 5, 902))).num_tokens, 5 * kBlockSize);
}

// test_prefill_hybrid_model_combinations
TEST(KVCacheManager, EveryMixOfKindsSharesThePrefix) {
  const KVCacheSpec window = window_of(32);
  const KVCacheSpec large = window_of(64);
  const std::vector<std::vector<KVCacheSpec>> mixes = {
      {kFull, window},         {window, large},         {kFull, kMamba},
      {kFull, window, kMamba}, {window, large, kMamba}, {kFull, window, kFull, window},
      {window, kFull, large},  {kMamba, kFull, window}, {large, window, kFull, kMamba},
  };
  for (const std::vector<KVCacheSpec>& mix : mixes) {
    SCOPED_TRACE(&mix - mixes.data());
    World world(config_of(mix, 10 * static_cast<std::uint32_t>(mix.size())));
    world.run(tokens_of(3, 7, 901));
    world.manager.new_step_starts();
    const RequestIndex b = world.declare(tokens_of(3, 5, 902));

    for (const Ids& blocks : world.hit(b).blocks) EXPECT_EQ(blocks.size(), 3u);
    EXPECT_TRUE(world.allocate(b, 0, 5, {.from_cache = true}));
    for (const Ids& blocks : world.table(b)) EXPECT_EQ(blocks.size(), 4u);
  }
}

// test_prefill_hybrid_model_combinations_eagle
TEST(KVCacheManager, ASimpleHybridWithEagleLosesTwoBlocks) {
  World world(with_eagle(config_of({kFull, window_of(32)}, 31)));
  world.run(tokens_of(4, 7, 901));

  EXPECT_EQ(world.hit(world.declare(tokens_of(4, 5, 902))).num_tokens, 2 * kBlockSize);
}

// test_prefill_hybrid_model_mamba_align
TEST(KVCacheManager, MambaAlignCachesOnlyTheRunningState) {
  World world(config_of({kFull, kMambaAlign}, 31));
  const RequestIndex a = world.run(tokens_of(3));

  EXPECT_EQ(world.table(a), BlocksByGroup({{1, 2, 3}, {0, 0, 4}}));
  world.manager.new_step_starts();
  const RequestIndex b = world.declare(tokens_of(3, 5));
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2, 3}, {0, 0, 4}}));
  EXPECT_EQ(world.allocate(b, 0, 5, {.from_cache = true}), BlocksByGroup({{5}, {6}}));
}

TEST(KVCacheManager, MambaAlignMovesSpeculativeBlocksBehindTheState) {
  KVCacheSpec spec = kMambaAlign;
  spec.num_speculative_blocks = 1;
  World world(config_of({spec}, 11));
  const RequestIndex a = world.declare(tokens_of(4));

  EXPECT_EQ(world.allocate(a, 0, 16), BlocksByGroup({{1, 2}}));
  EXPECT_EQ(world.allocate(a, 16, 32), BlocksByGroup({{2, 3}}));
  EXPECT_EQ(world.table(a), BlocksByGroup({{1, 0, 2, 3}}));
  EXPECT_EQ(world.allocate(a, 48, 16), BlocksByGroup({{4}}));
  EXPECT_EQ(world.table(a), BlocksByGroup({{0, 0, 2, 3, 4}}));
}

TEST(KVCacheManager, MambaCannotUseWhatWasCachedInThisStep) {
  World world(config_of({kFull, kMamba}, 31));
  world.run(tokens_of(3));
  const RequestIndex b = world.declare(tokens_of(3, 5));

  EXPECT_EQ(world.hit(b).num_tokens, 48u);
  EXPECT_FALSE(world.allocate(b, 0, 5, {.from_cache = true}));
  world.manager.new_step_starts();
  EXPECT_TRUE(world.allocate(b, 0, 5, {.from_cache = true}));
}

// test_prefill_plp
TEST(KVCacheManager, ARequestMaySkipReadingTheCache) {
  World world(config_of({kFull}));
  world.run(tokens_of(3));
  const RequestIndex b = world.declare(tokens_of(3, 5));
  KVRequest request = world.request(b);
  request.skip_reading_prefix_cache = true;
  ComputedBlocks hit;
  world.manager.take_prefix_cache_stats();

  world.manager.get_computed_blocks(request, hit);

  EXPECT_EQ(hit.num_tokens, 0u);
  EXPECT_EQ(hit.blocks, BlocksByGroup(1));
  EXPECT_EQ(world.manager.take_prefix_cache_stats(), PrefixCacheStats{});
  EXPECT_EQ(world.allocate(b, 0, 53), BlocksByGroup({{4, 5, 6, 7}}));
  EXPECT_EQ(world.manager.block_pool().block_key(4), world.manager.block_pool().block_key(1));
}

// test_decode
TEST(KVCacheManager, ABlockIsCachedOnceItIsFull) {
  World world(config_of({kFull}));
  const RequestIndex a = world.run(tokens_of(3, 7));

  world.append(a, Tokens(4, 8));
  EXPECT_EQ(world.allocate(a, 55, 4), BlocksByGroup(1));
  EXPECT_FALSE(world.has_key(4));

  world.append(a, Tokens(19, 7));
  EXPECT_EQ(world.allocate(a, 59, 19), BlocksByGroup({{5}}));
  EXPECT_TRUE(world.has_key(4));
  EXPECT_FALSE(world.has_key(5));
}

// test_evict
TEST(KVCacheManager, TheLongestUnusedTailIsEvictedFirst) {
  World world(config_of({kFull}));
  const RequestIndex a = world.run(tokens_of(5, 7));
  const RequestIndex b = world.run(Tokens(48, 77));
  world.manager.free(a);
  world.manager.free(b);
  EXPECT_EQ(world.free_blocks(), Ids({10, 6, 5, 4, 3, 2, 1, 9, 8, 7}));

  const RequestIndex c = world.declare(tokens_of(2, 3));
  EXPECT_EQ(world.hit(c).blocks, BlocksByGroup({{1, 2}}));
  EXPECT_EQ(world.allocate(c, 0, 3, {.from_cache = true}), BlocksByGroup({{10}}));
  EXPECT_EQ(world.manager.block_pool().get_num_free_blocks(), 7u);
}

// test_hash_block_correct_reuse
TEST(KVCacheManager, AReusedBlockLosesItsHash) {
  World world(config_of({kFull}, 2));
  world.manager.free(world.run(tokens_of(1)));
  EXPECT_TRUE(world.has_key(1));

  world.run(Tokens(15, 77));

  EXPECT_FALSE(world.has_key(1));
}

// test_computed_blocks_not_evicted
TEST(KVCacheManager, AHitIsNotTakenForItsOwnRequest) {
  World world(config_of({kFull}, 3));
  world.manager.free(world.run(tokens_of(1)));
  world.manager.free(world.run(Tokens(16, 77)));
  const RequestIndex c = world.declare(tokens_of(2));

  EXPECT_EQ(world.hit(c).blocks, BlocksByGroup({{1}}));
  EXPECT_EQ(world.allocate(c, 0, 16, {.from_cache = true}), BlocksByGroup({{2}}));
}

// test_basic_prefix_caching_disabled
TEST(KVCacheManager, WithoutCachingNothingIsFound) {
  World world(without_caching(config_of({kFull}, 5)));
  world.manager.free(world.run(tokens_of(1)));
  const RequestIndex b = world.declare(tokens_of(2, 1));
  const RequestIndex c = world.declare(Tokens(50, 77));

  EXPECT_EQ(world.hit(b).num_tokens, 0u);
  EXPECT_EQ(world.manager.take_prefix_cache_stats(), PrefixCacheStats{});
  EXPECT_TRUE(world.allocate(b, 0, 33));
  EXPECT_FALSE(world.allocate(c, 0, 50));
  EXPECT_EQ(world.manager.cache_blocks(world.request(b), 16), ErrorCode::kNone);
  EXPECT_EQ(world.manager.block_pool().num_cached_keys(), 0u);
}

// test_prefill_not_enough_free_blocks_with_computed_blocks
TEST(KVCacheManager, AFailedAllocationDoesNotTouchTheHit) {
  World world(config_of({kFull}));
  world.run(tokens_of(3));
  world.manager.free(world.run(tokens_of(6)));
  world.run(Tokens(64, 77));
  const RequestIndex d = world.declare(tokens_of(9));
  EXPECT_EQ(world.hit(d).blocks, BlocksByGroup({{1, 2, 3, 4, 5, 6}}));
  const Observed before = world.observe();

  EXPECT_FALSE(world.allocate(d, 0, 48, {.from_cache = true}));

  Observed after = world.observe();
  after.stats = before.stats;
  EXPECT_TRUE(after == before);
  EXPECT_EQ(world.ref_cnt(3), 1u);
  EXPECT_EQ(world.ref_cnt(4), 0u);
}

// test_eagle_enabled_removes_last_block, test_eagle_with_partial_blocks
TEST(KVCacheManager, EagleDropsTheLastHitBlock) {
  World world(with_eagle(config_of({kFull})));
  world.run(tokens_of(3));

  EXPECT_EQ(world.hit(world.declare(tokens_of(3))).blocks, BlocksByGroup({{1}}));
  EXPECT_EQ(world.hit(world.declare(tokens_of(2, 5))).blocks, BlocksByGroup({{1}}));
}

// test_eagle_with_sliding_window
TEST(KVCacheManager, EagleWithAWindowNeedsOneBlockMore) {
  World world(with_eagle(config_of({window_of(kBlockSize)})));
  world.run(tokens_of(3));
  const RequestIndex b = world.declare(tokens_of(3));

  EXPECT_EQ(world.hit(b).num_tokens, kBlockSize);
  EXPECT_EQ(world.num_hit_blocks_without(b, {1}), 0u);
}

// test_different_block_size
TEST(KVCacheManager, GroupsMayHaveDifferentBlockSizes) {
  World world(config_of({{.block_size = 32}, window_of(32)}, 21));
  const RequestIndex a = world.run(tokens_of(7));
  EXPECT_EQ(world.table(a), BlocksByGroup({{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11}}));

  const RequestIndex b = world.declare(tokens_of(7, 1));
  EXPECT_EQ(world.hit(b).num_tokens, 96u);
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2, 3}, {0, 0, 0, 0, 9, 10}}));
  EXPECT_EQ(world.manager.evict_blocks(Ids{10, 11}), ErrorCode::kNone);
  EXPECT_EQ(world.hit(b).num_tokens, 64u);
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1, 2}, {0, 0, 7, 8}}));
}

// Found by comparing with vLLM: only the first full-attention kind is cut to the length.
TEST(KVCacheManager, ASecondFullAttentionKindKeepsMoreThanTheHit) {
  World world(config_of({kFull, kSink, kMamba}, 21));
  const RequestIndex a = world.run(tokens_of(2));
  world.manager.new_step_starts();
  EXPECT_EQ(world.table(a), BlocksByGroup({{2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(world.manager.evict_blocks(Ids{6, 7}), ErrorCode::kNone);
  const RequestIndex b = world.declare(tokens_of(2, 1));

  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{}, {4, 5}, {}}));
  EXPECT_EQ(world.hit(b).num_tokens, 0u);
  EXPECT_TRUE(world.allocate(b, 0, 1, {.from_cache = true, .num_external_tokens = 1}));
  EXPECT_EQ(world.table(b), BlocksByGroup({{8}, {4, 5}, {9}}));
}

// test_prefix_cache_stats_disabled has no counterpart: statistics are always on.
TEST(KVCacheManager, StatisticsCountTokensAndPreemptedRequestsApart) {
  World world(config_of({kFull}));
  world.run(tokens_of(3));
  world.manager.take_prefix_cache_stats();
  const RequestIndex b = world.declare(tokens_of(3, 5));
  world.hit(b);
  KVRequest preempted = world.request(b);
  preempted.was_preempted = true;
  ComputedBlocks hit;
  world.manager.get_computed_blocks(preempted, hit);

  EXPECT_EQ(world.manager.take_prefix_cache_stats(), (PrefixCacheStats{.requests = 1,
                                                                       .queries = 53,
                                                                       .hits = 48,
                                                                       .preempted_requests = 1,
                                                                       .preempted_queries = 53,
                                                                       .preempted_hits = 48}));
  EXPECT_EQ(world.manager.take_prefix_cache_stats(), PrefixCacheStats{});
}

TEST(KVCacheManager, AResetIsMarkedInTheStatistics) {
  World world(config_of({kFull}));
  const RequestIndex a = world.declare(tokens_of(1));
  EXPECT_TRUE(world.allocate(a, 0, 16));

  EXPECT_FALSE(world.manager.reset_prefix_cache());
  EXPECT_FALSE(world.manager.take_prefix_cache_stats().reset);
  world.manager.free(a);
  EXPECT_TRUE(world.manager.reset_prefix_cache());
  EXPECT_TRUE(world.manager.take_prefix_cache_stats().reset);
}

TEST(KVCacheManager, SlotsForLookaheadAreNotCached) {
  World world(config_of({kFull}));
  const RequestIndex a = world.declare(tokens_of(1));

  EXPECT_EQ(world.allocate(a, 0, 16, {.num_lookahead_tokens = 20}), BlocksByGroup({{1, 2, 3}}));
  EXPECT_TRUE(world.has_key(1));
  EXPECT_FALSE(world.has_key(2));
}

TEST(KVCacheManager, SlotsEndAtTheModelLength) {
  KVCacheManagerConfig config = config_of({kFull});
  config.max_model_len = 32;
  World world(config);

  EXPECT_EQ(world.allocate(world.declare(tokens_of(2)), 0, 32, {.num_lookahead_tokens = 99}),
            BlocksByGroup({{1, 2}}));
}

TEST(KVCacheManager, ExternalBlocksAreNotAmongTheNewOnesAndMayBeCachedLater) {
  World world(config_of({kFull}));
  const RequestIndex a = world.declare(tokens_of(3));

  EXPECT_EQ(world.allocate(a, 0, 0, {.num_external_tokens = 40, .delay_cache_blocks = true}),
            BlocksByGroup(1));
  EXPECT_EQ(world.table(a), BlocksByGroup({{1, 2, 3}}));
  EXPECT_EQ(world.manager.block_pool().num_cached_keys(), 0u);
  EXPECT_EQ(world.manager.cache_blocks(world.request(a), 40), ErrorCode::kNone);
  EXPECT_EQ(world.manager.block_pool().num_cached_keys(), 2u);
}

// vllm#33775, as upstream does it.
TEST(KVCacheManager, ExternalBlocksOfOneGroupMayTakeAnothersHit) {
  World world(config_of({kFull, window_of(17)}, 6));
  world.manager.free(world.run(tokens_of(2)));
  EXPECT_EQ(world.free_blocks(), Ids({5, 2, 1, 4, 3}));
  EXPECT_EQ(world.manager.evict_blocks(Ids{2}), ErrorCode::kNone);
  const RequestIndex b = world.declare(tokens_of(1, 40));
  EXPECT_EQ(world.hit(b).blocks, BlocksByGroup({{1}, {3}}));

  EXPECT_TRUE(world.allocate(b, 0, 0, {.from_cache = true, .num_external_tokens = 8}));

  EXPECT_EQ(world.table(b), BlocksByGroup({{1, 5}, {3, 2}}));
}

TEST(KVCacheManager, SkippedBlocksStayFreedWhenTheAllocationFails) {
  World world(config_of({window_of(16)}, 5));
  const RequestIndex a = world.declare(tokens_of(9));
  EXPECT_TRUE(world.allocate(a, 0, 48));

  EXPECT_FALSE(world.allocate(a, 48, 96));

  EXPECT_EQ(world.table(a), BlocksByGroup({{0, 0, 3}}));
  EXPECT_EQ(world.free_blocks(), Ids({4, 2, 1}));
}

TEST(KVCacheManager, UnhashedBlocksOfAWindowAreReusedFirst) {
  World world(config_of({window_of(16)}, 8, Profile::kV023));
  const RequestIndex a = world.declare(tokens_of(4));
  EXPECT_TRUE(world.allocate(a, 0, 64));
  EXPECT_EQ(world.manager.evict_blocks(Ids{1}), ErrorCode::kNone);

  world.manager.remove_skipped_blocks(a, 48);
  EXPECT_EQ(world.free_blocks(), Ids({1, 5, 6, 7, 2}));
  EXPECT_EQ(world.manager.evict_blocks(Ids{3}), ErrorCode::kNone);
  world.manager.free(a);
  EXPECT_EQ(world.free_blocks(), Ids({3, 1, 5, 6, 7, 2, 4}));
}

TEST(KVCacheManager, TheMaskKeepsTheTailOfEachSegment) {
  World world(config_of({{.block_size = 32}, window_of(16)}, 21, Profile::kV023));
  const RequestIndex a = world.run(tokens_of(4, 5));
  EXPECT_EQ(world.table(a), BlocksByGroup({{1, 2, 3}, {4, 5, 6, 7, 8}}));

  EXPECT_FALSE(world.has_key(4));
  EXPECT_TRUE(world.has_key(5));
  EXPECT_FALSE(world.has_key(6));
  EXPECT_TRUE(world.has_key(7));
  EXPECT_EQ(world.hit(world.declare(tokens_of(4, 6))).blocks,
            BlocksByGroup({{1, 2}, {0, 0, 0, 7}}));
}

TEST(KVCacheManager, ARetentionOfZeroKeepsTheReplayBoundaryAlone) {
  KVCacheManagerConfig config = config_of({kFull, window_of(16)}, 21, Profile::kV023);
  config.retention_interval = 0;
  World world(config);
  const RequestIndex a = world.run(tokens_of(4));

  EXPECT_EQ(world.table(a)[1], Ids({5, 6, 7, 8}));
  EXPECT_FALSE(world.has_key(6));
  EXPECT_TRUE(world.has_key(7));
  EXPECT_FALSE(world.has_key(8));
  EXPECT_EQ(world.hit(world.declare(tokens_of(4))).num_tokens, 48u);
}

TEST(KVCacheManager, ARetentionIntervalKeepsItsMultiplesToo) {
  KVCacheManagerConfig config = config_of({kFull, window_of(16)}, 31, Profile::kV023);
  config.retention_interval = 32;
  World world(config);
  const RequestIndex a = world.run(tokens_of(7, 1));

  const Ids table = world.table(a)[1];
  const std::vector<bool> expected = {false, true, false, true, false, true, true, false};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(world.has_key(table[i]), expected[i]) << i;
  }
}

TEST(KVCacheManager, HybridCachingIsRoundedDownExceptForEaglesBlock) {
  const std::vector<KVCacheSpec> groups = {{.block_size = 32}, window_of(64)};
  World plain(config_of(groups, 31, Profile::kV023));
  World eagle(with_eagle(config_of(groups, 31, Profile::kV023)));
  World before(config_of(groups, 31));

  plain.run(tokens_of(3));
  eagle.run(tokens_of(3));
  before.run(tokens_of(3));

  EXPECT_EQ(plain.manager.block_pool().num_cached_keys(), 1u + 2u);
  EXPECT_EQ(eagle.manager.block_pool().num_cached_keys(), 1u + 3u);
  EXPECT_EQ(before.manager.block_pool().num_cached_keys(), 1u + 3u);
}

TEST(KVCacheManager, TheGateCountsTheWholeSequence) {
  World world(config_of({kFull}, 5));
  const RequestIndex a = world.declare(tokens_of(4));
  const RequestIndex b = world.declare(tokens_of(4, 1));
  bool fits = false;

  EXPECT_EQ(world.manager.can_fit_full_sequence(world.request(a), nullptr, 0, 0, fits),
            ErrorCode::kNone);
  EXPECT_TRUE(fits);
  EXPECT_EQ(world.manager.can_fit_full_sequence(world.request(b), nullptr, 0, 0, fits),
            ErrorCode::kNone);
  EXPECT_FALSE(fits);
}

TEST(KVCacheManager, TheGateOfAllocateSlotsCapsAWindow) {
  KVCacheManagerConfig config = config_of({window_of(16)}, 5, Profile::kV023);
  World uncapped(config);
  config.max_num_batched_tokens = 16;
  World capped(config);
  const Options gate = {.full_sequence_must_fit = true};

  EXPECT_FALSE(uncapped.allocate(uncapped.declare(tokens_of(9)), 0, 16, gate));
  EXPECT_TRUE(capped.allocate(capped.declare(tokens_of(9)), 0, 16, gate));
}

TEST(KVCacheManager, AFailedGateGivesNoSkippedBlocksBack) {
  World world(config_of({window_of(16)}, 5, Profile::kV023));
  const RequestIndex a = world.declare(tokens_of(9));
  EXPECT_TRUE(world.allocate(a, 0, 48));
  const Observed before = world.observe();

  EXPECT_FALSE(world.allocate(a, 48, 1, {.full_sequence_must_fit = true}));

  EXPECT_TRUE(world.observe() == before);
}

TEST(KVCacheManager, ReservedBlocksAreLeftAlone) {
  World world(config_of({kFull}, 5, Profile::kV023));
  const RequestIndex a = world.declare(tokens_of(2));

  EXPECT_FALSE(world.allocate(a, 0, 32, {.reserved_blocks = 3}));
  EXPECT_FALSE(world.allocate(a, 0, 32, {.reserved_blocks = 99}));
  EXPECT_TRUE(world.allocate(a, 0, 32, {.reserved_blocks = 2}));
}

TEST(KVCacheManagerV023, RemainingBlocksAreThoseOfTheTokensWithoutASlot) {
  World world(config_of({kFull, window_of(32)}, 11, Profile::kV023));
  const RequestIndex a = world.declare(tokens_of(4));
  const std::uint32_t num_of_both_groups = 2 * 4;
  EXPECT_EQ(world.manager.get_num_remaining_blocks(world.request(a)), num_of_both_groups);

  ASSERT_TRUE(world.allocate(a, 0, 16));
  EXPECT_EQ(world.manager.get_num_remaining_blocks(world.request(a, 16)), num_of_both_groups - 2);
}

TEST(KVCacheManagerV023, RemainingBlocksOfAWindowAreAtMostWhatItCanHold) {
  KVCacheManagerConfig config = config_of({kFull, window_of(32)}, 21, Profile::kV023);
  config.max_num_batched_tokens = 16;
  World world(config);
  const RequestIndex a = world.declare(tokens_of(8));

  // ceil((32 - 1 + 16) / 16) blocks, and one since a window may start inside a block.
  EXPECT_EQ(world.manager.get_num_remaining_blocks(world.request(a)), 8 + 4);
}

TEST(KVCacheManager, RemainingBlocksAreNotCountedInV019) {
  World world(config_of({kFull}));
  EXPECT_EQ(world.manager.get_num_remaining_blocks(world.request(world.declare(tokens_of(4)))), 0);
}

// Found by comparing with vLLM, which raises in the middle of the allocation.
TEST(KVCacheManager, MoreBlocksTakenThanCountedAreNotAllocated) {
  World world(config_of({kMambaAlign}, 2));
  const RequestIndex a = world.declare(tokens_of(2));
  const Observed before = world.observe();

  EXPECT_FALSE(world.allocate(a, 0, 16, {.num_external_tokens = 16}));

  EXPECT_TRUE(world.observe() == before);
}

TEST(KVCacheManager, CrossAttentionHoldsTheEncodersTokens) {
  const KVCacheSpec cross = {.kind = KVCacheSpecKind::kCrossAttention, .block_size = kBlockSize};
  World world(without_caching(config_of({kFull, cross})));
  const RequestIndex a = world.declare(tokens_of(3));

  EXPECT_EQ(world.allocate(a, 0, 16, {.num_external_tokens = 16, .num_encoder_tokens = 40}),
            BlocksByGroup({{2}, {3, 4, 5}}));
  EXPECT_EQ(world.allocate(a, 32, 16, {.num_encoder_tokens = 40}), BlocksByGroup({{6}, {}}));
}

TEST(KVCacheManager, ASinkHoldsBlocksForGood) {
  World world(config_of({kSink}, 5));

  EXPECT_EQ(world.free_blocks(), Ids({2, 3, 4}));
  EXPECT_EQ(world.ref_cnt(1), 0u);
  EXPECT_EQ(world.manager.block_pool().block_counts(),
            (BlockCounts{.empty = 3, .cached = 0, .referenced = 2}));
  EXPECT_FALSE(world.manager.reset_prefix_cache());
}

TEST(KVCacheManager, NewBlockIdsAreThoseOfPlainFullAttention) {
  World world(config_of({kFull, window_of(16), kSink}, 21));
  const RequestIndex a = world.declare(tokens_of(3));
  EXPECT_TRUE(world.allocate(a, 0, 16, {.num_external_tokens = 16}));
  Ids ids;

  world.manager.take_new_block_ids(ids);
  EXPECT_EQ(ids, Ids({2, 5}));
  world.manager.take_new_block_ids(ids);
  EXPECT_EQ(ids, Ids{});
}

TEST(KVCacheManager, CommonPrefixBlocksAreHeldByAllAllocatedRequests) {
  World world(config_of({kFull, window_of(64)}, 31));
  const RequestIndex a = world.run(tokens_of(3, 1));
  Counts counts;
  EXPECT_EQ(world.manager.get_num_common_prefix_blocks(a, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, Counts({4, 0}));

  const RequestIndex b = world.run(tokens_of(3, 2));
  EXPECT_EQ(world.manager.get_num_common_prefix_blocks(b, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, Counts({3, 0}));

  world.run(Tokens(16, 77));
  EXPECT_EQ(world.manager.get_num_common_prefix_blocks(a, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, Counts({0, 0}));
}

TEST(KVCacheManager, WithoutCachingNothingIsCommon) {
  World world(without_caching(config_of({kFull})));
  const RequestIndex a = world.run(tokens_of(2));
  Counts counts;

  EXPECT_EQ(world.manager.get_num_common_prefix_blocks(a, counts), ErrorCode::kNone);
  EXPECT_EQ(counts, Counts({0}));
}

TEST(KVCacheManager, EventsCarryKindAndWindowWhereTheRulesSaySo) {
  for (const Profile profile : kProfiles) {
    SCOPED_TRACE(to_text(profile));
    World world(config_of({kFull, window_of(20)}, 11, profile));
    world.run(tokens_of(2));
    std::vector<KVCacheEvent> events;
    world.manager.take_events(events);

    ASSERT_EQ(events.size(), 2u);
    const auto& full = std::get<BlockStored>(events[0]);
    const auto& window = std::get<BlockStored>(events[1]);
    const bool carry = profile == Profile::kV023;
    EXPECT_EQ(full.kv_cache_spec_kind,
              carry ? std::optional<std::string>("full_attention") : std::nullopt);
    EXPECT_EQ(window.kv_cache_spec_kind,
              carry ? std::optional<std::string>("sliding_window") : std::nullopt);
    EXPECT_EQ(full.kv_cache_spec_sliding_window, std::nullopt);
    EXPECT_EQ(window.kv_cache_spec_sliding_window,
              carry ? std::optional<std::uint32_t>(20) : std::nullopt);
  }
}

TEST(KVCacheManager, FreeingARequestWithoutBlocksDoesNothing) {
  World world(config_of({kFull, window_of(16)}, 11, Profile::kV023));
  const RequestIndex a = world.declare(tokens_of(2));
  const Observed before = world.observe();

  world.manager.free(a);
  world.manager.remove_skipped_blocks(a, 32);

  EXPECT_TRUE(world.observe() == before);
  EXPECT_EQ(world.table(a), BlocksByGroup(2));
}

TEST(KVCacheManager, ACopyIsAlone) {
  World world(config_of({kFull, kMamba}, 11));
  const RequestIndex a = world.run(tokens_of(2));
  const Observed before = world.observe();

  KVCacheManager copy = world.manager;
  copy.free(a);
  EXPECT_TRUE(copy.reset_prefix_cache());

  EXPECT_TRUE(world.observe() == before);
}

/// A refusal changes nothing, and the answer stays as it was.
class KVCacheManagerRefusal : public testing::Test {
 protected:
  explicit KVCacheManagerRefusal(Profile profile = Profile::kV019)
      : world_([profile] {
          KVCacheManagerConfig config = config_of({kFull, kMambaAlign}, 21, profile);
          config.max_model_len = 64;
          return config;
        }()) {
    held_ = world_.run(tokens_of(3));
    world_.manager.new_step_starts();
    other_ = world_.declare(tokens_of(2, 4));
    world_.new_blocks = {{99}};
    world_.allocated = true;
    before_ = world_.observe();
  }

  void expect_unchanged() const {
    Observed after = world_.observe();
    after.stats = before_.stats;
    EXPECT_TRUE(after == before_);
    EXPECT_EQ(world_.new_blocks, BlocksByGroup({{99}}));
    EXPECT_TRUE(world_.allocated);
  }

  World world_;
  RequestIndex held_ = 0;
  RequestIndex other_ = 0;
  Observed before_;
};

class KVCacheManagerV023Refusal : public KVCacheManagerRefusal {
 protected:
  KVCacheManagerV023Refusal() : KVCacheManagerRefusal(Profile::kV023) {}
};

TEST_F(KVCacheManagerRefusal, TheGateOfAllocateSlotsIsNotInV019) {
  EXPECT_EQ(world_.try_allocate(other_, 0, 0, {.full_sequence_must_fit = true}),
            ErrorCode::kNotInProfile);
  EXPECT_EQ(world_.try_allocate(other_, 0, 0, {.reserved_blocks = 1}), ErrorCode::kNotInProfile);
  expect_unchanged();
}

TEST_F(KVCacheManagerV023Refusal, CanFitFullSequenceIsNotInV023) {
  bool fits = true;
  EXPECT_EQ(world_.manager.can_fit_full_sequence(world_.request(other_), nullptr, 0, 0, fits),
            ErrorCode::kNotInProfile);
  EXPECT_TRUE(fits);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, NoTokens) {
  EXPECT_EQ(world_.try_allocate(other_, 999, 0), ErrorCode::kNoTokens);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, BeyondTheModelLength) {
  EXPECT_EQ(world_.try_allocate(held_, 48, 17, {.num_external_tokens = 0}),
            ErrorCode::kBeyondModelLength);
  EXPECT_EQ(world_.try_allocate(held_, 40, 8, {.num_external_tokens = 17}),
            ErrorCode::kBeyondModelLength);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, AHitOrExternalTokensForAnAllocatedRequest) {
  world_.append(held_, Tokens(4, 7));
  const Options with_hit = {.from_cache = true};
  EXPECT_EQ(world_.try_allocate(held_, 0, 1, with_hit), ErrorCode::kAlreadyAllocated);
  EXPECT_EQ(world_.try_allocate(held_, 48, 1, {.num_external_tokens = 1}),
            ErrorCode::kAlreadyAllocated);
  bool fits = true;
  EXPECT_EQ(world_.manager.can_fit_full_sequence(world_.request(held_), nullptr, 1, 0, fits),
            ErrorCode::kAlreadyAllocated);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, AHitForARequestThatWasComputedInPart) {
  const RequestIndex late = world_.declare(tokens_of(3, 1));
  before_ = world_.observe();

  EXPECT_EQ(world_.try_allocate(late, 1, 1, {.from_cache = true}), ErrorCode::kAlreadyAllocated);
  expect_unchanged();
}

TEST(KVCacheManager, AHitOfNoBlocksIsNoHit) {
  World world(config_of({kFull}));
  const RequestIndex a = world.declare(tokens_of(1));
  EXPECT_TRUE(world.allocate(a, 0, 4));

  EXPECT_EQ(world.try_allocate(a, 4, 4, {.from_cache = true}), ErrorCode::kNone);
}

TEST_F(KVCacheManagerRefusal, AMambaTableDoesNotShrink) {
  EXPECT_EQ(world_.try_allocate(held_, 16, 1), ErrorCode::kTableShrinks);
  expect_unchanged();
}

TEST_F(KVCacheManagerV023Refusal, AMambaTableThatIsTooLongIsLeftAlone) {
  EXPECT_EQ(world_.try_allocate(held_, 16, 1), ErrorCode::kNone);
  EXPECT_EQ(world_.new_blocks, BlocksByGroup(2));
}

TEST_F(KVCacheManagerRefusal, CachingMoreThanTheRequestHas) {
  EXPECT_EQ(world_.manager.cache_blocks(world_.request(held_), 49), ErrorCode::kMissingHash);
  EXPECT_EQ(world_.manager.cache_blocks(world_.request(other_), 37), ErrorCode::kMissingHash);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, CachingMoreThanTheTablesHave) {
  EXPECT_EQ(world_.manager.cache_blocks(world_.request(other_), 16), ErrorCode::kBadRange);
  EXPECT_EQ(world_.manager.cache_blocks(world_.request(other_), 15), ErrorCode::kNone);
  expect_unchanged();
}

TEST(KVCacheManager, SpeculativeMambaBlocksAreNotThereToBeCached) {
  KVCacheSpec spec = kMambaAlign;
  spec.num_speculative_blocks = 1;
  World world(config_of({spec}));
  const RequestIndex a = world.declare(tokens_of(2));
  EXPECT_TRUE(world.allocate(a, 0, 16));

  EXPECT_EQ(world.manager.cache_blocks(world.request(a), 32), ErrorCode::kBadRange);
}

TEST_F(KVCacheManagerRefusal, EvictingUnknownBlocks) {
  EXPECT_EQ(world_.manager.evict_blocks(Ids{1, 21}), ErrorCode::kUnknownBlock);
  expect_unchanged();
}

TEST_F(KVCacheManagerRefusal, CommonPrefixOfARequestThatIsNotAllocated) {
  Counts counts = {77};
  EXPECT_EQ(world_.manager.get_num_common_prefix_blocks(other_, counts), ErrorCode::kNotAllocated);
  EXPECT_EQ(counts, Counts({77}));
  expect_unchanged();
}

}  // namespace
}  // namespace kvfence::reference
