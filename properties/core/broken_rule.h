#pragma once

/// A broken invariant as a divergence: which rule, and two sides of one member of the observation.

#include <string>
#include <string_view>
#include <utility>

#include "contract/core/declare.h"
#include "contract/core/line.h"
#include "properties/core/difference.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// The invariant's name becomes the oracle, its rule the message.
inline Divergence broken_values(const Invariant& invariant, std::string_view member, Value expected,
                                Value actual) {
  Divergence divergence = detail::locate_difference(std::string(member), std::move(expected),
                                                    std::move(actual), /*symbol_of=*/nullptr);
  divergence.oracle = invariant.name;
  divergence.message = invariant.rule;
  return divergence;
}

template <class T>
Divergence broken_rule(const Invariant& invariant, std::string_view member, const T& expected,
                       const T& actual) {
  return broken_values(invariant, member, to_value(expected), to_value(actual));
}

}  // namespace kvfence
