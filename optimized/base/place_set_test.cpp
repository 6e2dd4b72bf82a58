#include "optimized/base/place_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>

#include "planted/optimized/base/place_set.h"
#include "properties/planted/switches.h"

namespace kvfence::optimized {
namespace {

class PlaceSetOfSize : public testing::TestWithParam<std::uint32_t> {};

void compare_with_std_set(std::uint32_t num_places, PlaceOrder order) {
  PlaceSet places(num_places, order);
  std::set<Place> expected;
  std::mt19937 random(1);
  for (int step = 0; step < 20'000; ++step) {
    // Close together for a while, so that words fill and become zero.
    // At the end too: the last size has its second word of the highest level but one there.
    const Place begin =
        step / 500 % 4 == 3 ? num_places - 64 : static_cast<Place>(step / 500 * 7919);
    const Place place = (begin + static_cast<Place>(random() % 100)) % num_places;
    switch (random() % 8) {
      case 0:
        if (expected.empty()) break;
        ASSERT_EQ(places.pop_first(), *expected.begin());
        expected.erase(expected.begin());
        break;
      case 1: {
        const std::uint64_t word = places.word(place / 64);
        ASSERT_EQ(places.take_word(place / 64), word);
        const auto first = expected.lower_bound(place / 64 * 64);
        expected.erase(first, expected.lower_bound(place / 64 * 64 + 64));
        break;
      }
      case 2: {
        // Members that a run must not meet are removed first.
        const std::uint64_t low = random();
        const std::uint64_t bits = low | std::uint64_t{random()} << 32;
        for (Place i = 0; i < 64 && place + i < num_places; ++i) {
          places.erase(place + i);
          expected.erase(place + i);
        }
        const std::uint64_t fitting = num_places - place >= 64
                                          ? bits
                                          : bits & ((std::uint64_t{1} << (num_places - place)) - 1);
        places.insert_run(place, fitting);
        for (Place i = 0; i < 64; ++i) {
          if ((fitting >> i & 1) != 0) expected.insert(place + i);
        }
        break;
      }
      case 3:
      case 4:
        places.erase(place);
        expected.erase(place);
        break;
      default:
        places.insert(place);
        expected.insert(place);
    }
    ASSERT_EQ(places.size(), expected.size());
    ASSERT_EQ(places.next(place) == place, expected.count(place) == 1);
    ASSERT_EQ(places.first(), expected.empty() ? PlaceSet::kNone : *expected.begin());
    const auto from = static_cast<Place>(random() % num_places);
    const auto next = expected.lower_bound(from);
    ASSERT_EQ(places.next(from), next == expected.end() ? PlaceSet::kNone : *next);
  }
  EXPECT_FALSE(expected.empty());
  places.clear();
  EXPECT_EQ(places.size(), 0U);
  EXPECT_EQ(places.first(), PlaceSet::kNone);
  EXPECT_EQ(places.next(0), PlaceSet::kNone);
}

TEST_P(PlaceSetOfSize, AnswersAsAStdSet) { compare_with_std_set(GetParam(), PlaceOrder::kOrdered); }

TEST_P(PlaceSetOfSize, AnswersAsAStdSetWithoutSummaries) {
  compare_with_std_set(GetParam(), PlaceOrder::kPlain);
}

INSTANTIATE_TEST_SUITE_P(Places, PlaceSetOfSize,
                         testing::Values(64, 128, 4096, 4160, 262'144, 262'208));

TEST(PlaceSet, InsertionsOfNeighboursTouchTheLowestLevelOnly) {
  planted::optimized::PlaceSet places(10'000'000, planted::optimized::PlaceOrder::kOrdered);
  places.insert(5'000'000);
  const std::uint64_t before = planted::operation_counts.words;
  places.insert(5'000'001);
  places.erase(5'000'000);
  EXPECT_EQ(planted::operation_counts.words - before, 2U);
}

}  // namespace
}  // namespace kvfence::optimized
