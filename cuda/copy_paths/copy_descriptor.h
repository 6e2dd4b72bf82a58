#pragma once

/// One piece that is copied, for the host and for the kernel: C++17, as nvcc compiles it.

#include <cstddef>
#include <cstdint>

namespace kvfence::cuda {

struct CopyDescriptor {
  std::uintptr_t dst = 0;
  std::uintptr_t src = 0;
  std::size_t size = 0;
};
constexpr bool operator==(const CopyDescriptor& a, const CopyDescriptor& b) {
  return a.dst == b.dst && a.src == b.src && a.size == b.size;
}

}  // namespace kvfence::cuda
