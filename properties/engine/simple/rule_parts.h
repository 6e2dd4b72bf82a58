#pragma once

/// What the parts of the invariants share (rules.cpp, plan_rules.cpp, state_rules.cpp): rules by
/// id, how a broken one is told, and questions to observations.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/simple/rules.h"

namespace kvfence::engine::simple::detail {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kS1,
  kS2,
  kS3,
  kS4,
  kS5,
  kS6,
  kS7,
  kS8,
  kS9,
  kS10,
  kS11,
  kS12,
  kS13,
  kS14,
  kS15,
  kS16,
  kS17,
  kS18,
  kS19,
  kS20,
  kS21,
  kS22,
  kS23,
  kS24
};

static_assert(kInvariants.size() == kS24 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

inline Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                                std::string_view actual) {
  return broken_values(kInvariants[rule], member, kvfence::detail::phrase(expected),
                       kvfence::detail::phrase(actual));
}

/// `cpu_keys[3]`
inline std::string element(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

inline bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.tables.has_value() &&
         observation.ref_cnts.has_value() && observation.keys.has_value() &&
         observation.free_queue.has_value() && observation.running.has_value() &&
         observation.waiting.has_value() && observation.skipped_waiting.has_value() &&
         observation.copies.has_value() && observation.pins.has_value() &&
         observation.cpu_free_queue.has_value() && observation.cpu_ref_cnts.has_value() &&
         observation.cpu_keys.has_value();
}

inline const RequestState* find_state(const Observation& observation, std::string_view name) {
  for (const RequestState& state : *observation.requests) {
    if (state.id == name) return &state;
  }
  return nullptr;
}

/// Whether the CPU pool has the key. Requires: the state.
inline bool has_cpu_key(const Observation& observation, const std::string& key) {
  return std::any_of(observation.cpu_keys->begin(), observation.cpu_keys->end(),
                     [&](const BlockHash& each) { return each == key; });
}

}  // namespace kvfence::engine::simple::detail
