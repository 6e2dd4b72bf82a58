#pragma once

/// The checks of target engine: those of its assemblies, each of which has a room of its own.

#include <string_view>

#include "contract/engine/engine_config.h"
#include "properties/core/checks.h"

namespace kvfence {

/// Draws from all assemblies; what a run is held against follows from its configuration. Goals are
/// named `assembly.goal`, and count where a run of the assembly was made.
const Checks& engine_checks();

/// The checks of one assembly alone, whose goals have no prefix.
const Checks& checks_of(engine::Assembly assembly);

/// The same with no rules but those that its room adds to the core rules.
const Checks& room_checks(engine::Assembly assembly);

}  // namespace kvfence
