/// Goal: an answer that is absent keeps its storage, and one that is moved takes the other's; lists
/// of lists are read as they are written.
/// Method: lists whose storage is identified by its address.

#include "contract/core/declare.h"

#include <cstdint>
#include <string>
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

TEST(Reusable, IsComparedByWhatIsThere) {
  Numbers a;
  Numbers b;
  a.emplace() = {1};
  b.emplace() = {2};
  EXPECT_FALSE(a == b);
  a.reset();
  EXPECT_FALSE(a == b);
  b.reset();
  EXPECT_TRUE(a == b) << "whatever they held before";
}

TEST(FromValue, ListsOfNumbersComeBack) {
  const std::vector<std::vector<std::uint32_t>> lists = {{1, 2}, {}, {3}};
  std::vector<std::vector<std::uint32_t>> read;
  std::string expected;
  EXPECT_TRUE(from_value(to_value(lists), read, expected));
  EXPECT_EQ(read, lists);
  EXPECT_FALSE(from_value(to_value(true), read, expected));
}

TEST(FromValue, SaysWhatAListHolds) {
  std::string expected;
  std::vector<std::string> names;
  EXPECT_FALSE(from_value(to_value(true), names, expected));
  EXPECT_EQ(expected, "a list of names such as [A B]");
  std::vector<bool> flags;
  EXPECT_FALSE(from_value(to_value(true), flags, expected));
  EXPECT_EQ(expected, "a list of flags such as [true false]");
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
