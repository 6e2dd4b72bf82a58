#include "optimized/base/repeat_finder.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace kvfence::optimized {
namespace {

TEST(RepeatFinder, FindsWhatAStdSetFinds) {
  RepeatFinder finder;
  std::mt19937 random(5);
  int num_repeats = 0;
  for (int step = 0; step < 3'000; ++step) {
    std::vector<OffloadKey> keys(random() % 20);
    // All of one tag, in one step of three.
    const std::string ends(step % 3 == 0 ? 16 : 0, 'e');
    for (OffloadKey& key : keys) key = ends + std::to_string(random() % 200) + ends;
    const std::vector<OffloadKeyView> views(keys.begin(), keys.end());
    const bool has_repeat = std::set<OffloadKey>(keys.begin(), keys.end()).size() < keys.size();
    ASSERT_EQ(finder.has_repeat(views), has_repeat);
    num_repeats += has_repeat ? 1 : 0;
  }
  EXPECT_GT(num_repeats, 500);
  EXPECT_LT(num_repeats, 2'500);
}

}  // namespace
}  // namespace kvfence::optimized
