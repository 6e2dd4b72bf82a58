#pragma once

/// Streams and events as the opaque pointers that programs hold: an index, and a generation that
/// distinguishes a destroyed one from its successor.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kvfence::virtual_device {

struct Handle {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  bool is_stream = false;
};

/// Low bits keep streams, events and the runtime's own special streams (0, 1, 2) apart.
inline constexpr std::uintptr_t kStreamMark = 8;
inline constexpr std::uintptr_t kEventMark = 12;

template <typename Pointer>
Pointer to_pointer(const Handle& handle) {
  const std::uintptr_t number = std::uintptr_t{handle.generation} << 28 |
                                std::uintptr_t{handle.index} << 4 |
                                (handle.is_stream ? kStreamMark : kEventMark);
  return reinterpret_cast<Pointer>(number);
}

template <typename Pointer>
Handle handle_of(Pointer pointer) {
  const auto number = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t mark = number & 15;
  if (mark != kStreamMark && mark != kEventMark) return {.index = 0xFFFF'FFFF};
  return {.index = static_cast<std::uint32_t>(number >> 4 & 0xFF'FFFF),
          .generation = static_cast<std::uint32_t>(number >> 28),
          .is_stream = mark == kStreamMark};
}

/// The legacy stream by its two names, and the per-thread one.
inline bool is_default_stream(cudaStream_t stream) {
  return reinterpret_cast<std::uintptr_t>(stream) <= 2;
}

}  // namespace kvfence::virtual_device
