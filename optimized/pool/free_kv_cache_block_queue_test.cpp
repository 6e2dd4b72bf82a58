#include "optimized/pool/free_kv_cache_block_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace kvfence::optimized {
namespace {

using Blocks = std::vector<BlockId>;

Blocks order_of(const FreeKVCacheBlockQueue& queue) {
  Blocks all;
  queue.get_all_free_blocks(all);
  return all;
}

TEST(FreeKVCacheBlockQueue, StartsWithAllBlocksAscending) {
  const FreeKVCacheBlockQueue queue(4);

  EXPECT_EQ(order_of(queue), (Blocks{0, 1, 2, 3}));
  EXPECT_EQ(queue.num_free_blocks(), 4U);
}

TEST(FreeKVCacheBlockQueue, WithoutBlocksIsEmpty) {
  FreeKVCacheBlockQueue queue(0);
  BlockId out = 7;

  EXPECT_EQ(queue.popleft(out), ErrorCode::kQueueEmpty);
  EXPECT_EQ(out, 7U);
  EXPECT_EQ(order_of(queue), Blocks{});
}

TEST(FreeKVCacheBlockQueue, PopleftNTakesFromTheHead) {
  FreeKVCacheBlockQueue queue(5);
  std::array<BlockId, 3> out{};

  EXPECT_EQ(queue.popleft_n(out), ErrorCode::kNone);
  EXPECT_EQ(out, (std::array<BlockId, 3>{0, 1, 2}));
  EXPECT_EQ(order_of(queue), (Blocks{3, 4}));
}

TEST(FreeKVCacheBlockQueue, PopleftNOfMoreThanThereAreChangesNothing) {
  FreeKVCacheBlockQueue queue(2);
  std::array<BlockId, 3> out{9, 9, 9};

  EXPECT_EQ(queue.popleft_n(out), ErrorCode::kQueueEmpty);
  EXPECT_EQ(out, (std::array<BlockId, 3>{9, 9, 9}));
  EXPECT_EQ(order_of(queue), (Blocks{0, 1}));
}

TEST(FreeKVCacheBlockQueue, RemoveFromMiddleHeadAndTailKeepsOrder) {
  FreeKVCacheBlockQueue queue(6);

  EXPECT_EQ(queue.remove(3), ErrorCode::kNone);
  EXPECT_EQ(queue.remove(0), ErrorCode::kNone);
  EXPECT_EQ(queue.remove(5), ErrorCode::kNone);

  EXPECT_EQ(order_of(queue), (Blocks{1, 2, 4}));
  EXPECT_EQ(queue.num_free_blocks(), 3U);
}

TEST(FreeKVCacheBlockQueue, RemoveRefusesUnknownAndUnqueuedBlocks) {
  FreeKVCacheBlockQueue queue(2);
  ASSERT_EQ(queue.remove(1), ErrorCode::kNone);

  EXPECT_EQ(queue.remove(2), ErrorCode::kUnknownBlock);
  EXPECT_EQ(queue.remove(1), ErrorCode::kNotQueued);
  EXPECT_EQ(order_of(queue), Blocks{0});
}

TEST(FreeKVCacheBlockQueue, AppendAndPrependKeepTheGivenOrder) {
  FreeKVCacheBlockQueue queue(6);
  std::array<BlockId, 5> popped{};
  ASSERT_EQ(queue.popleft_n(popped), ErrorCode::kNone);

  EXPECT_EQ(queue.append_n(Blocks{3, 1}), ErrorCode::kNone);
  EXPECT_EQ(queue.prepend_n(Blocks{4, 0}), ErrorCode::kNone);
  EXPECT_EQ(queue.append(2), ErrorCode::kNone);

  EXPECT_EQ(order_of(queue), (Blocks{4, 0, 5, 3, 1, 2}));
  EXPECT_EQ(queue.num_free_blocks(), 6U);
}

TEST(FreeKVCacheBlockQueue, InsertingNothingChangesNothing) {
  FreeKVCacheBlockQueue queue(2);

  EXPECT_EQ(queue.append_n({}), ErrorCode::kNone);
  EXPECT_EQ(queue.prepend_n({}), ErrorCode::kNone);
  EXPECT_EQ(queue.popleft_n({}), ErrorCode::kNone);

  EXPECT_EQ(order_of(queue), (Blocks{0, 1}));
}

TEST(FreeKVCacheBlockQueue, InsertIntoAnEmptiedQueueFromEitherEnd) {
  FreeKVCacheBlockQueue queue(2);
  std::array<BlockId, 2> popped{};
  ASSERT_EQ(queue.popleft_n(popped), ErrorCode::kNone);

  EXPECT_EQ(queue.prepend_n(Blocks{1, 0}), ErrorCode::kNone);

  EXPECT_EQ(order_of(queue), (Blocks{1, 0}));
}

// A refusal has linked some of the list already when it is found; all of it is taken back, at both
// ends.
TEST(FreeKVCacheBlockQueue, RefusedInsertionChangesNothing) {
  FreeKVCacheBlockQueue queue(6);
  std::array<BlockId, 3> popped{};
  ASSERT_EQ(queue.popleft_n(popped), ErrorCode::kNone);

  EXPECT_EQ(queue.append_n(Blocks{0, 1, 4}), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.prepend_n(Blocks{0, 1, 0}), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.append(3), ErrorCode::kAlreadyQueued);
  EXPECT_EQ(queue.append_n(Blocks{4, 6}), ErrorCode::kUnknownBlock);
  EXPECT_EQ(order_of(queue), (Blocks{3, 4, 5}));

  EXPECT_EQ(queue.append_n(Blocks{2, 0, 1}), ErrorCode::kNone);
  EXPECT_EQ(order_of(queue), (Blocks{3, 4, 5, 2, 0, 1}));
}

TEST(FreeKVCacheBlockQueue, CopyIsIndependent) {
  FreeKVCacheBlockQueue queue(3);
  const FreeKVCacheBlockQueue copy = queue;

  ASSERT_EQ(queue.remove(1), ErrorCode::kNone);

  EXPECT_EQ(order_of(copy), (Blocks{0, 1, 2}));
}

}  // namespace
}  // namespace kvfence::optimized
