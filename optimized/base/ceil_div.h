#pragma once
/// Division that rounds up.

#include <cstdint>

namespace kvfence::optimized {

constexpr std::uint32_t ceil_div(std::uint32_t dividend, std::uint32_t divisor) {
  return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}

}  // namespace kvfence::optimized
