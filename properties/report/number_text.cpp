#include "properties/report/number_text.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace kvfence {

std::string with_thousands(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string number_text(double number) {
  constexpr double kWholeFrom = 100;
  constexpr double kWholeMax = 1e18;
  if (number >= kWholeFrom && number < kWholeMax) {
    return with_thousands(static_cast<std::uint64_t>(std::llround(number)));
  }
  std::array<char, 400> buffer;
  const int length = std::snprintf(buffer.data(), buffer.size(), "%.4f", number);
  std::string text(buffer.data(), static_cast<std::size_t>(length));
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace kvfence
