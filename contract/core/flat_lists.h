#pragma once

/// Many short lists back to back, refilled every step without an allocation.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"

namespace kvfence {

/// List k is elements ends[k - 1] .. ends[k] - 1. Filled from the front: push_back adds to the list
/// under way, end_list closes it.
template <class T>
class FlatLists {
 public:
  void clear() {
    elements_.clear();
    ends_.clear();
  }

  void push_back(const T& element) { elements_.push_back(element); }
  void append(std::span<const T> elements) {
    elements_.insert(elements_.end(), elements.begin(), elements.end());
  }
  void end_list() { ends_.push_back(static_cast<std::uint32_t>(elements_.size())); }

  /// Number of closed lists.
  std::size_t size() const { return ends_.size(); }

  /// Requires: k < size()
  std::span<const T> operator[](std::size_t k) const {
    const std::uint32_t begin = k == 0 ? 0 : ends_[k - 1];
    return std::span<const T>(elements_).subspan(begin, ends_[k] - begin);
  }

  void add_to(StateHash& hash) const { hash.add_all(elements_, ends_); }
  friend bool operator==(const FlatLists&, const FlatLists&) = default;

 private:
  std::vector<T> elements_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace kvfence
