#pragma once

/// The header of a block file: a magic number, the block's key, and digests of header and block.
/// The format is in optimized/file_formats.md.

#include <array>
#include <cstddef>
#include <span>

#include "contract/eviction/cache_policy.h"
#include "contract/tiering/file_tier.h"

namespace kvfence::optimized {

using BlockFileHeader = std::array<std::byte, kBlockFileHeaderBytes>;

/// The header of a block's file. Reads every byte of the block.
BlockFileHeader block_file_header(OffloadKeyView key, std::span<const std::byte> block);

/// Whether it is the whole header of a file with that key's block, of that size. Does not need the
/// block.
bool is_header_of(const BlockFileHeader& header, OffloadKeyView key, std::size_t block_bytes);

/// Whether the block is the one that was written to the file. Requires: is_header_of(header).
bool has_block(const BlockFileHeader& header, std::span<const std::byte> block);

}  // namespace kvfence::optimized
