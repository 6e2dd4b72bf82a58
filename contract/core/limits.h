#pragma once

/// Every upper bound of kvfence in one place, with its reason.

#include <cstddef>
#include <cstdint>

namespace kvfence::limits {

/// Block ids are 32-bit and the optimized pool keeps two of their values as marks.
inline constexpr std::uint32_t kBlocksMax = 0xFFFF'FFF0;

/// A merged hash is the concatenation of this many fine hashes at most: 64 x 32 bytes is a 2 KiB
/// key, more than any released model asks for (largest ratio of group block sizes known: 64).
inline constexpr std::uint32_t kHashesPerKeyMax = 64;

/// A line of the line language, in bytes: a 128k-token request on one line is under 1 MiB.
inline constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

/// Nesting of lists and records in a value: the deepest in use is 4 (events, their extra
/// keys).
inline constexpr int kValueDepthMax = 16;

}  // namespace kvfence::limits
