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

/// As it is, if a shell reads it as one word, or in quotes: for a line that is typed again.
inline std::string shell_argument(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == text.npos;
  return is_plain ? std::string(text) : shell_word(text);
}

}  // namespace kvfence
