// A number stands for one key, and other bytes for none.

#include "contract/offload/offload_key_number.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>

namespace kvfence {
namespace {

/// Some of each length.
constexpr std::uint32_t kNumbers[] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 1'000'003, 1'000'005, std::numeric_limits<std::uint32_t>::max()};

TEST(OffloadKeyNumber, AKeyLeadsBackToItsNumber) {
  std::set<OffloadKey> keys;
  for (const std::uint32_t number : kNumbers) {
    const OffloadKey key = key_of_number(number);
    EXPECT_EQ(number_of_key(key), number);
    EXPECT_TRUE(keys.insert(key).second) << number;
  }
}

TEST(OffloadKeyNumber, KeysHaveThreeLengths) {
  EXPECT_EQ(key_of_number(3).size(), 64U);
  EXPECT_EQ(key_of_number(5).size(), 20U);
  EXPECT_EQ(key_of_number(0).size(), 32U);
}

TEST(OffloadKeyNumber, OtherBytesHaveNone) {
  EXPECT_EQ(number_of_key(""), std::nullopt);
  EXPECT_EQ(number_of_key("7 bytes"), std::nullopt);
  EXPECT_EQ(number_of_key(OffloadKey(1'000, 'x')), std::nullopt);
  for (const std::uint32_t number : kNumbers) {
    const OffloadKey key = key_of_number(number);
    EXPECT_EQ(number_of_key(key + '\0'), std::nullopt) << number;
    EXPECT_EQ(number_of_key(key.substr(1)), std::nullopt) << number;
    for (std::size_t at = 0; at < key.size(); ++at) {
      OffloadKey changed = key;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      EXPECT_EQ(number_of_key(changed), std::nullopt) << number << " at " << at;
    }
  }
}

}  // namespace
}  // namespace kvfence
