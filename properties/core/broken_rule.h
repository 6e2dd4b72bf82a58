#pragma once

/// How a rule says that it is broken: what is wrong is thrown, and so leaves the check. RulesFor
/// (typed_checks.h) makes a divergence of it.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/erased.h"
#include "contract/core/line.h"
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

/// What is thrown: the rule, and two sides of one member of the observation.
struct BrokenRule {
  const Invariant& rule;
  detail::Mismatch mismatch;
};

template <class Expected, class Actual>
[[noreturn]] void broken_rule(const Invariant& rule, std::string_view member,
                              const Expected& expected, const Actual& actual) {
  throw BrokenRule{rule, {std::string(member), detail::side(expected), detail::side(actual)}};
}

/// The same for a rule of a room's table, by name:
///
///   constexpr BrokenRuleOf<kInvariants> broken;
///   ... if (actual != expected) broken("numbers_add_up", "num_free", expected, actual);
template <const auto& kTable>
class BrokenRuleOf {
 public:
  using Rule = NamedPlace<kTable>;

  /// For code that checks rules of several tables.
  static constexpr const Invariant* row(Rule rule) { return &kTable[rule.place()]; }

  template <class Expected, class Actual>
  [[noreturn]] void operator()(Rule rule, std::string_view member, const Expected& expected,
                               const Actual& actual) const {
    broken_rule(kTable[rule.place()], member, expected, actual);
  }
  /// Either side may be written in braces.
  template <class T>
  [[noreturn]] void operator()(Rule rule, std::string_view member, const T& expected,
                               const T& actual) const {
    broken_rule(kTable[rule.place()], member, expected, actual);
  }
  [[noreturn]] void operator()(Rule rule, detail::Mismatch mismatch) const {
    throw BrokenRule{kTable[rule.place()], std::move(mismatch)};
  }
  template <class Expected, class Actual>
  void unless_equal(Rule rule, std::string_view member, const Expected& expected,
                    const Actual& actual) const {
    if (!(actual == expected)) (*this)(rule, member, expected, actual);
  }
  /// For a command that may change nothing. before: null if nothing was shown.
  template <class Observation>
  void if_changed(Rule rule, const Observation* before, const Observation& shown) const {
    if (!before) return;
    auto changed =
        detail::changed_state(kTable[rule.place()], declared_of(*before), declared_of(shown));
    if (changed) (*this)(rule, *std::move(changed));
  }
};

}  // namespace kvfence
