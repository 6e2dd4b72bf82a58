// The map below the pool on its own, with keys that a hash table mistakes for each other and with
// refusals that the pool never asks for.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/status.h"
#include "optimized/pool/block_hash_to_block_map.h"
#include "properties/core/rapid_property.h"
#include "properties/draws/choices.h"
#include "reference/pool/block_hash_to_block_map.h"

namespace kvfence {
namespace {

/// How often each answer came, over all runs.
using Answers = std::map<ErrorCode, int>;

/// Keys that differ where a hash table does not look, in their group only, or are shorter than one.
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
  Answers inserted;
  std::map<bool, int> popped;
  std::map<bool, int> cleared_something;
  int num_duplicates = 0;
  EXPECT_TRUE(holds("every operation answers alike and leaves the same map", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(400);
    Choices choices = Choices::from_bytes(bytes);
    const std::uint32_t num_blocks = choices.below(12);
    reference::BlockHashToBlockMap expected(num_blocks, 16);
    optimized::BlockHashToBlockMap actual(num_blocks, 16);
    while (!choices.exhausted()) {
      const std::string& key = keys()[choices.below(8)];
      const BlockId block = choices.below(num_blocks + 1);
      switch (choices.once_in(64) ? 2 : choices.below(2)) {
        case 0: {
          num_duplicates += expected.get_one_block(key).has_value();
          const ErrorCode error = expected.insert(key, block);
          RC_ASSERT(actual.insert(key, block) == error);
          ++inserted[error];
          break;
        }
        case 1: {
          const bool is_popped = expected.pop(key, block);
          RC_ASSERT(actual.pop(key, block) == is_popped);
          ++popped[is_popped];
          break;
        }
        default:
          ++cleared_something[expected.size() > 0];
          expected.clear();
          actual.clear();
      }
      RC_ASSERT(actual.size() == expected.size());
      for (const std::string& any : keys()) {
        RC_ASSERT(actual.get_one_block(any) == expected.get_one_block(any));
      }
    }
  }));
  for (ErrorCode code : {ErrorCode::kNone, ErrorCode::kUnknownBlock, ErrorCode::kAlreadyHashed}) {
    EXPECT_GT(inserted[code], 0) << "insert never answered " << to_text(code);
  }
  EXPECT_GT(popped[true], 0);
  EXPECT_GT(popped[false], 0);
  EXPECT_GT(cleared_something[true], 0);
  EXPECT_GT(num_duplicates, 0);
}

}  // namespace
}  // namespace kvfence
