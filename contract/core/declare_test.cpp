/// Goal: an answer that is absent keeps its storage, and one that is moved takes the other's.
/// Method: lists whose storage is told by its address.

#include "contract/core/declare.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

using Numbers = Reusable<std::vector<int>>;

TEST(Reusable, WhatIsThereIsMovedAndTheStorageComesBack) {
  Numbers from;
  Numbers to;
  from.emplace() = {1, 2};
  to.emplace() = {3};
  const int* const storage_of_from = from->data();
  const int* const storage_of_to = to->data();
  to = std::move(from);
  EXPECT_EQ(*to, (std::vector<int>{1, 2}));
  EXPECT_EQ(to->data(), storage_of_from);
  EXPECT_EQ(from.emplace().data(), storage_of_to);
}

TEST(Reusable, WhatIsAbsentMovesNothing) {
  Numbers from;
  Numbers to;
  from.emplace() = {1, 2};
  from.reset();
  to.emplace() = {3};
  const int* const storage_of_from = from->data();
  const int* const storage_of_to = to->data();
  to = std::move(from);
  EXPECT_FALSE(to.has_value());
  EXPECT_EQ(to.emplace().data(), storage_of_to);
  EXPECT_EQ(from.emplace().data(), storage_of_from);
}

TEST(Reusable, ACopyHasWhatIsThere) {
  Numbers from;
  from.emplace() = {1, 2};
  Numbers to = from;
  EXPECT_EQ(to, from);
  from.reset();
  to = from;
  EXPECT_EQ(to, from);
  EXPECT_FALSE(to.has_value());
}

}  // namespace
}  // namespace kvfence
