// What only a caller in C++ sees of the pool. conformance_test.cpp and scenarios/cases/block_pool/
// have its rules.

#include <vector>

#include <gtest/gtest.h>

#include "optimized/pool/block_pool.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/pool/block_pool.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;

template <class Pool>
class BlockPoolCalls : public ::testing::Test {};
using Pools = ::testing::Types<reference::BlockPool, optimized::BlockPool>;
TYPED_TEST_SUITE(BlockPoolCalls, Pools, SideNames);

TYPED_TEST(BlockPoolCalls, ARefusedAllocationLeavesTheOutputAsItWas) {
  BlockPoolConfig config;
  config.num_gpu_blocks = 3;
  TypeParam pool(config);
  Ids three(3, 9);
  EXPECT_EQ(pool.get_new_blocks(three), ErrorCode::kNoFreeBlocks);
  EXPECT_EQ(three, Ids(3, 9));
}

TYPED_TEST(BlockPoolCalls, TakeEventsOverwritesAndEmptiesTheLog) {
  BlockPoolConfig config;
  config.num_gpu_blocks = 3;
  config.enable_kv_cache_events = true;
  TypeParam pool(config);
  ASSERT_TRUE(pool.reset_prefix_cache());
  std::vector<KVCacheEvent> events(5, AllBlocksCleared{});
  pool.take_events(events);
  EXPECT_EQ(events.size(), 1u);
  pool.take_events(events);
  EXPECT_TRUE(events.empty());
}

// 1.0 - free / all, as upstream divides: one block of ten is not exactly 0.1.
TYPED_TEST(BlockPoolCalls, UsageIsOneMinusTheFreeShare) {
  BlockPoolConfig config;
  config.num_gpu_blocks = 11;
  TypeParam pool(config);
  Ids one(1);
  ASSERT_EQ(pool.get_new_blocks(one), ErrorCode::kNone);
  EXPECT_EQ(pool.get_usage(), 1.0 - 9.0 / 10.0);
  EXPECT_NE(pool.get_usage(), 1.0 / 10.0);
}

TYPED_TEST(BlockPoolCalls, WhatIsImpossibleAborts) {
  BlockPoolConfig config;
  config.num_gpu_blocks = 2;
  const TypeParam pool(config);
  EXPECT_DEATH(pool.ref_cnt(2), "block");
  EXPECT_DEATH(pool.block_key(2), "block");
  config.max_block_size = config.hash.hash_block_size + 1;
  EXPECT_DEATH(TypeParam{config}, "multiple of hash_block_size");
  config = BlockPoolConfig();
  config.num_gpu_blocks = 0;
  EXPECT_DEATH(TypeParam{config}, "");
}

}  // namespace
}  // namespace kvfence
