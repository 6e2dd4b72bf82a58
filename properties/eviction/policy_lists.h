#pragma once

/// Lookups in the lists of a cache policy that an observation shows.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "contract/eviction/eviction_target.h"

namespace kvfence::eviction {

template <class Observation>
bool shows_lists(const Observation& observation) {
  return observation.t1.has_value() && observation.t2.has_value() && observation.b1.has_value() &&
         observation.b2.has_value();
}

/// Null if the list does not have it.
inline const Entry* find_block(const std::vector<Entry>& blocks, std::uint32_t key) {
  const auto at = std::ranges::find(blocks, key, &Entry::key);
  return at == blocks.end() ? nullptr : &*at;
}

/// Null if the block is not held. Requires: the lists are shown.
template <class Observation>
const Entry* find_block(const Observation& shown, std::uint32_t key) {
  const Entry* const block = find_block(*shown.t1, key);
  return block ? block : find_block(*shown.t2, key);
}

/// All keys that the lists show, T1, T2, B1, B2. Requires: they are shown.
template <class Observation>
std::vector<std::uint32_t> all_keys(const Observation& observation) {
  std::vector<std::uint32_t> keys;
  keys.reserve(observation.t1->size() + observation.t2->size() + observation.b1->size() +
               observation.b2->size());
  for (const Entry& block : *observation.t1) keys.push_back(block.key);
  for (const Entry& block : *observation.t2) keys.push_back(block.key);
  keys.insert(keys.end(), observation.b1->begin(), observation.b1->end());
  keys.insert(keys.end(), observation.b2->begin(), observation.b2->end());
  return keys;
}

}  // namespace kvfence::eviction
