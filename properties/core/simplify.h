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

/// Tries 0, then half, down to one less, each from the last accepted value.
/// Cost: logarithmic in value if smaller is simpler throughout.
void lower(std::uint32_t value, const std::function<bool(std::uint32_t)>& attempt);

/// Delta debugging over [0, size): offers to remove chunks [begin, end) of all, half, a quarter ...
/// down to single elements, from the back, because later elements depend on earlier ones.
void remove_chunks(std::size_t size,
                   const std::function<bool(std::size_t begin, std::size_t end)>& attempt);

/// `plain` is the member's default, which may be plainer than a smaller number. Lists get shorter
/// and their numbers smaller; records in lists also lose fields.
void value(const Value& member, const Value& plain,
           const std::function<bool(const Value&)>& attempt);

}  // namespace simplify
}  // namespace kvfence
