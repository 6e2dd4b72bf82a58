// The two structures below the pool, on their own and with every refusal that the pool never asks
// for.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/status.h"
#include "optimized/pool/block_hash_to_block_map.h"
#include "optimized/pool/free_kv_cache_block_queue.h"
#include "properties/core/choices.h"
#include "properties/core/rapid_property.h"
#include "reference/pool/block_hash_to_block_map.h"
#include "reference/pool/free_kv_cache_block_queue.h"

namespace kvfence {
namespace {

using Ids = std::vector<BlockId>;

/// How often each answer came, over all runs.
using Answers = std::map<ErrorCode, int>;

Ids draw_ids(Choices& choices, std::uint32_t num_blocks) {
  Ids ids(choices.below(4));
  const bool may_be_unknown = num_blocks == 0 || choices.once_in(4);
  for (BlockId& id : ids) id = choices.below(num_blocks + (may_be_unknown ? 1 : 0));
  return ids;
}

template <class Queue>
Ids all_of(const Queue& queue) {
  Ids blocks;
  queue.get_all_free_blocks(blocks);
  return blocks;
}

/// One random operation on both queues; the answers and, at a pop, the blocks must be equal.
void step_queues(Choices& choices, std::uint32_t num_blocks,
                 reference::FreeKVCacheBlockQueue& expected,
                 optimized::FreeKVCacheBlockQueue& actual, Answers& answers) {
  ErrorCode expected_error = ErrorCode::kNone;
  ErrorCode actual_error = ErrorCode::kNone;
  switch (choices.below(6)) {
    case 0: {
      BlockId expected_block = 0;
      BlockId actual_block = 0;
      expected_error = expected.popleft(expected_block);
      actual_error = actual.popleft(actual_block);
      if (expected_error == ErrorCode::kNone) RC_ASSERT(actual_block == expected_block);
      break;
    }
    case 1: {
      Ids expected_blocks(choices.below(4));
      Ids actual_blocks(expected_blocks.size());
      expected_error = expected.popleft_n(expected_blocks);
      actual_error = actual.popleft_n(actual_blocks);
      if (expected_error == ErrorCode::kNone) RC_ASSERT(actual_blocks == expected_blocks);
      break;
    }
    case 2: {
      const BlockId block = choices.below(num_blocks + 1);
      expected_error = expected.remove(block);
      actual_error = actual.remove(block);
      break;
    }
    case 3: {
      const BlockId block = choices.below(num_blocks + 1);
      expected_error = expected.append(block);
      actual_error = actual.append(block);
      break;
    }
    case 4: {
      const Ids blocks = draw_ids(choices, num_blocks);
      expected_error = expected.append_n(blocks);
      actual_error = actual.append_n(blocks);
      break;
    }
    default: {
      const Ids blocks = draw_ids(choices, num_blocks);
      expected_error = expected.prepend_n(blocks);
      actual_error = actual.prepend_n(blocks);
    }
  }
  RC_ASSERT(actual_error == expected_error);
  RC_ASSERT(actual.num_free_blocks() == expected.num_free_blocks());
  RC_ASSERT(all_of(actual) == all_of(expected));
  ++answers[expected_error];
}

TEST(FreeKVCacheBlockQueueProp, OptimizedEqualsReference) {
  Answers answers;
  EXPECT_TRUE(holds("every operation answers alike and leaves the same queue", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(400);
    Choices choices = Choices::from_bytes(bytes);
    const std::uint32_t num_blocks = choices.below(8);
    reference::FreeKVCacheBlockQueue expected(num_blocks);
    optimized::FreeKVCacheBlockQueue actual(num_blocks);
    RC_ASSERT(all_of(actual) == all_of(expected));
    while (!choices.exhausted()) step_queues(choices, num_blocks, expected, actual, answers);
  }));
  for (ErrorCode code : {ErrorCode::kNone, ErrorCode::kQueueEmpty, ErrorCode::kUnknownBlock,
                         ErrorCode::kNotQueued, ErrorCode::kAlreadyQueued}) {
    EXPECT_GT(answers[code], 0) << to_text(code) << " was never answered";
  }
}

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
