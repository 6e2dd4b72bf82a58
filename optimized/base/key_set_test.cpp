#include "optimized/base/key_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <string>

namespace kvfence::optimized {
namespace {

std::string key_of(std::uint32_t number) {
  // Few distinct prefixes, so that keys collide in the table.
  std::string key(20, '\0');
  key[0] = static_cast<char>(number % 7);
  key[8] = static_cast<char>(number / 7);
  return key;
}

TEST(KeySetTest, HoldsWhatWasInsertedSinceItWasCleared) {
  KeySet keys;
  std::set<std::string> expected;
  std::mt19937 random(1);
  EXPECT_FALSE(keys.contains(key_of(0)));
  for (int step = 0; step < 5'000; ++step) {
    const std::string key = key_of(static_cast<std::uint32_t>(random() % 500));
    if (random() % 300 == 0) {
      keys.clear();
      expected.clear();
    }
    if (random() % 2 == 0) {
      keys.insert(key);
      expected.insert(key);
    }
    ASSERT_EQ(keys.contains(key), expected.contains(key)) << "step " << step;
  }
}

TEST(KeySetTest, HoldsNoKeyOfAnotherLength) {
  KeySet keys;
  keys.insert(key_of(3));
  EXPECT_FALSE(keys.contains(""));
  EXPECT_FALSE(keys.contains(key_of(3) + "x"));
  EXPECT_TRUE(keys.contains(key_of(3)));
}

}  // namespace
}  // namespace kvfence::optimized
