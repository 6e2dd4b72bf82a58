#pragma once

/// Configurations mixed from two, so that every combination that the contract accepts is drawn. A
/// room draws configurations that make it busy, and would never draw some combinations by itself.

#include <functional>
#include <vector>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// Draws as the room does. Of one in so many, members and parts of members come from a second one,
/// and rules are overridden, as far as the contract accepts it. Pairs in never_together are not
/// mixed.
std::function<Config(Choices& choices)> mixed_draws(const Target& target,
                                                    Config (*draw)(Choices& choices),
                                                    std::vector<NeverTogether> never_together);

}  // namespace kvfence
