#pragma once

/// The number of different keys, which the rules of pools compare when keys have changed.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "contract/pool/pool_values.h"

namespace kvfence {

/// How many different keys blocks have. keys: by block; empty for none. scratch: its storage is
/// kept. Cost: a sort.
inline std::uint32_t num_distinct(const KeyList& keys, std::vector<std::string_view>& scratch) {
  scratch.clear();
  for (const BlockHash& key : keys) {
    if (!key.empty()) scratch.push_back(key);
  }
  std::ranges::sort(scratch);
  const auto end = std::unique(scratch.begin(), scratch.end());
  return static_cast<std::uint32_t>(end - scratch.begin());
}

}  // namespace kvfence
