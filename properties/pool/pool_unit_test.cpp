// The parts of the pool by themselves, small enough to write the whole order down: the prefix-cache
// map of both sides, the reference's free queue, and what only a caller in C++ sees of the pool.
// The rules of the pool are in conformance_test.cpp and scenarios/cases/block_pool/.

#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/pool/block_pool.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/pool/block_pool.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;

using Queue = reference::FreeKVCacheBlockQueue;

Ids order_of(const Queue& queue) {
  Ids order = {99};  // overwritten
  queue.get_all_free_blocks(order);
  return order;
}

/// Of a queue that can hold num_blocks ids and holds none.
Queue emptied(std::uint32_t num_blocks) {
  Queue queue(num_blocks);
  Ids all(num_blocks);
  EXPECT_EQ(queue.popleft_n(all), ErrorCode::kNone);
  return queue;
}

// Upstream: test_free_kv_cache_block_queue_initialization
TEST(FreeKVCacheBlockQueue, StartsWithAllBlocksAscending) {
  EXPECT_EQ(order_of(Queue(4)), Ids({0, 1, 2, 3}));
  EXPECT_EQ(Queue(4).num_free_blocks(), 4u);
  Queue none(0);
  BlockId out = 7;
  EXPECT_EQ(none.popleft(out), ErrorCode::kQueueEmpty);
  EXPECT_EQ(out, 7u);
}

// Upstream: test_free_kv_cache_block_queue_operations
TEST(FreeKVCacheBlockQueue, AppendRemoveAndPopleftKeepOrderAndCount) {
  Queue queue(6);
  BlockId out = 99;
  ASSERT_EQ(queue.popleft(out), ErrorCode::kNone);
  EXPECT_EQ(out, 0u);
  ASSERT_EQ(queue.remove(2), ErrorCode::kNone);
  ASSERT_EQ(queue.remove(5), ErrorCode::kNone);
  ASSERT_EQ(queue.append(2), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({1, 3, 4, 2}));
  EXPECT_EQ(queue.num_free_blocks(), 4u);
  for (const BlockId expected : Ids({1, 3, 4, 2})) {
    ASSERT_EQ(queue.popleft(out), ErrorCode::kNone);
    EXPECT_EQ(out, expected);
  }
  EXPECT_EQ(queue.num_free_blocks(), 0u);
}

// Upstream: test_free_kv_cache_block_queue_append_n
TEST(FreeKVCacheBlockQueue, AppendNAndPrependNKeepTheGivenOrder) {
  Queue queue = emptied(7);
  ASSERT_EQ(queue.append_n({}), ErrorCode::kNone);
  ASSERT_EQ(queue.prepend_n({}), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({}));
  ASSERT_EQ(queue.prepend_n(Ids({0})), ErrorCode::kNone);
  ASSERT_EQ(queue.append_n(Ids({4, 5})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({0, 4, 5}));
  ASSERT_EQ(queue.append_n(Ids({1, 2, 3})), ErrorCode::kNone);
  ASSERT_EQ(queue.prepend_n(Ids({6})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({6, 0, 4, 5, 1, 2, 3}));
  Ids two(2);
  ASSERT_EQ(queue.popleft_n(two), ErrorCode::kNone);
  ASSERT_EQ(queue.prepend_n(Ids({6, 0})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({6, 0, 4, 5, 1, 2, 3}));
}

// Upstream: test_free_kv_cache_block_queue_popleft_n
TEST(FreeKVCacheBlockQueue, PopleftNTakesFromTheHeadInOrderOrNone) {
  Queue queue = emptied(6);
  ASSERT_EQ(queue.append_n(Ids({1, 3, 5, 4, 0, 2})), ErrorCode::kNone);
  Ids three(3);
  ASSERT_EQ(queue.popleft_n({}), ErrorCode::kNone);
  ASSERT_EQ(queue.popleft_n(three), ErrorCode::kNone);
  EXPECT_EQ(three, Ids({1, 3, 5}));
  Ids four(4, 7);
  EXPECT_EQ(queue.popleft_n(four), ErrorCode::kQueueEmpty);
  EXPECT_EQ(four, Ids(4, 7));
  EXPECT_EQ(order_of(queue), Ids({4, 0, 2}));
}

TEST(FreeKVCacheBlockQueue, RefusalsChangeNothing) {
  Queue queue(6);
  Ids taken(3);
  ASSERT_EQ(queue.popleft_n(taken), ErrorCode::kNone);
  EXPECT_EQ(queue.remove(6), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.remove(1), ErrorCode::kNotQueued);
  EXPECT_EQ(queue.append(6), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.append(3), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.append_n(Ids({0, 1, 4})), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.prepend_n(Ids({1, 3})), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.append_n(Ids({1, 1})), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.prepend_n(Ids({0, 1, 0})), ErrorCode::kAlreadyQueued);
  // An unknown block is looked for in the whole list first.
  EXPECT_EQ(queue.append_n(Ids({4, 6})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.prepend_n(Ids({0, 0, 6})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(order_of(queue), Ids({3, 4, 5}));
  EXPECT_EQ(queue.append_n(Ids({2, 0, 1})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({3, 4, 5, 2, 0, 1}));
}

template <class Map>
class BlockHashToBlockMapRules : public ::testing::Test {
 protected:
  Map map_{8, 4};  ///< of eight blocks, with keys of up to four bytes
};
using Maps = ::testing::Types<reference::BlockHashToBlockMap, optimized::BlockHashToBlockMap>;
TYPED_TEST_SUITE(BlockHashToBlockMapRules, Maps, SideNames);

// Upstream: test_block_lookup_cache_single_block_per_key
TYPED_TEST(BlockHashToBlockMapRules, AKeyWithOneBlockGivesItUpToThatBlockOnly) {
  auto& map = this->map_;
  EXPECT_EQ(map.size(), 0u);
  ASSERT_EQ(map.insert("key1", 1), ErrorCode::kNone);
  ASSERT_EQ(map.insert("key2", 2), ErrorCode::kNone);
  EXPECT_FALSE(map.pop("key0", 1));
  EXPECT_FALSE(map.pop("key1", 2));
  EXPECT_FALSE(map.pop("key1", 7));
  EXPECT_FALSE(map.pop("key1", 8));
  EXPECT_EQ(map.get_one_block("key0"), std::nullopt);
  EXPECT_EQ(map.get_one_block("key1"), 1u);
  EXPECT_EQ(map.get_one_block("key2"), 2u);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_TRUE(map.pop("key1", 1));
  EXPECT_EQ(map.get_one_block("key1"), std::nullopt);
  EXPECT_FALSE(map.pop("key1", 1));
  EXPECT_EQ(map.size(), 1u);
}

// Upstream: test_block_lookup_cache_multi_blocks_per_key
TYPED_TEST(BlockHashToBlockMapRules, TheFirstInsertedSurvivorOfAKeyIsFound) {
  auto& map = this->map_;
  for (const BlockId block : {2u, 4u, 0u, 3u}) {
    ASSERT_EQ(map.insert("keyA", block), ErrorCode::kNone);
    ASSERT_EQ(map.insert("keyB", block == 0 ? 1 : block + 3), ErrorCode::kNone);
  }
  EXPECT_EQ(map.size(), 2u);
  EXPECT_TRUE(map.pop("keyA", 4));  // the middle
  EXPECT_EQ(map.get_one_block("keyA"), 2u);
  EXPECT_TRUE(map.pop("keyA", 2));  // the first
  EXPECT_EQ(map.get_one_block("keyA"), 0u);
  ASSERT_EQ(map.insert("keyA", 2), ErrorCode::kNone);  // again, now the last
  EXPECT_TRUE(map.pop("keyA", 0));
  EXPECT_EQ(map.get_one_block("keyA"), 3u);
  EXPECT_TRUE(map.pop("keyA", 3));
  EXPECT_EQ(map.get_one_block("keyA"), 2u);
  EXPECT_TRUE(map.pop("keyA", 2));
  EXPECT_EQ(map.get_one_block("keyA"), std::nullopt);
  EXPECT_EQ(map.get_one_block("keyB"), 5u);
  EXPECT_EQ(map.size(), 1u);
}

TYPED_TEST(BlockHashToBlockMapRules, KeysThatShareAPrefixOrContainZeroBytesAreDifferent) {
  using namespace std::string_view_literals;
  auto& map = this->map_;
  ASSERT_EQ(map.insert("ab"sv, 1), ErrorCode::kNone);
  ASSERT_EQ(map.insert("ab\0"sv, 2), ErrorCode::kNone);
  ASSERT_EQ(map.insert("ab\0\1"sv, 3), ErrorCode::kNone);
  EXPECT_EQ(map.get_one_block("ab"sv), 1u);
  EXPECT_EQ(map.get_one_block("ab\0"sv), 2u);
  EXPECT_EQ(map.get_one_block("ab\0\1"sv), 3u);
  EXPECT_EQ(map.get_one_block("a"sv), std::nullopt);
  EXPECT_EQ(map.get_one_block(""sv), std::nullopt);
}

TYPED_TEST(BlockHashToBlockMapRules, UnknownAndHashedBlocksAreRefused) {
  auto& map = this->map_;
  ASSERT_EQ(map.insert("keyA", 1), ErrorCode::kNone);
  EXPECT_EQ(map.insert("keyA", 8), ErrorCode::kUnknownBlock);
  EXPECT_EQ(map.insert("keyA", 1), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(map.insert("keyB", 1), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(map.size(), 1u);
  EXPECT_EQ(map.get_one_block("keyB"), std::nullopt);
}

TYPED_TEST(BlockHashToBlockMapRules, ClearForgetsEverything) {
  auto& map = this->map_;
  ASSERT_EQ(map.insert("keyA", 1), ErrorCode::kNone);
  ASSERT_EQ(map.insert("keyA", 2), ErrorCode::kNone);
  map.clear();
  EXPECT_EQ(map.size(), 0u);
  EXPECT_EQ(map.get_one_block("keyA"), std::nullopt);
  EXPECT_EQ(map.insert("keyB", 1), ErrorCode::kNone);
  EXPECT_EQ(map.get_one_block("keyB"), 1u);
}

TYPED_TEST(BlockHashToBlockMapRules, AKeyLongerThanTheBoundAborts) {
  EXPECT_DEATH(this->map_.insert("12345", 1), "longer than the map was built for");
}

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

// 1.0 - free / all, as upstream divides: one block of ten is no 0.1.
TYPED_TEST(BlockPoolCalls, UsageIsInThisFormOfDoubles) {
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
