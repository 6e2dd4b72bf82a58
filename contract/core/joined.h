#pragma once

/// A list as text: "a, b, c".

#include <functional>
#include <string>
#include <string_view>

namespace kvfence {

/// of: what stands for an element.
template <class Range, class Of = std::identity>
std::string joined(const Range& elements, std::string_view between = ", ", Of of = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& element : elements) {
    if (!is_first) text += between;
    is_first = false;
    text += std::invoke(of, element);
  }
  return text;
}

}  // namespace kvfence
