// Goal: no operation allocates after construction. Method: this program counts every call of
// operator new.

#include <gtest/gtest.h>

#include <vector>

#include "optimized/base/counted_allocations.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {
namespace {

constexpr std::uint32_t kNumBlocks = 64;

BlockPoolConfig config_of(bool enable_kv_cache_events) {
  BlockPoolConfig config;
  config.num_gpu_blocks = kNumBlocks + 1;
  config.enable_kv_cache_events = enable_kv_cache_events;
  config.hash.hash_block_size = 1;
  config.max_block_size = 1;
  config.rules = rules_of(Profile::kV023);
  return config;
}

/// Every operation, with hits, evictions, copies of a key and refusals; ends with all blocks free
/// and the cache empty.
void use_everything(BlockPool& pool, const Request& request, std::vector<BlockId>& blocks) {
  const GroupId group = 0;
  BlockId found = 0;
  ASSERT_EQ(pool.get_new_blocks(blocks), ErrorCode::kNone);
  ASSERT_EQ(pool.get_new_blocks({&found, 1}), ErrorCode::kNoFreeBlocks);
  const CacheFullBlocksArgs args{.request = request,
                                 .blocks = blocks,
                                 .num_cached_blocks = 0,
                                 .num_full_blocks = kNumBlocks,
                                 .block_size = 1,
                                 .kv_cache_group_id = group,
                                 .block_mask = std::nullopt};
  ASSERT_EQ(pool.cache_full_blocks(args), ErrorCode::kNone);
  ASSERT_EQ(pool.cache_full_blocks(args), ErrorCode::kAlreadyHashed);
  ASSERT_TRUE(pool.get_cached_block(request.block_hashes(1)[5], {&group, 1}, {&found, 1}));
  ASSERT_EQ(pool.touch(blocks), ErrorCode::kNone);
  ASSERT_EQ(pool.free_blocks(blocks, FreeTo::kTail), ErrorCode::kNone);
  ASSERT_EQ(pool.free_blocks(blocks, FreeTo::kHead), ErrorCode::kNone);
  ASSERT_EQ(pool.free_blocks(blocks, FreeTo::kTail), ErrorCode::kDoubleFree);
  ASSERT_EQ(pool.touch(std::span(blocks).first(3)), ErrorCode::kNone);
  ASSERT_FALSE(pool.reset_prefix_cache());
  ASSERT_EQ(pool.free_blocks(std::span(blocks).first(3), FreeTo::kTail), ErrorCode::kNone);
  ASSERT_EQ(pool.evict_blocks(std::span(blocks).subspan(4, 2)), ErrorCode::kNone);
  ASSERT_EQ(pool.get_new_blocks(std::span(blocks).first(20)), ErrorCode::kNone);
  ASSERT_EQ(pool.free_blocks(std::span(blocks).first(20), FreeTo::kTail), ErrorCode::kNone);
  ASSERT_TRUE(pool.reset_prefix_cache());
}

Request request_of(const HashConfig& config) {
  RequestSpec spec;
  for (TokenId token = 0; token < kNumBlocks; ++token) spec.tokens.push_back(token);
  return Request(spec, config);
}

TEST(NoAllocation, AnywhereAfterConstruction) {
  const BlockPoolConfig config = config_of(/*enable_kv_cache_events=*/false);
  const Request request = request_of(config.hash);
  std::vector<BlockId> blocks(kNumBlocks);
  const std::size_t before_construction = num_allocations();
  BlockPool pool(config);
  const std::size_t before = num_allocations();
  ASSERT_GT(before, before_construction);  // the counter counts

  use_everything(pool, request, blocks);

  EXPECT_EQ(num_allocations(), before);
}

TEST(NoAllocation, OfTheEventLogOnceItHasGrown) {
  const BlockPoolConfig config = config_of(/*enable_kv_cache_events=*/true);
  const Request request = request_of(config.hash);
  std::vector<BlockId> blocks(kNumBlocks);
  BlockPool pool(config);
  std::vector<KVCacheEvent> events;
  const std::size_t before_warm_up = num_allocations();
  use_everything(pool, request, blocks);
  ASSERT_GT(num_allocations(), before_warm_up);
  pool.take_events(events);
  ASSERT_FALSE(events.empty());
  const std::size_t before = num_allocations();

  use_everything(pool, request, blocks);

  EXPECT_EQ(num_allocations(), before);
}

}  // namespace
}  // namespace kvfence::optimized
