#pragma once

/// What the two halves of the kv_cache invariants share (kv_cache_invariants.cpp and
/// kv_cache_change_invariants.cpp): rules by id, and how a broken one is told.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "contract/core/line.h"
#include "properties/core/difference.h"
#include "properties/core/invariant_values.h"
#include "properties/kv_cache/rules.h"

namespace kvfence::kv_cache::detail {

// The places of kInvariants, so that code names a rule by its id.
enum Rule : std::size_t {
  kK1,
  kK2,
  kK3,
  kK4,
  kK5,
  kK6,
  kK7,
  kK8,
  kK9,
  kK10,
  kK11,
  kK12,
  kK13,
  kK14,
  kK15,
  kK16,
  kK17,
  kK18,
  kK19,
  kK20,
  kK21,
  kK22
};

static_assert(kInvariants.size() == kK22 + 1);

// The overloads of kv_cache would hide those of plain types.
using kv_cache::to_value;
using kvfence::to_value;

using kvfence::detail::contains;
using kvfence::detail::find_table;
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

/// Two sides of one member of the observation.
template <class T>
Divergence broken(Rule rule, std::string_view member, const T& expected, const T& actual,
                  const World& world) {
  return broken_values(rule, member, to_value(expected), to_value(actual), world);
}

inline Divergence broken_mismatch(Rule rule, Mismatch mismatch, const World& world) {
  return broken_values(rule, mismatch.field, std::move(mismatch.expected),
                       std::move(mismatch.actual), world);
}

/// A side that only words describe.
template <class T>
Divergence broken_phrase(Rule rule, std::string_view member, std::string_view expected,
                         const T& actual, const World& world) {
  return broken_values(rule, member, phrase(expected), to_value(actual), world);
}

}  // namespace kvfence::kv_cache::detail
