// Goal: each block has its own list, and rejected values drop out. Method: a few lists by hand.

#include "optimized/base/block_lists.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvfence::optimized {
namespace {

std::vector<int> values_of(BlockLists<int>& lists, BlockId block) {
  std::vector<int> values;
  lists.filter(block, [&values](int value) {
    values.push_back(value);
    return true;
  });
  return values;
}

TEST(BlockLists, DropRejectedValues) {
  BlockLists<int> lists(4);
  for (int value = 0; value < 6; ++value) lists.push(1, value);
  lists.push(3, 9);
  EXPECT_EQ(values_of(lists, 1), (std::vector<int>{5, 4, 3, 2, 1, 0}));
  lists.filter(1, [](int value) { return value % 3 == 1; });
  EXPECT_EQ(values_of(lists, 1), (std::vector<int>{4, 1}));
  lists.push(1, 7);  // in a freed node
  EXPECT_EQ(values_of(lists, 1), (std::vector<int>{7, 4, 1}));
  EXPECT_EQ(values_of(lists, 3), std::vector<int>{9});
  EXPECT_TRUE(values_of(lists, 0).empty());
  lists.clear();
  EXPECT_TRUE(values_of(lists, 1).empty());
}

}  // namespace
}  // namespace kvfence::optimized
