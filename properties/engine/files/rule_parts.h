#pragma once

/// What the parts of the invariants share (rules.cpp, plan_rules.cpp, state_rules.cpp): rules by
/// id, and how a broken one is told.

#include <cstddef>
#include <string>
#include <string_view>

#include "properties/core/broken_rule.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/files/rules.h"

namespace kvfence::engine::files::detail {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kY1,
  kY2,
  kY3,
  kY4,
  kY5,
  kY6,
  kY7,
  kY8,
  kY9,
  kY10,
  kY11,
  kY12,
  kY13,
  kY14,
  kY15,
  kY16,
  kY17,
  kY18
};

static_assert(kInvariants.size() == kY18 + 1);

template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual) {
  return broken_rule(kInvariants[rule], member, expected, actual);
}

inline Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                                std::string_view actual) {
  return broken_values(kInvariants[rule], member, kvfence::detail::phrase(expected),
                       kvfence::detail::phrase(actual));
}

/// `file_transfers[3]`
inline std::string element(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

inline bool has_state(const Observation& observation) {
  return observation.requests.has_value() && observation.tables.has_value() &&
         observation.ref_cnts.has_value() && observation.keys.has_value() &&
         observation.free_queue.has_value() && observation.running.has_value() &&
         observation.waiting.has_value() && observation.skipped_waiting.has_value() &&
         observation.filled_requests.has_value() && observation.folders.has_value() &&
         observation.files.has_value() && observation.symbols.has_value();
}

}  // namespace kvfence::engine::files::detail
