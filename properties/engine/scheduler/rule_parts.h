#pragma once

/// What the parts of the scheduler invariants share (rules.cpp, step_rules.cpp, state_rules.cpp):
/// rules by id, and how a broken one is told.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/line.h"
#include "properties/core/difference.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/scheduler/rules.h"

namespace kvfence::engine::scheduler::detail {

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
  kS24,
  kS25,
  kS26,
  kS27,
  kS28,
  kS29,
  kS30,
  kS31,
  kS32
};

static_assert(kInvariants.size() == kS32 + 1);

// The overloads of a namespace would hide those of plain types.
using kv_cache::to_value;
using kvfence::to_value;

using kvfence::detail::contains;
using kvfence::detail::is_key_of;
using kvfence::detail::key_value;
using kvfence::detail::Mismatch;
using kvfence::detail::phrase;
using kvfence::detail::place_name;

inline Divergence broken_values(Rule rule, std::string_view member, Value expected, Value actual,
                                const World& world) {
  Divergence divergence = kvfence::detail::locate_difference(
      std::string(member), std::move(expected), std::move(actual),
      [&](std::string_view bytes) { return world.requests().symbol_of(bytes); });
  divergence.oracle = kInvariants[rule].name;
  divergence.message = kInvariants[rule].rule;
  return divergence;
}

inline Divergence broken_mismatch(Rule rule, Mismatch mismatch, const World& world) {
  return broken_values(rule, mismatch.field, std::move(mismatch.expected),
                       std::move(mismatch.actual), world);
}

/// Two sides of one member of the observation.
template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual,
                  const World& world) {
  return broken_values(rule, member, to_value(expected), to_value(actual), world);
}

/// A side that only words describe.
template <class T>
Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                         const T& actual, const World& world) {
  return broken_values(rule, member, phrase(expected), to_value(actual), world);
}

/// `scheduled[2].num_tokens`: a member of an element of a list.
inline std::string member_of(std::string_view list, std::size_t index, std::string_view member) {
  return std::string(list) + "[" + std::to_string(index) + "]." + std::string(member);
}

}  // namespace kvfence::engine::scheduler::detail
