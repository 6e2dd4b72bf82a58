#pragma once

/// Bytes as text, two lower-case hex digits each; and text without the bytes that steer a terminal.

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

/// With control characters as \xNN, except those in `kept`.
inline std::string printable(std::string_view text, std::string_view kept = {}) {
  std::string shown;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    const bool is_control = code < 0x20 || code == 0x7F;
    if (is_control && kept.find(byte) == kept.npos) {
      shown += "\\x" + to_hex({&byte, 1});
    } else {
      shown += byte;
    }
  }
  return shown;
}

}  // namespace kvfence
