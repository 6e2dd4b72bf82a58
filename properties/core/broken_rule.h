#pragma once

/// A broken invariant as a divergence: which rule, and two sides of one member of the observation.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/erased.h"
#include "contract/core/line.h"
#include "properties/core/difference.h"
#include "properties/core/divergence.h"
#include "properties/core/named_place.h"

namespace kvfence {
namespace detail {

/// A wrong member of an observation: what it should be and what it is.
struct Mismatch {
  std::string field;
  Value expected;
  Value actual;
};

/// The first state member that has changed, among those that the rule needs and both observations
/// show. Requires: both are of one struct.
inline std::optional<Mismatch> changed_state(const Invariant& rule, const DeclaredObject& before,
                                             const DeclaredObject& shown) {
  for (std::size_t at = 0; at < before.size(); ++at) {
    const MemberRef was = before[at];
    const MemberRef is = shown[at];
    if (was.domain() != Domain::kState || !was.is_present() || !is.is_present()) continue;
    const std::string_view name = was.declaration().name;
    if (was.equals(is) || !is_needed(rule.needs, name)) continue;
    return Mismatch{std::string(name), was.value(), is.value()};
  }
  return std::nullopt;
}

// One side of what is broken: a value, words, or a member of an observation.
inline Value side(Value value) { return value; }
inline Value side(std::string_view words) { return to_value(std::string(words)); }
template <class T>
requires(!std::is_convertible_v<const T&, std::string_view> && !std::is_same_v<T, Value>) Value
    side(const T& member) {
  return to_value(member);
}

}  // namespace detail

/// The invariant's name becomes the oracle, its rule the message.
inline Divergence broken_values(const Invariant& invariant, std::string_view member, Value expected,
                                Value actual, const SymbolOf& symbol_of = nullptr) {
  Divergence divergence = detail::locate_difference(std::string(member), std::move(expected),
                                                    std::move(actual), symbol_of);
  divergence.oracle = invariant.name;
  divergence.message = invariant.rule;
  return divergence;
}

template <class Expected, class Actual>
Divergence broken_rule(const Invariant& invariant, std::string_view member,
                       const Expected& expected, const Actual& actual,
                       const SymbolOf& symbol_of = nullptr) {
  return broken_values(invariant, member, detail::side(expected), detail::side(actual), symbol_of);
}

/// The same for a rule of a room's table, by name:
///
///   constexpr BrokenRuleOf<kInvariants> broken;
///   ... return broken("numbers_add_up", "num_free", expected, actual);
///
/// With a world, hashes of requests are shown as symbols.
template <const auto& kTable>
class BrokenRuleOf {
 public:
  using Rule = NamedPlace<kTable>;

  template <class Expected, class Actual>
  Divergence operator()(Rule rule, std::string_view member, const Expected& expected,
                        const Actual& actual) const {
    return broken_rule(kTable[rule.place()], member, expected, actual);
  }
  /// Either side may be written in braces.
  template <class T>
  Divergence operator()(Rule rule, std::string_view member, const T& expected,
                        const T& actual) const {
    return broken_rule(kTable[rule.place()], member, expected, actual);
  }
  template <class Expected, class Actual, class World>
  Divergence operator()(Rule rule, std::string_view member, const Expected& expected,
                        const Actual& actual, const World& world) const {
    return broken_rule(kTable[rule.place()], member, expected, actual,
                       [&](std::string_view bytes) { return world.requests().symbol_of(bytes); });
  }
  Divergence operator()(Rule rule, const detail::Mismatch& mismatch, const auto&... world) const {
    return (*this)(rule, mismatch.field, mismatch.expected, mismatch.actual, world...);
  }
  /// For a command that may change nothing. before: null if nothing was shown.
  template <class Observation>
  std::optional<Divergence> if_changed(Rule rule, const Observation* before,
                                       const Observation& shown, const auto&... world) const {
    if (!before) return std::nullopt;
    const auto changed =
        detail::changed_state(kTable[rule.place()], declared_of(*before), declared_of(shown));
    if (!changed) return std::nullopt;
    return (*this)(rule, *changed, world...);
  }
};

}  // namespace kvfence
