// A plain struct is taken apart whole and in order, and each of its members is in the digest.

#include "contract/core/members.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "contract/core/state_digest.h"

namespace kvfence {
namespace {

struct Inner {
  std::string name;
  std::array<int, 2> pair{};
};

struct Outer {
  std::uint8_t small = 0;
  std::vector<Inner> list;
  std::optional<double> maybe;
  bool flag = false;
};

struct Nothing {};

static_assert(num_members<Nothing>() == 0);
static_assert(num_members<Inner>() == 2);
static_assert(num_members<Outer>() == 4);

TEST(Members, AreGivenInTheirOrder) {
  const Outer outer{1, {{"a", {2, 3}}}, 4.0, true};
  with_members(outer, [&](const auto&... members) {
    const auto given = std::make_tuple(static_cast<const void*>(&members)...);
    EXPECT_EQ(given, std::make_tuple(static_cast<const void*>(&outer.small),
                                     static_cast<const void*>(&outer.list),
                                     static_cast<const void*>(&outer.maybe),
                                     static_cast<const void*>(&outer.flag)));
  });
}

TEST(Members, AreAllInTheDigest) {
  const Outer outer{1, {{"a", {2, 3}}}, 4.0, true};
  const auto differs = [&](auto change) {
    Outer changed = outer;
    change(changed);
    return StateHash::digest_of(changed) != StateHash::digest_of(outer);
  };
  EXPECT_FALSE(differs([](Outer&) {}));
  EXPECT_TRUE(differs([](Outer& changed) { changed.small = 2; }));
  EXPECT_TRUE(differs([](Outer& changed) { changed.list[0].name = "b"; }));
  EXPECT_TRUE(differs([](Outer& changed) { changed.list[0].pair[1] = 4; }));
  EXPECT_TRUE(differs([](Outer& changed) { changed.maybe.reset(); }));
  EXPECT_TRUE(differs([](Outer& changed) { changed.flag = false; }));
}

}  // namespace
}  // namespace kvfence
