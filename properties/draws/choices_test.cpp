#include "properties/draws/choices.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence {
namespace {

std::vector<std::uint32_t> draw(Choices choices, std::size_t count, std::uint32_t bound) {
  std::vector<std::uint32_t> drawn(count);
  for (std::uint32_t& number : drawn) number = choices.below(bound);
  return drawn;
}

TEST(Choices, ASeedDecidesAllThatFollows) {
  EXPECT_EQ(draw(Choices::from_seed(7), 100, 1000), draw(Choices::from_seed(7), 100, 1000));
  EXPECT_NE(draw(Choices::from_seed(7), 100, 1000), draw(Choices::from_seed(8), 100, 1000));
}

TEST(Choices, ASeedNeverRunsOut) {
  Choices choices = Choices::from_seed(1);
  for (int count = 0; count < 1000; ++count) choices.below(10);
  EXPECT_FALSE(choices.exhausted());
}

TEST(Choices, EveryNumberBelowTheBoundIsDrawn) {
  const std::vector<std::uint32_t> drawn = draw(Choices::from_seed(3), 1000, 10);
  EXPECT_EQ(std::set<std::uint32_t>(drawn.begin(), drawn.end()).size(), 10u);
  EXPECT_LT(*std::max_element(drawn.begin(), drawn.end()), 10u);
}

TEST(Choices, OnceInIsTrueAboutThatOften) {
  Choices choices = Choices::from_seed(5);
  int num_true = 0;
  for (int count = 0; count < 16'000; ++count) num_true += choices.once_in(16);
  EXPECT_GT(num_true, 800);
  EXPECT_LT(num_true, 1200);
}

TEST(Choices, BytesAreReadAsBigAsTheBoundNeeds) {
  const std::array<std::uint8_t, 7> bytes = {5, 1, 2, 1, 2, 3, 4};
  Choices choices = Choices::from_bytes(bytes);
  EXPECT_EQ(choices.below(256), 5u);
  EXPECT_EQ(choices.below(65536), 0x0102u);
  EXPECT_EQ(choices.below(0xFFFF'FFFF), 0x0102'0304u);
  EXPECT_TRUE(choices.exhausted());
}

TEST(Choices, EveryByteStringMeansSomethingBelowEveryBound) {
  for (std::uint32_t bound : {1u, 2u, 3u, 255u, 256u, 257u, 65536u, 65537u, 0xFFFF'FFFFu}) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::vector<std::uint8_t> bytes(5, static_cast<std::uint8_t>(byte));
      EXPECT_LT(Choices::from_bytes(bytes).below(bound), bound);
    }
  }
}

TEST(Choices, AfterTheEndEveryChoiceIsZero) {
  const std::array<std::uint8_t, 1> bytes = {9};
  Choices choices = Choices::from_bytes(bytes);
  EXPECT_FALSE(choices.exhausted());
  EXPECT_EQ(choices.below(10), 9u);
  EXPECT_TRUE(choices.exhausted());
  EXPECT_EQ(choices.below(1000), 0u);
  EXPECT_FALSE(choices.once_in(2));
}

TEST(Choices, NoBytesAtAllAreAnExhaustedStream) {
  Choices choices = Choices::from_bytes(std::span<const std::uint8_t>());
  EXPECT_TRUE(choices.exhausted());
  EXPECT_EQ(choices.below(100), 0u);
}

}  // namespace
}  // namespace kvfence
