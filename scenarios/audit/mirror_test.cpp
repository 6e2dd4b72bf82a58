#include "scenarios/audit/mirror.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace kvfence::audit {
namespace {

TEST(BlockTable, IsAMap) {
  std::mt19937 random(1);  // NOLINT: the same run each time
  BlockTable table;
  std::map<HashId, std::uint32_t> expected;
  for (std::uint32_t step = 0; step < 100'000; ++step) {
    // Neighbours collide, so that clusters are long.
    const HashId id = random() % 3000 * 7;
    if (random() % 2 == 0) {
      table.at(id).depth = step;
      expected[id] = step;
      if (step % 3 == 0) table.keep_digest(id, std::string(16, static_cast<char>('a' + id % 9)));
    } else if (expected.erase(id) > 0) {
      table.erase(id);
    }
    ASSERT_EQ(table.size(), expected.size());
    const MirrorBlock* const block = table.find(id);
    ASSERT_EQ(block != nullptr, expected.contains(id));
    ASSERT_TRUE(block == nullptr || block->depth == expected[id]);
    const std::string_view digest = table.digest_of(id);
    ASSERT_TRUE(digest.empty() || digest == std::string(16, static_cast<char>('a' + id % 9)));
  }
  for (const auto& [id, depth] : expected) ASSERT_EQ(table.find(id)->depth, depth);
  table.clear();
  EXPECT_EQ(table.find(7), nullptr);
}

TEST(BlockTable, TakesAHundredBytesPerBlock) {
  BlockTable table;
  for (HashId id = 1; id <= 1'000'000; ++id) {
    table.at(id * 0x9E37'79B9'7F4A'7C15);
    ASSERT_LE(table.memory_bytes(), 104 * (id + 100));
  }
}

}  // namespace
}  // namespace kvfence::audit
