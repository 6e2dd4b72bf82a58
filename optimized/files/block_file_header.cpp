#include "optimized/files/block_file_header.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "contract/core/digest.h"

namespace kvfence::optimized {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'k', 'v', 'f', 'b', 'l', 'o', 'c', 'k'};
constexpr std::uint32_t kVersion = 1;

struct [[gnu::packed]] Fields {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint64_t block_bytes;
  Xxh3Digest key_digest;
  Xxh3Digest block_digest;
  std::array<std::uint8_t, 12> header_digest;  ///< of all bytes before it, truncated
};
static_assert(sizeof(Fields) == kBlockFileHeaderBytes);

Xxh3Digest digest_of(OffloadKeyView key) { return xxh3_128(std::as_bytes(std::span(key))); }

void set_header_digest(Fields& fields) {
  const auto header = std::bit_cast<BlockFileHeader>(fields);
  const Xxh3Digest digest = xxh3_128(std::span(header).first(offsetof(Fields, header_digest)));
  std::copy_n(digest.begin(), fields.header_digest.size(), fields.header_digest.begin());
}

}  // namespace

BlockFileHeader block_file_header(OffloadKeyView key, std::span<const std::byte> block) {
  Fields fields = {kMagic, kVersion, block.size(), digest_of(key), xxh3_128(block), {}};
  set_header_digest(fields);
  return std::bit_cast<BlockFileHeader>(fields);
}

bool is_header_of(const BlockFileHeader& header, OffloadKeyView key, std::size_t block_bytes) {
  const auto fields = std::bit_cast<Fields>(header);
  Fields expected = {kMagic, kVersion, block_bytes, digest_of(key), fields.block_digest, {}};
  set_header_digest(expected);
  return header == std::bit_cast<BlockFileHeader>(expected);
}

bool has_block(const BlockFileHeader& header, std::span<const std::byte> block) {
  return std::bit_cast<Fields>(header).block_digest == xxh3_128(block);
}

}  // namespace kvfence::optimized
