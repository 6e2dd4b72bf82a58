#include "optimized/files/block_file_header.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "contract/core/digest.h"

namespace kvfence::optimized {
namespace {

constexpr std::string_view kMagic = "kvfblock";
constexpr std::uint64_t kVersion = 1;

// Where each field starts; they lie back to back.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kBlockBytesAt = 12;
constexpr std::size_t kKeyDigestAt = 20;
constexpr std::size_t kBlockDigestAt = 36;
constexpr std::size_t kHeaderDigestAt = 52;
constexpr std::size_t kVersionBytes = 4;
constexpr std::size_t kBlockSizeBytes = 8;
constexpr std::size_t kHeaderDigestBytes = 12;
static_assert(kHeaderDigestAt + kHeaderDigestBytes == kBlockFileHeaderBytes);

void put(BlockFileHeader& header, std::size_t at, std::size_t num_bytes, std::uint64_t number) {
  for (std::size_t i = 0; i < num_bytes; ++i)
    header[at + i] = static_cast<std::byte>(number >> 8 * i);
}

std::uint64_t get(const BlockFileHeader& header, std::size_t at, std::size_t num_bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < num_bytes; ++i) {
    number |= std::to_integer<std::uint64_t>(header[at + i]) << 8 * i;
  }
  return number;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// As much of the digest as the field holds.
void put(BlockFileHeader& header, std::size_t at, std::size_t num_bytes, const Xxh3Digest& digest) {
  for (std::size_t i = 0; i < num_bytes; ++i) header[at + i] = std::byte{digest[i]};
}

bool holds(const BlockFileHeader& header, std::size_t at, std::size_t num_bytes,
           const Xxh3Digest& digest) {
  for (std::size_t i = 0; i < num_bytes; ++i) {
    if (header[at + i] != std::byte{digest[i]}) return false;
  }
  return true;
}

Xxh3Digest header_digest(const BlockFileHeader& header) {
  return xxh3_128(std::span<const std::byte>(header).first(kHeaderDigestAt));
}

}  // namespace

BlockFileHeader block_file_header(OffloadKeyView key, std::span<const std::byte> block) {
  BlockFileHeader header = {};
  const std::span<const std::byte> magic = bytes_of(kMagic);
  std::copy(magic.begin(), magic.end(), header.begin() + kMagicAt);
  put(header, kVersionAt, kVersionBytes, kVersion);
  put(header, kBlockBytesAt, kBlockSizeBytes, block.size());
  put(header, kKeyDigestAt, sizeof(Xxh3Digest), xxh3_128(bytes_of(key)));
  put(header, kBlockDigestAt, sizeof(Xxh3Digest), xxh3_128(block));
  put(header, kHeaderDigestAt, kHeaderDigestBytes, header_digest(header));
  return header;
}

BlockFileFlaw check_header(const BlockFileHeader& header, OffloadKeyView key,
                           std::size_t block_bytes) {
  const std::span<const std::byte> magic = bytes_of(kMagic);
  if (!std::equal(magic.begin(), magic.end(), header.begin() + kMagicAt)) {
    return BlockFileFlaw::kMagic;
  }
  if (get(header, kVersionAt, kVersionBytes) != kVersion) return BlockFileFlaw::kVersion;
  if (!holds(header, kHeaderDigestAt, kHeaderDigestBytes, header_digest(header))) {
    return BlockFileFlaw::kHeaderDigest;
  }
  if (get(header, kBlockBytesAt, kBlockSizeBytes) != block_bytes) return BlockFileFlaw::kBlockBytes;
  if (!holds(header, kKeyDigestAt, sizeof(Xxh3Digest), xxh3_128(bytes_of(key)))) {
    return BlockFileFlaw::kKey;
  }
  return BlockFileFlaw::kNone;
}

BlockFileFlaw check_block(const BlockFileHeader& header, std::span<const std::byte> block) {
  return holds(header, kBlockDigestAt, sizeof(Xxh3Digest), xxh3_128(block))
             ? BlockFileFlaw::kNone
             : BlockFileFlaw::kBlockDigest;
}

}  // namespace kvfence::optimized
