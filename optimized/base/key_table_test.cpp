#include "optimized/base/key_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "contract/offload/offload_key_number.h"

namespace kvfence::optimized {
namespace {

struct Payload {
  std::uint32_t value = 0;
};
using PayloadTable = KeyTable<Payload>;

/// Keys of all lengths: empty, shorter than a word, inline, of digests, and on both sides of the
/// longest that fits into an entry.
std::vector<OffloadKey> keys_of_all_lengths() {
  std::vector<OffloadKey> keys;
  for (const std::size_t size : std::vector<std::size_t>{0, 1, 7, 8, 9, 16, 20, 31, 32, 33, 36, 40,
                                                         41, 48, 54, 55, 64, 300}) {
    keys.emplace_back(size, 'a');
    if (size > 0) keys.push_back(std::string(size - 1, 'a') + "b");
    if (size > 16) keys.push_back(std::string(8, 'a') + "b" + std::string(size - 9, 'a'));
  }
  return keys;
}

TEST(KeyTable, DistinguishesKeysOfAllLengths) {
  const std::vector<OffloadKey> keys = keys_of_all_lengths();
  PayloadTable table(keys.size());
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(table.find(keys[i]), PayloadTable::kNone) << i;
    table[table.insert(keys[i], table.search(keys[i]))].value = i;
  }
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const PayloadTable::Index index = table.find(keys[i]);
    ASSERT_NE(index, PayloadTable::kNone) << i;
    EXPECT_EQ(table[index].value, i);
    EXPECT_EQ(table.key_of(index), keys[i]);
  }
}

// The length that marks a key stored elsewhere is also a valid length.
TEST(KeyTable, HoldsKeysOfSixteenBitsOfLength) {
  PayloadTable table(2);
  const OffloadKey shorter(0xFFFF, 'k');
  const OffloadKey longer(0x1'0020, 'k');
  const PayloadTable::Index index = table.insert(shorter, table.search(shorter));
  EXPECT_EQ(table.find(shorter), index);
  EXPECT_EQ(table.find(longer), PayloadTable::kNone);
}

TEST(KeyTable, AnswersAsAStdMap) {
  constexpr std::uint32_t kNumKeysMax = 50;
  const std::vector<OffloadKey> odd_keys = keys_of_all_lengths();
  PayloadTable table(kNumKeysMax);
  std::map<OffloadKey, std::uint32_t> expected;
  std::mt19937 random(3);
  for (std::uint32_t step = 0; step < 50'000; ++step) {
    const auto number = static_cast<std::uint32_t>(random() % 80);
    const OffloadKey key = number < odd_keys.size() ? odd_keys[number] : key_of_number(number);
    const PayloadTable::Index index = table.find(key);
    ASSERT_EQ(index != PayloadTable::kNone, expected.count(key) == 1);
    if (index != PayloadTable::kNone) {
      ASSERT_EQ(table[index].value, expected[key]);
      ASSERT_EQ(table.key_of(index), key);
      table.erase(index);
      ASSERT_EQ(table.key_of(index), key);
      expected.erase(key);
    } else if (expected.size() < kNumKeysMax) {
      table[table.insert(key, table.search(key))].value = step;
      expected[key] = step;
    }
    if (step % 10'000 == 9'999) {
      table.clear();
      expected.clear();
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
