// Goal: a window's search finds what a plain scan from the right finds, for every set of cached
// blocks, with fewer lookups. Method: all patterns of cached blocks up to a length, with the
// alignment of releases before and after eagle by group.

#include "optimized/kv_cache/cache_hit_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumBlocksMax = 9;

struct WindowCase {
  std::uint32_t window_blocks = 0;  ///< that a hit needs, without eagle's
  std::uint32_t aligned_blocks = 1;
  bool drop_eagle_block = false;
  bool aligns_after_drop = false;
};

/// Length of the hit by definition: the longest aligned end with a full run before it, or a run
/// that reaches the start; then what eagle drops.
std::uint32_t expected_length(const WindowCase& c, const std::vector<bool>& cached) {
  const std::uint32_t wanted = c.window_blocks + (c.drop_eagle_block ? 1 : 0);
  const auto align = [&c](std::uint32_t end) { return end - end % c.aligned_blocks; };
  std::uint32_t run = 0;
  std::uint32_t found = 0;
  bool is_full = false;
  for (auto i = static_cast<std::uint32_t>(cached.size()); i > 0 && !is_full; --i) {
    if (!cached[i - 1]) {
      run = 0;
      continue;
    }
    const std::uint32_t end = c.drop_eagle_block && c.aligns_after_drop ? i - 1 : i;
    if (run == 0 && end % c.aligned_blocks != 0) continue;
    if (++run >= wanted) {
      found = i - 1 + run;
      is_full = true;
    }
  }
  if (!is_full) found = align(run);
  if (c.drop_eagle_block && found > 0) found = align(found - 1);
  return found;
}

TEST(CacheHitSearchTest, AWindowIsFoundAsByAPlainScan) {
  BlockPoolConfig config;
  config.num_gpu_blocks = kNumBlocksMax + 1;
  config.hash.hash_block_size = 1;
  config.max_block_size = 1;
  RequestSpec request_spec;
  request_spec.tokens.assign(kNumBlocksMax, 5);
  const Request request(request_spec, config.hash);
  const GroupId group = 0;
  std::vector<WindowCase> cases;
  for (std::uint32_t window_blocks : {0U, 1U, 2U, 3U, 5U}) {
    for (std::uint32_t aligned_blocks : {1U, 2U, 3U}) {
      for (const bool drop : {false, true}) {
        for (const bool aligns_after_drop : {false, true}) {
          // Refused by check_config.
          if (drop && !aligns_after_drop && aligned_blocks > 1) continue;
          cases.push_back({window_blocks, aligned_blocks, drop, aligns_after_drop});
        }
      }
    }
  }

  for (std::uint32_t pattern = 0; pattern < 1U << kNumBlocksMax; ++pattern) {
    BlockPool pool(config);
    std::vector<BlockId> blocks(kNumBlocksMax);
    ASSERT_EQ(pool.get_new_blocks(blocks), ErrorCode::kNone);
    ASSERT_EQ(pool.cache_full_blocks({.request = request,
                                      .blocks = blocks,
                                      .num_cached_blocks = 0,
                                      .num_full_blocks = kNumBlocksMax,
                                      .block_size = 1,
                                      .kv_cache_group_id = group,
                                      .block_mask = std::nullopt}),
              ErrorCode::kNone);
    std::vector<bool> cached;
    for (std::uint32_t i = 0; i < kNumBlocksMax; ++i) {
      cached.push_back((pattern >> i & 1) != 0);
      if (!cached.back()) pool.evict_blocks({&blocks[i], 1});
    }
    for (const WindowCase& c : cases) {
      SCOPED_TRACE(testing::Message()
                   << "pattern " << pattern << " window " << c.window_blocks << " aligned "
                   << c.aligned_blocks << " drop " << c.drop_eagle_block << c.aligns_after_drop);
      const KVCacheSpec spec{.kind = KVCacheSpecKind::kSlidingWindow,
                             .block_size = 1,
                             .sliding_window = c.window_blocks + 1};
      BlocksByGroup found(1, std::vector<BlockId>{99, 99});
      const std::uint32_t length =
          find_longest_cache_hit(pool,
                                 {.spec = spec,
                                  .group_ids = {&group, 1},
                                  .request = request,
                                  .max_length = kNumBlocksMax,
                                  .alignment_tokens = c.aligned_blocks,
                                  .drop_eagle_block = c.drop_eagle_block,
                                  .aligns_after_drop = c.aligns_after_drop},
                                 found);
      ASSERT_EQ(length, expected_length(c, cached));
      ASSERT_EQ(found[0].size(), length);
      const std::uint32_t num_placed =
          std::min(length, std::max(c.window_blocks, c.drop_eagle_block ? 0U : 1U));
      for (std::uint32_t i = 0; i < length; ++i) {
        ASSERT_EQ(found[0][i], i + num_placed >= length ? blocks[i] : kNullBlockId) << i;
      }
    }
  }
}

// Blocks 0, 1 and 3 of four are cached; seen from block 3 on, the request begins with a hit.
TEST(CacheHitSearchTest, ALookupCanBeginInsideTheRequest) {
  BlockPoolConfig config;
  config.num_gpu_blocks = 5;
  config.hash.hash_block_size = 2;
  config.max_block_size = 2;
  RequestSpec request_spec;
  request_spec.tokens.assign(8, 5);
  const Request request(request_spec, config.hash);
  BlockPool pool(config);
  std::vector<BlockId> blocks(4);
  ASSERT_EQ(pool.get_new_blocks(blocks), ErrorCode::kNone);
  const std::vector<std::uint8_t> mask = {1, 1, 0, 1};
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (mask[i] == 0) continue;
    const std::string key = make_block_hash_with_group_id(request.block_hashes(2)[i], 0);
    ASSERT_EQ(pool.cache_block(blocks[i], key), ErrorCode::kNone);
  }

  const KVCacheSpec full{.block_size = 2};
  const KVCacheSpec window{
      .kind = KVCacheSpecKind::kSlidingWindow, .block_size = 2, .sliding_window = 4};
  const GroupId group = 0;
  const auto find = [&](const KVCacheSpec& spec, std::uint32_t first_token) {
    BlocksByGroup found(1);
    find_longest_cache_hit(pool,
                           {.spec = spec,
                            .group_ids = {&group, 1},
                            .request = request,
                            .max_length = 8 - first_token,
                            .first_token = first_token,
                            .alignment_tokens = 2},
                           found);
    return found[0];
  };
  EXPECT_EQ(find(full, 0), std::vector<BlockId>({1, 2}));
  EXPECT_EQ(find(full, 2), std::vector<BlockId>({2}));
  EXPECT_EQ(find(full, 4), std::vector<BlockId>());
  EXPECT_EQ(find(full, 6), std::vector<BlockId>({4}));
  EXPECT_EQ(find(window, 2), std::vector<BlockId>({2}));
  EXPECT_EQ(find(window, 6), std::vector<BlockId>({4}));
}

}  // namespace
}  // namespace kvfence::optimized
