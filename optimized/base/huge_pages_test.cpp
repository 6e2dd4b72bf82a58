// Goal: a vector on huge pages behaves like any vector, and a large one begins at a huge page.

#include "optimized/base/huge_pages.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence::optimized {
namespace {

using Words = std::vector<std::uint64_t, HugePageAllocator<std::uint64_t>>;

constexpr std::size_t kHugeWords = kHugeBytesMin / sizeof(std::uint64_t);

TEST(HugePages, WhatIsLargeBeginsAtAHugePage) {
  const Words words(kHugeWords + 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words.data()) % kHugePageBytes, 0U);
}

TEST(HugePages, EveryWordIsZeroAndCanBeWritten) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kHugeWords - 1, kHugeWords}) {
    Words words(size);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; ++i) sum += words[i]++;
    EXPECT_EQ(sum, 0U) << size;
    EXPECT_EQ(Words(words), words) << size;
  }
}

TEST(HugePages, GrowingKeepsWhatIsThere) {
  Words words(kHugeWords - 1, 7);
  words.push_back(8);
  EXPECT_EQ(words.front(), 7U);
  EXPECT_EQ(words[kHugeWords - 2], 7U);
  EXPECT_EQ(words.back(), 8U);
}

TEST(HugePages, TooMuchIsRefused) {
  HugePageAllocator<std::uint64_t> allocator;
  EXPECT_THROW(static_cast<void>(allocator.allocate(std::numeric_limits<std::size_t>::max() / 4)),
               std::bad_array_new_length);
}

}  // namespace
}  // namespace kvfence::optimized
