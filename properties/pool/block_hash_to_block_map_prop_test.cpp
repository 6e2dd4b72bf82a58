// The map below the pool on its own, with keys that collide in a hash table.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/pool/block_hash_to_block_map.h"
#include "properties/core/rapid_property_test_support.h"
#include "properties/draws/choices.h"
#include "reference/pool/block_hash_to_block_map.h"

namespace kvfence {
namespace {

using optimized::PackedKeyView;

/// Keys that differ outside of what the hash table hashes, differ only in their group, or are
/// shorter than a hash.
const std::array<std::string, 8>& keys() {
  static const std::string kTail("same eight", 10);
  static const std::array<std::string, 8> kKeys = {"a" + kTail + std::string("\0\0\0\0", 4),
                                                   "b" + kTail + std::string("\0\0\0\0", 4),
                                                   "c" + kTail + std::string("\0\0\0\0", 4),
                                                   "a" + kTail + std::string("\0\0\0\1", 4),
                                                   "a" + kTail + std::string("\1\0\0\0", 4),
                                                   std::string("\0\0\0\0\0\0\0\0\0\0\0\0", 12),
                                                   "xyz",
                                                   "wxyz"};
  return kKeys;
}

TEST(BlockHashToBlockMapProp, OptimizedEqualsReference) {
  int num_popped = 0;
  int num_cleared = 0;
  int num_duplicates = 0;
  EXPECT_TRUE(holds("every operation leaves the same map", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(400);
    Choices choices = Choices::from_bytes(bytes);
    const std::uint32_t num_blocks = 1 + choices.below(12);
    reference::BlockHashToBlockMap expected(num_blocks, 16);
    optimized::BlockHashToBlockMap actual(num_blocks, 16);
    while (!choices.exhausted()) {
      const std::string& key = keys()[choices.below(8)];
      const BlockId block = choices.below(num_blocks);
      if (choices.once_in(64)) {
        num_cleared += expected.size() > 0;
        expected.clear();
        actual.clear();
      } else if (!expected.key_of(block).empty()) {
        ++num_popped;
        expected.pop(block);
        RC_ASSERT(actual.erase(block));
      } else {
        num_duplicates += expected.get_one_block(key).has_value();
        expected.insert(key, block);
        actual.insert(PackedKeyView(key), block);
      }
      RC_ASSERT(actual.size() == expected.size());
      for (BlockId any = 0; any < num_blocks; ++any) {
        RC_ASSERT(actual.key_of(any) == expected.key_of(any));
      }
      for (const std::string& any : keys()) {
        RC_ASSERT(actual.get_one_block(PackedKeyView(any)) ==
                  expected.get_one_block(any).value_or(actual.kNoBlock));
      }
    }
  }));
  EXPECT_GT(num_popped, 0);
  EXPECT_GT(num_cleared, 0);
  EXPECT_GT(num_duplicates, 0);
}

TEST(BlockHashToBlockMapProp, AKeyLongerThanTheBoundAborts) {
  reference::BlockHashToBlockMap expected(8, 4);
  optimized::BlockHashToBlockMap actual(8, 4);
  EXPECT_DEATH(expected.insert("12345", 1), "longer than the map was built for");
  EXPECT_DEATH(actual.insert(PackedKeyView("12345"), 1), "longer than the map was built for");
}

}  // namespace
}  // namespace kvfence
