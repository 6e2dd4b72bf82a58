#pragma once

/// The first bytes of a block file: what the file is, which block it holds, and what its bytes have
/// to add up to. The format stands in optimized/file_formats.md.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "contract/eviction/cache_policy.h"
#include "contract/tiering/file_tier.h"

namespace kvfence::optimized {

using BlockFileHeader = std::array<std::byte, kBlockFileHeaderBytes>;

/// The header of a block's file. Reads every byte of the block.
BlockFileHeader block_file_header(OffloadKeyView key, std::span<const std::byte> block);

/// What is wrong with a file, the first in this order.
enum class BlockFileFlaw : std::uint8_t {
  kNone,
  kMagic,         ///< no block file
  kVersion,       ///< of another format
  kHeaderDigest,  ///< the header was changed
  kBlockBytes,    ///< of another block size
  kKey,           ///< of another key
  kBlockDigest,   ///< the block was changed
};

/// Judges the header, before the block is read: never kBlockDigest.
BlockFileFlaw check_header(const BlockFileHeader& header, OffloadKeyView key,
                           std::size_t block_bytes);

/// Judges the block by its header, which was found good: kNone or kBlockDigest.
BlockFileFlaw check_block(const BlockFileHeader& header, std::span<const std::byte> block);

}  // namespace kvfence::optimized
