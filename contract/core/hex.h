#pragma once

/// Bytes as text: two lower-case hex digits each.

#include <string>
#include <string_view>

namespace kvfence {

inline void append_hex(std::string& out, char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  out += kDigits[value >> 4];
  out += kDigits[value & 15];
}

inline std::string to_hex(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  for (char byte : bytes) append_hex(digits, byte);
  return digits;
}

}  // namespace kvfence
