#pragma once

/// A part of a whole: hit rates.

#include <cstdint>

namespace kvfence {

/// From 0 to 1; 0 where there is nothing.
inline double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace kvfence
