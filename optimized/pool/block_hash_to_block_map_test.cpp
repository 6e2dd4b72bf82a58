#include "optimized/pool/block_hash_to_block_map.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "planted/optimized/pool/block_hash_to_block_map.h"
#include "properties/planted/switches.h"

namespace kvfence::optimized {
namespace {

constexpr std::size_t kKeyBytes = 36;

std::string key_of(char letter, GroupId group = 0) {
  return make_block_hash_with_group_id(std::string(32, letter), group);
}

TEST(BlockHashToBlockMap, FindsWhatWasInserted) {
  BlockHashToBlockMap map(4, kKeyBytes);

  EXPECT_EQ(map.insert(key_of('a'), 3), ErrorCode::kNone);

  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(3));
  EXPECT_EQ(map.get_one_block(key_of('b')), std::nullopt);
  EXPECT_EQ(map.get_one_block(key_of('a', 1)), std::nullopt);
  EXPECT_EQ(map.key_of(3), key_of('a'));
  EXPECT_EQ(map.size(), 1U);
}

TEST(BlockHashToBlockMap, InsertRefusesUnknownAndHashedBlocks) {
  BlockHashToBlockMap map(2, kKeyBytes);
  ASSERT_EQ(map.insert(key_of('a'), 1), ErrorCode::kNone);

  EXPECT_EQ(map.insert(key_of('b'), 2), ErrorCode::kUnknownBlock);
  EXPECT_EQ(map.insert(key_of('b'), 1), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(map.insert(key_of('a'), 1), ErrorCode::kAlreadyHashed);

  EXPECT_EQ(map.get_one_block(key_of('b')), std::nullopt);
  EXPECT_EQ(map.size(), 1U);
}

TEST(BlockHashToBlockMap, CopiesOfAKeySurviveInInsertionOrder) {
  BlockHashToBlockMap map(5, kKeyBytes);
  for (BlockId block : {2U, 4U, 0U, 3U}) {
    ASSERT_EQ(map.insert(key_of('a'), block), ErrorCode::kNone);
  }
  EXPECT_EQ(map.size(), 1U);

  EXPECT_TRUE(map.pop(key_of('a'), 4));  // the middle
  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(2));
  EXPECT_TRUE(map.pop(key_of('a'), 2));  // the first
  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(0));
  ASSERT_EQ(map.insert(key_of('a'), 2), ErrorCode::kNone);  // again, now the last
  EXPECT_TRUE(map.pop(key_of('a'), 0));
  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(3));
  EXPECT_TRUE(map.pop(key_of('a'), 3));
  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(2));
  EXPECT_TRUE(map.pop(key_of('a'), 2));
  EXPECT_EQ(map.get_one_block(key_of('a')), std::nullopt);
  EXPECT_EQ(map.size(), 0U);
}

TEST(BlockHashToBlockMap, PopOfAnotherKeyOrBlockLeavesTheMapAsItWas) {
  BlockHashToBlockMap map(3, kKeyBytes);
  ASSERT_EQ(map.insert(key_of('a'), 1), ErrorCode::kNone);

  EXPECT_FALSE(map.pop(key_of('b'), 1));
  EXPECT_FALSE(map.pop(key_of('a', 1), 1));
  EXPECT_FALSE(map.pop(key_of('a'), 2));
  EXPECT_FALSE(map.pop(key_of('a'), 3));

  EXPECT_EQ(map.get_one_block(key_of('a')), std::optional<BlockId>(1));
}

TEST(BlockHashToBlockMap, KeysOfDifferentLengthsAreDifferent) {
  BlockHashToBlockMap map(8, 68);
  const std::string fine(32, 'a');
  const std::string merged = std::string(32, 'b') + fine;
  const std::vector<std::string> keys = {make_block_hash_with_group_id(fine, 0),
                                         make_block_hash_with_group_id(merged, 0),
                                         make_block_hash_with_group_id("ab", 0), "ab", "a"};
  for (BlockId block = 0; block < keys.size(); ++block) {
    ASSERT_EQ(map.insert(keys[block], block), ErrorCode::kNone);
  }

  for (BlockId block = 0; block < keys.size(); ++block) {
    EXPECT_EQ(map.get_one_block(keys[block]), std::optional<BlockId>(block));
    EXPECT_EQ(map.key_of(block), keys[block]);
  }
  EXPECT_EQ(map.get_one_block(std::string(100, 'a')), std::nullopt);
  EXPECT_EQ(map.get_one_block(""), std::nullopt);
}

TEST(BlockHashToBlockMap, ClearForgetsEverything) {
  BlockHashToBlockMap map(3, kKeyBytes);
  ASSERT_EQ(map.insert(key_of('a'), 1), ErrorCode::kNone);
  ASSERT_EQ(map.insert(key_of('a'), 2), ErrorCode::kNone);

  map.clear();

  EXPECT_EQ(map.size(), 0U);
  EXPECT_EQ(map.get_one_block(key_of('a')), std::nullopt);
  EXPECT_EQ(map.key_of(1), "");
  EXPECT_EQ(map.insert(key_of('b'), 1), ErrorCode::kNone);
}

// Keys that differ only in what the tag does not see: the tag takes the last 8 bytes of the hash.
std::vector<std::string> keys_of_one_tag(std::size_t num_keys) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < num_keys; ++i) {
    std::string hash(32, 'x');
    hash[0] = static_cast<char>(i);
    keys.push_back(make_block_hash_with_group_id(hash, 0));
  }
  return keys;
}

TEST(BlockHashToBlockMap, KeysOfOneTagAreToldApartByTheirBytes) {
  const std::vector<std::string> keys = keys_of_one_tag(8);
  planted::optimized::BlockHashToBlockMap map(8, kKeyBytes);
  for (BlockId block = 0; block < 8; ++block) {
    ASSERT_EQ(map.tag_of(planted::optimized::PackedKeyView(keys[block])),
              map.tag_of(planted::optimized::PackedKeyView(keys[0])));
    ASSERT_EQ(map.insert(keys[block], block), ErrorCode::kNone);
  }

  for (BlockId block = 0; block < 8; ++block) {
    const std::uint64_t before = planted::operation_counts.probes;
    EXPECT_EQ(map.get_one_block(keys[block]), std::optional<BlockId>(block));
    EXPECT_EQ(planted::operation_counts.probes - before, block + 1);
  }
}

// No tombstones: after an erasure from the front of a cluster, the rest is one slot nearer to its
// home.
TEST(BlockHashToBlockMap, EraseShortensTheProbesOfTheKeysBehind) {
  const std::vector<std::string> keys = keys_of_one_tag(6);
  planted::optimized::BlockHashToBlockMap map(6, kKeyBytes);
  for (BlockId block = 0; block < 6; ++block) {
    ASSERT_EQ(map.insert(keys[block], block), ErrorCode::kNone);
  }

  ASSERT_TRUE(map.pop(keys[0], 0));
  ASSERT_TRUE(map.pop(keys[3], 3));

  const std::uint64_t before = planted::operation_counts.probes;
  EXPECT_EQ(map.get_one_block(keys[5]), std::optional<BlockId>(5));
  EXPECT_EQ(planted::operation_counts.probes - before, 4U);
}

// Method: random inserts and pops over few keys, in a table small enough that clusters wrap around
// its end, against an ordinary map; every key is looked up after every step.
TEST(BlockHashToBlockMap, AgreesWithAnOrdinaryMapUnderCollisions) {
  constexpr BlockId kNumBlocks = 12;
  BlockHashToBlockMap map(kNumBlocks, kKeyBytes);
  std::map<std::string, std::vector<BlockId>> model;
  std::vector<std::string> keys = keys_of_one_tag(5);
  for (char letter = 'a'; letter < 'k'; ++letter) keys.push_back(key_of(letter));
  std::mt19937 random(1);

  for (int step = 0; step < 3000; ++step) {
    const std::string& key = keys[random() % keys.size()];
    const auto block = static_cast<BlockId>(random() % kNumBlocks);
    if (const std::string carried(map.key_of(block)); carried.empty()) {
      ASSERT_EQ(map.insert(key, block), ErrorCode::kNone);
      model[key].push_back(block);
    } else {
      ASSERT_TRUE(map.pop(carried, block));
      std::erase(model[carried], block);
      if (model[carried].empty()) model.erase(carried);
    }

    ASSERT_EQ(map.size(), model.size());
    for (const std::string& each : keys) {
      const auto found = model.find(each);
      const std::optional<BlockId> expected =
          found == model.end() ? std::nullopt : std::optional<BlockId>(found->second.front());
      ASSERT_EQ(map.get_one_block(each), expected);
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
