#pragma once

/// What several checks of kv_cache count in each state.

#include <cstdint>
#include <string_view>
#include <unordered_set>

#include "contract/pool/pool_values.h"

namespace kvfence::kv_cache {

/// How many distinct keys blocks have. Most commands cache nothing, so a list that equals the one
/// before is not counted again.
class DistinctKeys {
 public:
  /// keys: by block; empty for none.
  std::uint32_t count(const KeyList& keys) {
    if (keys == counted_) return num_distinct_;
    counted_ = keys;
    std::unordered_set<std::string_view> distinct(keys.begin(), keys.end());
    distinct.erase(std::string_view());
    num_distinct_ = static_cast<std::uint32_t>(distinct.size());
    return num_distinct_;
  }

 private:
  KeyList counted_;
  std::uint32_t num_distinct_ = 0;  ///< of counted_
};

}  // namespace kvfence::kv_cache
