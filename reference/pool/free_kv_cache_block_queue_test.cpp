// Each rule and each refusal of the free queue, on queues small enough to write the whole order
// down.
#include "reference/pool/free_kv_cache_block_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvfence::reference {
namespace {

using Ids = std::vector<BlockId>;

Ids order_of(const FreeKVCacheBlockQueue& queue) {
  Ids order;
  queue.get_all_free_blocks(order);
  return order;
}

// A queue that can hold num_blocks ids and holds none.
FreeKVCacheBlockQueue emptied(std::uint32_t num_blocks) {
  FreeKVCacheBlockQueue queue(num_blocks);
  Ids all(num_blocks);
  EXPECT_EQ(queue.popleft_n(all), ErrorCode::kNone);
  return queue;
}

// Upstream: test_free_kv_cache_block_queue_initialization
TEST(FreeKVCacheBlockQueue, StartsWithAllBlocksAscending) {
  EXPECT_EQ(order_of(FreeKVCacheBlockQueue(1)), Ids({0}));
  EXPECT_EQ(order_of(FreeKVCacheBlockQueue(4)), Ids({0, 1, 2, 3}));
  EXPECT_EQ(FreeKVCacheBlockQueue(4).num_free_blocks(), 4u);
}

TEST(FreeKVCacheBlockQueue, MayHaveNoBlocksAtAll) {
  FreeKVCacheBlockQueue queue(0);
  BlockId out = 7;

  EXPECT_EQ(queue.num_free_blocks(), 0u);
  EXPECT_EQ(queue.popleft(out), ErrorCode::kQueueEmpty);
  EXPECT_EQ(out, 7u);
}

// Upstream: test_free_kv_cache_block_queue_operations
TEST(FreeKVCacheBlockQueue, AppendRemoveAndPopleftKeepOrderAndCount) {
  FreeKVCacheBlockQueue queue(5);
  BlockId out = 99;

  ASSERT_EQ(queue.popleft(out), ErrorCode::kNone);
  EXPECT_EQ(out, 0u);
  ASSERT_EQ(queue.remove(2), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({1, 3, 4}));
  ASSERT_EQ(queue.append(2), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({1, 3, 4, 2}));
  EXPECT_EQ(queue.num_free_blocks(), 4u);

  for (const BlockId expected : Ids({1, 3, 4, 2})) {
    ASSERT_EQ(queue.popleft(out), ErrorCode::kNone);
    EXPECT_EQ(out, expected);
  }
  EXPECT_EQ(queue.num_free_blocks(), 0u);
  EXPECT_EQ(queue.popleft(out), ErrorCode::kQueueEmpty);
}

TEST(FreeKVCacheBlockQueue, RemoveTakesTheHeadAndTheTail) {
  FreeKVCacheBlockQueue queue(3);

  ASSERT_EQ(queue.remove(0), ErrorCode::kNone);
  ASSERT_EQ(queue.remove(2), ErrorCode::kNone);

  EXPECT_EQ(order_of(queue), Ids({1}));
}

// Upstream: test_free_kv_cache_block_queue_append_n
TEST(FreeKVCacheBlockQueue, AppendNJoinsTheTailInTheGivenOrder) {
  FreeKVCacheBlockQueue queue = emptied(6);

  ASSERT_EQ(queue.append_n({}), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({}));
  ASSERT_EQ(queue.append_n(Ids({0})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({0}));
  ASSERT_EQ(queue.append_n(Ids({4, 5})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({0, 4, 5}));
  ASSERT_EQ(queue.append_n(Ids({1, 2, 3})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({0, 4, 5, 1, 2, 3}));
  ASSERT_EQ(queue.append_n({}), ErrorCode::kNone);
  EXPECT_EQ(queue.num_free_blocks(), 6u);
}

// Upstream: test_free_kv_cache_block_queue_popleft_n
TEST(FreeKVCacheBlockQueue, PopleftNTakesFromTheHeadInOrder) {
  FreeKVCacheBlockQueue queue = emptied(6);
  ASSERT_EQ(queue.append_n(Ids({1, 3, 5, 4, 0, 2})), ErrorCode::kNone);
  Ids one(1);
  Ids two(2);
  Ids three(3);

  ASSERT_EQ(queue.popleft_n({}), ErrorCode::kNone);
  EXPECT_EQ(queue.num_free_blocks(), 6u);
  ASSERT_EQ(queue.popleft_n(one), ErrorCode::kNone);
  EXPECT_EQ(one, Ids({1}));
  EXPECT_EQ(queue.num_free_blocks(), 5u);
  ASSERT_EQ(queue.popleft_n(two), ErrorCode::kNone);
  EXPECT_EQ(two, Ids({3, 5}));
  EXPECT_EQ(queue.num_free_blocks(), 3u);
  ASSERT_EQ(queue.popleft_n(three), ErrorCode::kNone);
  EXPECT_EQ(three, Ids({4, 0, 2}));
  EXPECT_EQ(queue.num_free_blocks(), 0u);
}

// Upstream: test_free_kv_cache_block_queue_get_all_free_blocks
TEST(FreeKVCacheBlockQueue, GetAllFreeBlocksIsHeadToTailAndOverwrites) {
  FreeKVCacheBlockQueue queue(5);
  BlockId head = 99;
  Ids order = {9, 9, 9, 9, 9, 9, 9};

  queue.get_all_free_blocks(order);
  EXPECT_EQ(order, Ids({0, 1, 2, 3, 4}));
  ASSERT_EQ(queue.popleft(head), ErrorCode::kNone);
  ASSERT_EQ(queue.remove(3), ErrorCode::kNone);
  ASSERT_EQ(queue.append(0), ErrorCode::kNone);
  queue.get_all_free_blocks(order);
  EXPECT_EQ(order, Ids({1, 2, 4, 0}));
}

TEST(FreeKVCacheBlockQueue, PrependNJoinsTheHeadInTheGivenOrder) {
  FreeKVCacheBlockQueue queue(5);
  Ids taken(3);
  ASSERT_EQ(queue.popleft_n(taken), ErrorCode::kNone);

  ASSERT_EQ(queue.prepend_n({}), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({3, 4}));
  ASSERT_EQ(queue.prepend_n(Ids({2, 0})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({2, 0, 3, 4}));
  ASSERT_EQ(queue.prepend_n(Ids({1})), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), Ids({1, 2, 0, 3, 4}));
}

TEST(FreeKVCacheBlockQueue, PopleftNOfMoreThanAreQueuedTakesNone) {
  FreeKVCacheBlockQueue queue(2);
  Ids out = {7, 7, 7};

  EXPECT_EQ(queue.popleft_n(out), ErrorCode::kQueueEmpty);

  EXPECT_EQ(out, Ids({7, 7, 7}));
  EXPECT_EQ(order_of(queue), Ids({0, 1}));
}

TEST(FreeKVCacheBlockQueue, RemoveOfABlockThatIsNotQueuedIsRefused) {
  FreeKVCacheBlockQueue queue(3);
  ASSERT_EQ(queue.remove(1), ErrorCode::kNone);

  EXPECT_EQ(queue.remove(1), ErrorCode::kNotQueued);

  EXPECT_EQ(order_of(queue), Ids({0, 2}));
}

TEST(FreeKVCacheBlockQueue, UnknownBlocksAreRefused) {
  FreeKVCacheBlockQueue queue = emptied(3);

  EXPECT_EQ(queue.remove(3), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.append(3), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.append_n(Ids({0, 3})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.prepend_n(Ids({0, 3})), ErrorCode::kUnknownBlock);

  EXPECT_EQ(order_of(queue), Ids({}));
}

TEST(FreeKVCacheBlockQueue, BlocksThatAreQueuedAlreadyAreRefused) {
  FreeKVCacheBlockQueue queue(3);
  ASSERT_EQ(queue.remove(1), ErrorCode::kNone);

  EXPECT_EQ(queue.append(0), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.append_n(Ids({1, 2})), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.prepend_n(Ids({1, 0})), ErrorCode::kAlreadyQueued);

  EXPECT_EQ(order_of(queue), Ids({0, 2}));
}

TEST(FreeKVCacheBlockQueue, ABlockListedTwiceIsRefused) {
  FreeKVCacheBlockQueue queue(3);
  ASSERT_EQ(queue.remove(1), ErrorCode::kNone);

  EXPECT_EQ(queue.append_n(Ids({1, 1})), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.prepend_n(Ids({1, 1})), ErrorCode::kAlreadyQueued);

  EXPECT_EQ(order_of(queue), Ids({0, 2}));
}

TEST(FreeKVCacheBlockQueue, UnknownIsLookedForInTheWholeListBeforeQueued) {
  FreeKVCacheBlockQueue queue(3);

  EXPECT_EQ(queue.append_n(Ids({0, 3})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.prepend_n(Ids({0, 0, 3})), ErrorCode::kUnknownBlock);
}

TEST(FreeKVCacheBlockQueue, ACopyIsAlone) {
  FreeKVCacheBlockQueue queue(3);
  FreeKVCacheBlockQueue copy = queue;

  ASSERT_EQ(copy.remove(1), ErrorCode::kNone);

  EXPECT_EQ(order_of(copy), Ids({0, 2}));
  EXPECT_EQ(order_of(queue), Ids({0, 1, 2}));
}

}  // namespace
}  // namespace kvfence::reference
