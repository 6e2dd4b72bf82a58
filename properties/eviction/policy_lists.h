#pragma once

/// What the invariants of both targets with a cache policy ask of the lists that an observation
/// shows.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "contract/eviction/eviction_target.h"
#include "properties/core/divergence.h"
#include "properties/eviction/ledger.h"

namespace kvfence::eviction {

inline std::vector<std::uint32_t> keys_of(const std::vector<Entry>& blocks) {
  std::vector<std::uint32_t> keys;
  for (const Entry& block : blocks) keys.push_back(block.key);
  return keys;
}

template <class Observation>
bool shows_lists(const Observation& observation) {
  return observation.t1.has_value() && observation.t2.has_value() && observation.b1.has_value() &&
         observation.b2.has_value();
}

/// All keys that the lists show, T1, T2, B1, B2. Requires: they are shown.
template <class Observation>
std::vector<std::uint32_t> all_keys(const Observation& observation) {
  std::vector<std::uint32_t> keys = keys_of(*observation.t1);
  for (const Entry& block : *observation.t2) keys.push_back(block.key);
  keys.insert(keys.end(), observation.b1->begin(), observation.b1->end());
  keys.insert(keys.end(), observation.b2->begin(), observation.b2->end());
  return keys;
}

/// A list that differs from the ledger's. Ghosts have no status.
enum class Differs {
  kBlocks,  ///< T1 or T2: other keys, or in another order
  kStatus,  ///< T1 or T2: the same keys, but a slot, readiness or readers
  kGhosts,  ///< B1 or B2
};

/// The first list that an observation shows otherwise, as report(differs, name, expected, actual)
/// makes a divergence of it; blocks come before their status, and both before ghosts. Requires: the
/// lists are shown.
template <class Observation, class Report>
std::optional<Divergence> compare_lists(const Ledger& ledger, const Observation& observation,
                                        Report&& report) {
  const auto blocks = {std::tuple{"t1", &ledger.t1(), &*observation.t1},
                       std::tuple{"t2", &ledger.t2(), &*observation.t2}};
  for (const auto& [name, expected, actual] : blocks) {
    if (keys_of(*expected) != keys_of(*actual)) {
      return report(Differs::kBlocks, name, *expected, *actual);
    }
  }
  for (const auto& [name, expected, actual] : blocks) {
    if (*expected != *actual) return report(Differs::kStatus, name, *expected, *actual);
  }
  if (ledger.b1() != *observation.b1) {
    return report(Differs::kGhosts, "b1", ledger.b1(), *observation.b1);
  }
  if (ledger.b2() != *observation.b2) {
    return report(Differs::kGhosts, "b2", ledger.b2(), *observation.b2);
  }
  return std::nullopt;
}

/// Whether any key stands twice, in one list or in two. Requires: the lists are shown.
template <class Observation>
bool has_a_key_twice(const Observation& observation) {
  std::vector<std::uint32_t> keys = all_keys(observation);
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

}  // namespace kvfence::eviction
