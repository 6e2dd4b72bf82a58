#pragma once

/// Questions to the lists of a cache policy that an observation shows.

#include <cstdint>
#include <vector>

#include "contract/eviction/eviction_target.h"

namespace kvfence::eviction {

template <class Observation>
bool shows_lists(const Observation& observation) {
  return observation.t1.has_value() && observation.t2.has_value() && observation.b1.has_value() &&
         observation.b2.has_value();
}

/// All keys that the lists show, T1, T2, B1, B2. Requires: they are shown.
template <class Observation>
std::vector<std::uint32_t> all_keys(const Observation& observation) {
  std::vector<std::uint32_t> keys;
  for (const Entry& block : *observation.t1) keys.push_back(block.key);
  for (const Entry& block : *observation.t2) keys.push_back(block.key);
  keys.insert(keys.end(), observation.b1->begin(), observation.b1->end());
  keys.insert(keys.end(), observation.b2->begin(), observation.b2->end());
  return keys;
}

}  // namespace kvfence::eviction
