#pragma once

/// Draws how many bytes a short read or write of a block file transfers.

#include <array>
#include <cstdint>

#include "contract/tiering/file_tier.h"
#include "properties/draws/choices.h"

namespace kvfence::tiering {

/// Every other time an edge case: nothing, one byte, or up to the end of the header.
inline std::uint32_t draw_short_transfer(Choices& choices) {
  constexpr std::uint32_t kBytesMax = 80;
  constexpr std::array<std::uint32_t, 5> kEdges = {
      0, 1, kBlockFileHeaderBytes - 1, kBlockFileHeaderBytes, kBlockFileHeaderBytes + 1};
  const std::uint32_t drawn = choices.below(2 * kBytesMax);
  return drawn < kBytesMax ? drawn : kEdges[drawn % kEdges.size()];
}

}  // namespace kvfence::tiering
