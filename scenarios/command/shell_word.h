#pragma once

/// Text as one word of a shell's line.

#include <string>
#include <string_view>

namespace kvfence {

/// In single quotes; it may hold any characters.
inline std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char character : text) {
    word += character == '\'' ? std::string("'\\''") : std::string(1, character);
  }
  return word + "'";
}

}  // namespace kvfence
