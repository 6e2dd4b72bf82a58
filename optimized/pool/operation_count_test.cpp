// Goal: the O(1) claim. Method: count the links followed or written and the slots probed, per
// block, with 10^3 to 10^7 blocks, and check them against one constant. A list walk or a scan
// anywhere would grow with the pool.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "planted/optimized/pool/block_hash_to_block_map.h"
#include "planted/optimized/pool/block_pool.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

class BlockPoolOperationCount : public testing::TestWithParam<std::uint32_t> {};

TEST_P(BlockPoolOperationCount, LinksPerBlockAreConstant) {
  const std::uint32_t num_blocks = GetParam();
  BlockPoolConfig config;
  config.num_gpu_blocks = num_blocks + 1;
  config.hash.algorithm = HashAlgorithm::kXxhashCbor;
  BlockPool pool(config);
  std::vector<BlockId> blocks(num_blocks);
  const auto links_of = [](auto&& operation) {
    const std::uint64_t before = operation_counts.links;
    EXPECT_EQ(operation(), ErrorCode::kNone);
    return operation_counts.links - before;
  };
  const std::uint64_t n = num_blocks;

  EXPECT_EQ(links_of([&] { return pool.get_new_blocks(blocks); }), n);
  // An order in which neighbours of the queue are far apart in memory and in the list.
  std::rotate(blocks.begin(), blocks.begin() + num_blocks / 3, blocks.end());
  EXPECT_EQ(links_of([&] { return pool.free_blocks(blocks, FreeTo::kTail); }), 2 * n + 2);
  std::reverse(blocks.begin() + num_blocks / 2, blocks.end());
  EXPECT_EQ(links_of([&] { return pool.touch(blocks); }), 3 * n);
  EXPECT_EQ(links_of([&] { return pool.touch(blocks); }), 0U);
}

TEST_P(BlockPoolOperationCount, ProbesPerBlockAreConstant) {
  constexpr std::uint32_t kSampleMax = 20'000;
  constexpr double kProbesPerHitMax = 2.0;
  constexpr double kProbesPerInsertMax = 2.5;
  constexpr double kProbesPerEraseMax = 5.0;
  const std::uint32_t num_blocks = GetParam();
  BlockHashToBlockMap map(num_blocks, 16 + kGroupIdBytes);
  operation_counts = {};
  const auto probes = [] { return operation_counts.probes; };
  const auto key_of = [](BlockId block, char(&bytes)[20]) {
    std::uint64_t word = block;  // splitmix64: what a digest would look like
    for (std::size_t i = 0; i < 2; ++i) {
      word += 0x9E37'79B9'7F4A'7C15;
      std::uint64_t mixed = (word ^ (word >> 30)) * 0xBF58'476D'1CE4'E5B9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EB;
      mixed ^= mixed >> 31;
      std::memcpy(bytes + 8 * i, &mixed, sizeof(mixed));
    }
    std::memset(bytes + 16, 0, kGroupIdBytes);
    return PackedKeyView(std::string_view(bytes, sizeof(bytes)));
  };
  char bytes[20];

  for (BlockId block = 0; block < num_blocks; ++block) map.insert(key_of(block, bytes), block);
  EXPECT_LE(static_cast<double>(probes()) / num_blocks, kProbesPerInsertMax);

  const std::uint32_t num_samples = std::min(num_blocks, kSampleMax);
  std::uint64_t before = probes();
  for (BlockId block = 0; block < num_samples; ++block) {
    ASSERT_EQ(map.get_one_block(key_of(block, bytes)), block);
  }
  EXPECT_LE(static_cast<double>(probes() - before) / num_samples, kProbesPerHitMax);

  before = probes();
  for (BlockId block = 0; block < num_samples; ++block) {
    ASSERT_TRUE(map.erase(block));
  }
  EXPECT_LE(static_cast<double>(probes() - before) / num_samples, kProbesPerEraseMax);
}

// Many blocks of one key: each insertion and removal touches only its neighbours in the list.
TEST_P(BlockPoolOperationCount, CopiesOfOneKeyCostNoWalk) {
  const std::uint32_t num_blocks = std::min(GetParam(), 100'000U);
  BlockHashToBlockMap map(num_blocks, 36);
  operation_counts = {};
  const std::string key(36, 'k');
  for (BlockId block = 0; block < num_blocks; ++block) map.insert(PackedKeyView(key), block);
  for (BlockId block = num_blocks; block > 0; --block) {
    ASSERT_TRUE(map.erase((block - 1 + num_blocks / 2) % num_blocks));
  }
  EXPECT_LE(operation_counts.links, 6ULL * num_blocks);
  EXPECT_LE(operation_counts.probes, 4ULL * num_blocks);
}

INSTANTIATE_TEST_SUITE_P(Blocks, BlockPoolOperationCount,
                         testing::Values(1'000, 10'000, 100'000, 1'000'000, 10'000'000));

// Chosen with the secret, so that only the group's bytes count.
std::vector<std::string> keys_of_one_tag(std::size_t num_keys) {
  const TableSecret secret;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < num_keys; ++i) {
    std::string hash(32, 'x');
    hash[0] = static_cast<char>(i);
    std::memcpy(&hash[16], &secret.first, sizeof(secret.first));
    keys.push_back(make_block_hash_with_group_id(hash, 0));
  }
  return keys;
}

TEST(BlockHashToBlockMap, KeysOfOneTagAreDistinguishedByTheirBytes) {
  const std::vector<std::string> keys = keys_of_one_tag(8);
  BlockHashToBlockMap map(8, 36);
  for (BlockId block = 0; block < 8; ++block) {
    ASSERT_EQ(map.tag_of(PackedKeyView(keys[block])), map.tag_of(PackedKeyView(keys[0])));
    map.insert(PackedKeyView(keys[block]), block);
  }

  for (BlockId block = 0; block < 8; ++block) {
    const std::uint64_t before = operation_counts.probes;
    EXPECT_EQ(map.get_one_block(PackedKeyView(keys[block])), block);
    EXPECT_EQ(operation_counts.probes - before, block + 1);
  }
}

// No tombstones: an erasure from the front of a cluster moves the rest one slot nearer to its home.
TEST(BlockHashToBlockMap, EraseShortensTheProbesOfTheKeysAfter) {
  const std::vector<std::string> keys = keys_of_one_tag(6);
  BlockHashToBlockMap map(6, 36);
  for (BlockId block = 0; block < 6; ++block) map.insert(PackedKeyView(keys[block]), block);

  ASSERT_TRUE(map.erase(0));
  ASSERT_TRUE(map.erase(3));

  const std::uint64_t before = operation_counts.probes;
  EXPECT_EQ(map.get_one_block(PackedKeyView(keys[5])), 5U);
  EXPECT_EQ(operation_counts.probes - before, 4U);
}

}  // namespace
}  // namespace kvfence::planted::optimized
