// Each rule and each refusal of the prefix-cache map, with short keys: the map does not look into a
// key.
#include "reference/pool/block_hash_to_block_map.h"

#include <gtest/gtest.h>

namespace kvfence::reference {
namespace {

constexpr std::uint32_t kNumBlocks = 8;
constexpr std::size_t kKeyBytesMax = 4;

class BlockHashToBlockMapTest : public testing::Test {
 protected:
  BlockHashToBlockMap map_{kNumBlocks, kKeyBytesMax};
};

TEST_F(BlockHashToBlockMapTest, StartsEmpty) {
  EXPECT_EQ(map_.size(), 0u);
  EXPECT_EQ(map_.get_one_block("key0"), std::nullopt);
  EXPECT_FALSE(map_.pop("key0", 0));
}

// Upstream: test_block_lookup_cache_single_block_per_key
TEST_F(BlockHashToBlockMapTest, AKeyWithOneBlockGivesItUpToThatBlockOnly) {
  ASSERT_EQ(map_.insert("key1", 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("key2", 2), ErrorCode::kNone);

  EXPECT_EQ(map_.get_one_block("key0"), std::nullopt);
  EXPECT_EQ(map_.get_one_block("key1"), 1u);
  EXPECT_EQ(map_.get_one_block("key2"), 2u);
  EXPECT_EQ(map_.size(), 2u);

  EXPECT_FALSE(map_.pop("key0", 1));
  EXPECT_FALSE(map_.pop("key1", 2));
  EXPECT_FALSE(map_.pop("key1", 7));
  EXPECT_EQ(map_.get_one_block("key1"), 1u);
  EXPECT_EQ(map_.get_one_block("key2"), 2u);
  EXPECT_EQ(map_.size(), 2u);

  EXPECT_TRUE(map_.pop("key1", 1));
  EXPECT_EQ(map_.get_one_block("key1"), std::nullopt);
  EXPECT_FALSE(map_.pop("key1", 1));
  EXPECT_TRUE(map_.pop("key2", 2));
  EXPECT_EQ(map_.size(), 0u);
}

// Upstream: test_block_lookup_cache_multi_blocks_per_key
TEST_F(BlockHashToBlockMapTest, TheFirstInsertedSurvivorOfAKeyIsGiven) {
  ASSERT_EQ(map_.insert("keyA", 5), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 3), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 4), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyB", 1), ErrorCode::kNone);

  EXPECT_EQ(map_.get_one_block("keyA"), 5u);
  EXPECT_EQ(map_.get_one_block("keyB"), 1u);
  EXPECT_EQ(map_.size(), 2u);

  EXPECT_FALSE(map_.pop("keyA", 1));
  EXPECT_TRUE(map_.pop("keyA", 5));
  EXPECT_EQ(map_.get_one_block("keyA"), 3u);
  EXPECT_TRUE(map_.pop("keyA", 3));
  EXPECT_EQ(map_.get_one_block("keyA"), 4u);
  EXPECT_EQ(map_.size(), 2u);
  EXPECT_TRUE(map_.pop("keyA", 4));
  EXPECT_EQ(map_.get_one_block("keyA"), std::nullopt);
  EXPECT_EQ(map_.size(), 1u);
}

TEST_F(BlockHashToBlockMapTest, ABlockThatLeftAndCameBackIsTheLastOfItsKey) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 2), ErrorCode::kNone);
  ASSERT_TRUE(map_.pop("keyA", 1));
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);

  EXPECT_EQ(map_.get_one_block("keyA"), 2u);
}

TEST_F(BlockHashToBlockMapTest, PopFromTheMiddleKeepsTheFirst) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 2), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 3), ErrorCode::kNone);

  EXPECT_TRUE(map_.pop("keyA", 2));

  EXPECT_EQ(map_.get_one_block("keyA"), 1u);
  EXPECT_TRUE(map_.pop("keyA", 1));
  EXPECT_EQ(map_.get_one_block("keyA"), 3u);
}

TEST_F(BlockHashToBlockMapTest, SizeCountsKeysThoughTheirInsertsAlternate) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyB", 2), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 3), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyB", 4), ErrorCode::kNone);

  EXPECT_EQ(map_.size(), 2u);
  EXPECT_EQ(map_.get_one_block("keyA"), 1u);
  EXPECT_EQ(map_.get_one_block("keyB"), 2u);
}

TEST_F(BlockHashToBlockMapTest, KeysThatShareAPrefixOrContainZeroBytesAreDifferent) {
  using namespace std::string_view_literals;
  ASSERT_EQ(map_.insert("ab"sv, 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("ab\0"sv, 2), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("ab\0\1"sv, 3), ErrorCode::kNone);

  EXPECT_EQ(map_.get_one_block("ab"sv), 1u);
  EXPECT_EQ(map_.get_one_block("ab\0"sv), 2u);
  EXPECT_EQ(map_.get_one_block("ab\0\1"sv), 3u);
  EXPECT_EQ(map_.get_one_block("a"sv), std::nullopt);
  EXPECT_EQ(map_.size(), 3u);
}

TEST_F(BlockHashToBlockMapTest, AnUnknownBlockIsRefused) {
  EXPECT_EQ(map_.insert("keyA", kNumBlocks), ErrorCode::kUnknownBlock);

  EXPECT_EQ(map_.size(), 0u);
  EXPECT_FALSE(map_.pop("keyA", kNumBlocks));
}

TEST_F(BlockHashToBlockMapTest, ABlockInTheMapIsRefusedUnderAnyKey) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);

  EXPECT_EQ(map_.insert("keyA", 1), ErrorCode::kAlreadyHashed);
  EXPECT_EQ(map_.insert("keyB", 1), ErrorCode::kAlreadyHashed);

  EXPECT_EQ(map_.size(), 1u);
  EXPECT_EQ(map_.get_one_block("keyA"), 1u);
  EXPECT_EQ(map_.get_one_block("keyB"), std::nullopt);
}

TEST_F(BlockHashToBlockMapTest, ClearForgetsEverything) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);
  ASSERT_EQ(map_.insert("keyA", 2), ErrorCode::kNone);

  map_.clear();

  EXPECT_EQ(map_.size(), 0u);
  EXPECT_EQ(map_.get_one_block("keyA"), std::nullopt);
  EXPECT_EQ(map_.insert("keyB", 1), ErrorCode::kNone);
  EXPECT_EQ(map_.get_one_block("keyB"), 1u);
}

TEST_F(BlockHashToBlockMapTest, ACopyIsAlone) {
  ASSERT_EQ(map_.insert("keyA", 1), ErrorCode::kNone);
  BlockHashToBlockMap copy = map_;

  ASSERT_TRUE(copy.pop("keyA", 1));

  EXPECT_EQ(copy.size(), 0u);
  EXPECT_EQ(map_.get_one_block("keyA"), 1u);
}

TEST(BlockHashToBlockMapDeathTest, AKeyLongerThanTheBoundAborts) {
  BlockHashToBlockMap map(kNumBlocks, kKeyBytesMax);

  EXPECT_DEATH(map.insert("12345", 1), "longer than the map was built for");
}

}  // namespace
}  // namespace kvfence::reference
