#pragma once

/// RepeatFinder: says whether a list names a key twice.
///
/// An open-addressing table of positions in the list. Only slots with the number of this search
/// count, so that a new search clears nothing; storage is kept.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "contract/core/table_secret.h"
#include "contract/eviction/cache_policy.h"
#include "optimized/base/keyed_hash.h"

namespace kvfence::optimized {

class RepeatFinder {
 public:
  explicit RepeatFinder(const TableSecret& secret = {}) : hash_(secret) {}

  /// Cost: O(keys) expected.
  bool has_repeat(std::span<const OffloadKeyView> keys) {
    if (keys.size() < 2) return false;
    begin(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto tag = static_cast<std::uint32_t>(hash_(keys[i]));
      std::size_t at = tag & (slots_.size() - 1);
      for (; slots_[at].search == search_; at = (at + 1) & (slots_.size() - 1)) {
        if (slots_[at].tag == tag && keys[slots_[at].index] == keys[i]) return true;
      }
      slots_[at] = {.search = search_, .tag = tag, .index = i};
    }
    return false;
  }

 private:
  struct Slot {
    std::uint32_t search = 0;
    std::uint32_t tag = 0;
    std::size_t index = 0;
  };

  void begin(std::size_t num_keys) {
    const bool is_last = search_ == std::numeric_limits<std::uint32_t>::max();
    if (slots_.size() < 2 * num_keys || is_last) {
      slots_.assign(std::max(slots_.size(), std::bit_ceil(2 * num_keys)), Slot{});
      search_ = 0;
    }
    ++search_;
  }

  KeyedHash hash_;
  std::vector<Slot> slots_;  ///< a power of two of them, at most half in use
  std::uint32_t search_ = 0;
};

}  // namespace kvfence::optimized
