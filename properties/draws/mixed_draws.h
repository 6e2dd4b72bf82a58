#pragma once

/// Configurations that are mixed of two, so that whatever the contract takes together comes
/// together: a room draws configurations that make it busy, and by itself would never draw some
/// settings beside others.

#include <functional>
#include <vector>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// Draws as the room does. Of one in so many, members and parts of them are those of a second one,
/// and rules are overridden, as far as the contract takes it, but for what two factors never have
/// together.
std::function<Config(Choices& choices)> mixed_draws(const Target& target,
                                                    Config (*draw)(Choices& choices),
                                                    std::vector<NeverTogether> never_together);

}  // namespace kvfence
