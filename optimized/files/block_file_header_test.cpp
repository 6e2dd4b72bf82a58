#include "optimized/files/block_file_header.h"

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence::optimized {
namespace {

const OffloadKey kKey(36, 'k');

std::vector<std::byte> block_of(std::size_t num_bytes) {
  std::vector<std::byte> block(num_bytes);
  for (std::size_t i = 0; i < num_bytes; ++i) block[i] = static_cast<std::byte>(7 * i + 1);
  return block;
}

std::string hex(const BlockFileHeader& header) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::byte byte : header) {
    text += kDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

// Files outlive the program that wrote them. This test may change only with a new version.
TEST(BlockFileHeader, FormatStays) {
  EXPECT_EQ(hex(block_file_header(kKey, block_of(100))),
            "6b7666626c6f636b"                  // kvfblock
            "01000000"                          // version
            "6400000000000000"                  // bytes of the block
            "f0360db7612bc7f94a1ec579e98456aa"  // XXH3-128 of the key
            "87cf077b8f4f1a53c214fd5917fc72fd"  // XXH3-128 of the block
            "07e772f0367047cffe91cb36"          // XXH3-128 of all of that, its first 12 bytes
  );
}

TEST(BlockFileHeader, AcceptsWhatWasWritten) {
  for (std::size_t num_bytes : {std::size_t{1}, std::size_t{64}, std::size_t{10'000}}) {
    const std::vector<std::byte> block = block_of(num_bytes);
    const BlockFileHeader header = block_file_header(kKey, block);
    EXPECT_TRUE(is_header_of(header, kKey, num_bytes));
    EXPECT_TRUE(has_block(header, block));
  }
}

TEST(BlockFileHeader, FindsEveryChangedBit) {
  std::vector<std::byte> block = block_of(100);
  BlockFileHeader header = block_file_header(kKey, block);
  for (std::size_t bit = 0; bit < 8 * header.size(); ++bit) {
    header[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(is_header_of(header, kKey, 100)) << "bit " << bit;
    header[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (std::size_t bit = 0; bit < 8 * block.size(); ++bit) {
    block[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(has_block(header, block)) << "bit " << bit;
    block[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(BlockFileHeader, DistinguishesKeysAndSizes) {
  const BlockFileHeader header = block_file_header(kKey, block_of(100));
  OffloadKey other = kKey;
  other.back() = 'l';
  EXPECT_FALSE(is_header_of(header, other, 100));
  EXPECT_FALSE(is_header_of(header, kKey + 'k', 100));
  EXPECT_FALSE(is_header_of(header, kKey, 101));
}

}  // namespace
}  // namespace kvfence::optimized
