// The managers of one group by themselves: lookups over patterns of cached blocks, what they give
// back, what they count. Upstream's own cases (tests/v1/core/test_single_type_kv_cache_manager.py)
// in our words, with real tokens instead of made-up hashes.
#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "reference/kv_cache/chunked_local_attention_manager.h"
#include "reference/kv_cache/full_attention_manager.h"
#include "reference/kv_cache/mamba_manager.h"
#include "reference/kv_cache/sliding_window_manager.h"

namespace kvfence::reference {
namespace {

using Ids = std::vector<BlockId>;

constexpr std::uint32_t kBlockSize = 2;
constexpr std::uint32_t kNumGpuBlocks = 100;
constexpr GroupId kGroup = 0;

KVCacheManagerConfig config_of(const KVCacheSpec& spec) {
  KVCacheManagerConfig config;
  config.pool.num_gpu_blocks = kNumGpuBlocks;
  config.pool.hash.hash_block_size = kBlockSize;
  config.pool.max_block_size = kBlockSize;
  config.groups = {spec};
  config.max_model_len = 1024;
  return config;
}

const KVCacheSpec kWindowOf4 = {
    .kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 4};
const KVCacheSpec kChunkOf4 = {
    .kind = KVCacheSpecKind::kChunkedLocal, .block_size = kBlockSize, .attention_chunk_size = 4};

Request request_of(std::size_t num_blocks) {
  RequestSpec spec;
  spec.tokens.resize(num_blocks * kBlockSize);
  std::iota(spec.tokens.begin(), spec.tokens.end(), TokenId{0});
  return {spec, HashConfig{.hash_block_size = kBlockSize}};
}

/// Blocks found when exactly those blocks of a request are cached that the pattern marks with x.
template <class Manager>
std::size_t num_hit_blocks(const KVCacheSpec& spec, std::string_view pattern,
                           std::size_t tail_tokens = 0) {
  const KVCacheManagerConfig config = config_of(spec);
  const Manager manager(config, kGroup);
  BlockPool pool(config.pool);
  const Request request = request_of(pattern.size());
  Ids table(pattern.size());
  EXPECT_EQ(pool.get_new_blocks(table), ErrorCode::kNone);
  for (std::uint32_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != 'x') continue;
    EXPECT_EQ(pool.cache_full_blocks({request, table, i, i + 1, kBlockSize, kGroup, std::nullopt}),
              ErrorCode::kNone);
  }
  const BlocksByGroup hit = manager.find_longest_cache_hit(
      pool, {request.block_hashes(kBlockSize), pattern.size() * kBlockSize + tail_tokens,
             std::span(&kGroup, 1), false, kBlockSize});
  for (std::size_t i = 0; i < hit.front().size(); ++i) {
    EXPECT_TRUE(hit.front()[i] == kNullBlockId || hit.front()[i] == table[i]);
  }
  return hit.front().size();
}

/// Leading null blocks of a table of 12 blocks once that many tokens are computed.
template <class Manager>
std::size_t num_nulls_after(const KVCacheSpec& spec, std::size_t num_computed_tokens) {
  const KVCacheManagerConfig config = config_of(spec);
  Manager manager(config, kGroup);
  BlockPool pool(config.pool);
  const BlocksByGroup no_hit(1);
  manager.allocate_new_blocks(
      pool, {.request = 0, .new_computed_blocks = no_hit, .num_tokens = 12 * kBlockSize});

  manager.remove_skipped_blocks(pool, 0, num_computed_tokens);

  const std::span<const BlockId> table = manager.blocks(0);
  const auto num_nulls = static_cast<std::size_t>(
      std::find_if(table.begin(), table.end(), [](BlockId block) { return block != 0; }) -
      table.begin());
  EXPECT_EQ(pool.get_num_free_blocks(), kNumGpuBlocks - 1 - 12 + num_nulls);
  return num_nulls;
}

// test_sliding_window_possible_cached_prefix
TEST(SlidingWindowManager, FindsTheRightmostFullWindowOrTheStart) {
  const auto hit = num_hit_blocks<SlidingWindowManager>;

  EXPECT_EQ(hit(kWindowOf4, "..........", 0), 0u);
  EXPECT_EQ(hit(kWindowOf4, "x", 0), 1u);
  EXPECT_EQ(hit(kWindowOf4, "x.", 0), 1u);
  EXPECT_EQ(hit(kWindowOf4, "xx", 0), 2u);
  EXPECT_EQ(hit(kWindowOf4, "xx.", 0), 2u);
  EXPECT_EQ(hit(kWindowOf4, "xxx", 0), 3u);
  EXPECT_EQ(hit(kWindowOf4, "xxx.", 0), 3u);
  EXPECT_EQ(hit(kWindowOf4, "xx.x..xx.xxx", 0), 12u);
  EXPECT_EQ(hit(kWindowOf4, "xx.x..xx...", 0), 8u);
  EXPECT_EQ(hit(kWindowOf4, "xx.x..xx...x", 0), 8u);
}

TEST(SlidingWindowManager, AWindowOfOneTokenNeedsOneBlockAllTheSame) {
  const KVCacheSpec window_of_1 = {
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = kBlockSize, .sliding_window = 1};

  EXPECT_EQ(num_hit_blocks<SlidingWindowManager>(window_of_1, "..x."), 3u);
  EXPECT_EQ(num_hit_blocks<SlidingWindowManager>(window_of_1, "...."), 0u);
}

// test_chunked_local_attention_possible_cached_prefix
TEST(ChunkedLocalAttentionManager, TakesEarlierChunksForGranted) {
  const auto hit = num_hit_blocks<ChunkedLocalAttentionManager>;

  EXPECT_EQ(hit(kChunkOf4, "x", 0), 1u);
  EXPECT_EQ(hit(kChunkOf4, "x", 1), 1u);
  EXPECT_EQ(hit(kChunkOf4, "x.", 0), 2u);
  EXPECT_EQ(hit(kChunkOf4, "..", 1), 2u);
  EXPECT_EQ(hit(kChunkOf4, "xx.", 0), 2u);
  EXPECT_EQ(hit(kChunkOf4, "xxx", 1), 3u);
  EXPECT_EQ(hit(kChunkOf4, "xxx.", 0), 4u);
  EXPECT_EQ(hit(kChunkOf4, "..x..xx.", 1), 8u);
  EXPECT_EQ(hit(kChunkOf4, "xxxxxxxx.", 0), 8u);
  EXPECT_EQ(hit(kChunkOf4, "........x", 1), 9u);
  EXPECT_EQ(hit(kChunkOf4, "x.xx..x..x", 0), 10u);
}

// test_sliding_window_remove_skipped_blocks
TEST(SlidingWindowManager, GivesBackWhatLiesBeforeTheWindow) {
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 0), 0u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 4), 0u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 5), 1u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 6), 1u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 7), 2u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 11), 4u);
  EXPECT_EQ(num_nulls_after<SlidingWindowManager>(kWindowOf4, 1000), 12u);
}

// test_chunked_local_attention_remove_skipped_blocks
TEST(ChunkedLocalAttentionManager, GivesBackEarlierChunks) {
  EXPECT_EQ(num_nulls_after<ChunkedLocalAttentionManager>(kChunkOf4, 0), 0u);
  EXPECT_EQ(num_nulls_after<ChunkedLocalAttentionManager>(kChunkOf4, 4), 2u);
  EXPECT_EQ(num_nulls_after<ChunkedLocalAttentionManager>(kChunkOf4, 6), 2u);
  EXPECT_EQ(num_nulls_after<ChunkedLocalAttentionManager>(kChunkOf4, 12), 6u);
}

TEST(FullAttentionManager, GivesNothingBack) {
  EXPECT_EQ(num_nulls_after<FullAttentionManager>({.block_size = kBlockSize}, 24), 0u);
}

TEST(MambaManager, GivesBackAllButTheLastState) {
  const KVCacheSpec spec = {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize};

  EXPECT_EQ(num_nulls_after<MambaManager>(spec, 0), 0u);
  EXPECT_EQ(num_nulls_after<MambaManager>(spec, 2), 0u);
  EXPECT_EQ(num_nulls_after<MambaManager>(spec, 7), 3u);
}

TEST(MambaManager, SpeculativeTokensMayStillBeRejected) {
  KVCacheManagerConfig config = config_of(
      {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize, .num_speculative_blocks = 3});
  MambaManager manager(config, kGroup);
  BlockPool pool(config.pool);
  const BlocksByGroup no_hit(1);
  manager.allocate_new_blocks(pool, {.request = 0, .new_computed_blocks = no_hit, .num_tokens = 8});
  EXPECT_EQ(manager.blocks(0).size(), 4u + 3u);

  manager.remove_skipped_blocks(pool, 0, 7);

  EXPECT_EQ(manager.blocks(0)[0], kNullBlockId);
  EXPECT_NE(manager.blocks(0)[1], kNullBlockId);
}

TEST(MambaManager, FindsTheLastCachedState) {
  const KVCacheSpec spec = {.kind = KVCacheSpecKind::kMamba, .block_size = kBlockSize};

  EXPECT_EQ(num_hit_blocks<MambaManager>(spec, "x.x."), 3u);
  EXPECT_EQ(num_hit_blocks<MambaManager>(spec, "...."), 0u);
}

TEST(FullAttentionManager, StopsAtTheFirstMiss) {
  const KVCacheSpec spec = {.block_size = kBlockSize};

  EXPECT_EQ(num_hit_blocks<FullAttentionManager>(spec, "xx.x"), 2u);
  EXPECT_EQ(num_hit_blocks<FullAttentionManager>(spec, ".xxx"), 0u);
}

/// What 20 blocks for a request with that hit are expected to take.
template <class Manager>
std::int64_t num_blocks_for(const KVCacheSpec& spec, const Ids& hit) {
  const KVCacheManagerConfig config = config_of(spec);
  const Manager manager(config, kGroup);
  const BlockPool pool(config.pool);
  const BlocksByGroup hit_by_group = {hit};
  return manager.get_num_blocks_to_allocate(
      pool, {.request = 0, .new_computed_blocks = hit_by_group, .num_tokens = 20 * kBlockSize});
}

// test_get_num_blocks_to_allocate, test_chunked_local_attention_get_num_blocks_to_allocate
TEST(SingleTypeKVCacheManager, CountsHitsThatWaitInTheFreeQueue) {
  const Ids free_hit = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Ids half_null_hit = {0, 0, 0, 0, 0, 6, 7, 8, 9, 10};

  EXPECT_EQ(num_blocks_for<SlidingWindowManager>(kWindowOf4, free_hit), 20);
  EXPECT_EQ(num_blocks_for<SlidingWindowManager>(kWindowOf4, half_null_hit), 15);
  EXPECT_EQ(num_blocks_for<ChunkedLocalAttentionManager>(kChunkOf4, free_hit), 20);
  EXPECT_EQ(num_blocks_for<ChunkedLocalAttentionManager>(kChunkOf4, half_null_hit), 15);
}

// test_evictable_cached_blocks_not_double_allocated
TEST(SingleTypeKVCacheManager, AHitInTheFreeQueueIsTouchedNotTakenTwice) {
  const KVCacheManagerConfig config = config_of(kWindowOf4);
  SlidingWindowManager manager(config, kGroup);
  BlockPool pool(config.pool);
  const BlocksByGroup hit = {{5}};
  const Allocation allocation = {.request = 0,
                                 .new_computed_blocks = hit,
                                 .num_tokens = 2 * kBlockSize,
                                 .total_computed_tokens = kBlockSize,
                                 .has_computed_blocks = true};

  EXPECT_EQ(manager.get_num_blocks_to_allocate(pool, allocation), 2);
  EXPECT_EQ(manager.num_blocks_taken(pool, allocation), 2);
  manager.allocate_new_computed_blocks(pool, allocation);
  EXPECT_EQ(manager.allocate_new_blocks(pool, allocation), Ids({1}));
  EXPECT_EQ(pool.get_num_free_blocks(), kNumGpuBlocks - 1 - 2);
}

}  // namespace
}  // namespace kvfence::reference
