#pragma once

/// Candidates for a simpler value, by what the value is. Each function calls attempt(candidate)
/// until none is accepted; attempt says whether the candidate is kept, and a later candidate builds
/// on it.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "contract/core/line.h"

namespace kvfence {

/// The value with each integer in it replaced by edit(integer), in the order of the text.
Value map_integers(const Value& value, const std::function<std::int64_t(std::int64_t)>& edit);

namespace simplify {

/// Tries 0, then half, down to one less, from wherever the last accepted step led.
/// Cost: logarithmic in value if smaller is simpler throughout.
void lower(std::uint32_t value, const std::function<bool(std::uint32_t)>& attempt);

/// Delta debugging over [0, size): offers to remove chunks [begin, end), from the back, of all,
/// half, a quarter ... down to single elements. From the back, because what comes later rests on
/// what came before.
void remove_chunks(std::size_t size,
                   const std::function<bool(std::size_t begin, std::size_t end)>& attempt);

/// `plain` is the member's default: what a reader need not think about, and what may be plainer
/// than a smaller number. Lists get shorter and their numbers smaller; lists of records lose
/// fields besides.
void value(const Value& member, const Value& plain,
           const std::function<bool(const Value&)>& attempt);

}  // namespace simplify
}  // namespace kvfence
