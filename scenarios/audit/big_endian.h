#pragma once

/// Big-endian numbers, as in msgpack and the frames of a message.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvfence::audit {

/// A sequence number in a frame of its own.
inline constexpr std::size_t kSequenceBytes = 8;

/// The lowest num_bytes of the value.
inline void append_big_endian(std::string& out, std::uint64_t value, std::size_t num_bytes) {
  for (std::size_t byte = num_bytes; byte-- > 0;) out += static_cast<char>(value >> (8 * byte));
}

inline std::string to_big_endian(std::uint64_t value) {
  std::string bytes;
  append_big_endian(bytes, value, sizeof(value));
  return bytes;
}

/// Requires: 8 bytes at most.
inline std::uint64_t from_big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

}  // namespace kvfence::audit
