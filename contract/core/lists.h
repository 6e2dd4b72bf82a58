#pragma once

/// Lists that are used as sets.

#include <algorithm>
#include <functional>

namespace kvfence {

/// std::ranges::contains of C++23.
template <class Projection = std::identity>
bool contains(const auto& list, const auto& element, Projection projection = {}) {
  return std::ranges::find(list, element, projection) != std::ranges::end(list);
}

/// Sorts a list, and keeps one of equal elements.
void keep_each_once(auto& list) {
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace kvfence
