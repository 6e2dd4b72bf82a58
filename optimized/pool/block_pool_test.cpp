// Operations of the optimized pool beyond the contract's concept: keys given to copies, and a walk
// of the queue.
#include "optimized/pool/block_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

using Blocks = std::vector<BlockId>;

BlockPool pool_of_eight() {
  BlockPoolConfig config;
  config.num_gpu_blocks = 8;
  return BlockPool(config);
}

Blocks take(BlockPool& pool, std::size_t num_blocks) {
  Blocks out(num_blocks);
  EXPECT_EQ(pool.get_new_blocks(out), ErrorCode::kNone);
  return out;
}

TEST(BlockPoolTest, ABlockIsFoundUnderAKeyThatACopyBroughtAlong) {
  BlockPool pool = pool_of_eight();
  const Blocks blocks = take(pool, 2);
  const std::string key = make_block_hash_with_group_id(std::string(32, 'h'), 3);
  EXPECT_FALSE(pool.has_key(key));

  ASSERT_EQ(pool.cache_block(1, key), ErrorCode::kNone);
  EXPECT_EQ(pool.cache_block(1, key), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(pool.cache_block(8, key), ErrorCode::kUnknownBlock);
  EXPECT_TRUE(pool.has_key(key));
  EXPECT_FALSE(pool.has_key(make_block_hash_with_group_id(std::string(32, 'h'), 0)));
  EXPECT_EQ(pool.block_key(1), key);

  ASSERT_EQ(pool.free_blocks(blocks), ErrorCode::kNone);
  EXPECT_EQ(pool.block_counts(), (BlockCounts{.empty = 6, .cached = 1, .referenced = 1}));
  take(pool, 7);
  EXPECT_FALSE(pool.has_key(key)) << "evicted";
}

TEST(BlockPoolTest, TheFreeQueueCanBeWalked) {
  BlockPool pool = pool_of_eight();
  take(pool, 3);
  ASSERT_EQ(pool.free_blocks(Blocks{2}), ErrorCode::kNone);
  EXPECT_TRUE(pool.is_free(2));
  EXPECT_FALSE(pool.is_free(1));
  EXPECT_FALSE(pool.is_free(kNullBlockId));
  EXPECT_FALSE(pool.is_free(8));

  Blocks walked;
  for (auto at = pool.next_free_block(std::nullopt); at; at = pool.next_free_block(at)) {
    walked.push_back(*at);
  }
  EXPECT_EQ(walked, Blocks({4, 5, 6, 7, 2}));
}

}  // namespace
}  // namespace kvfence::optimized
