#pragma once

/// The checks of target engine: those of its assemblies. Each assembly has its own room.

#include "contract/engine/engine_config.h"
#include "properties/core/checks.h"

namespace kvfence {

/// Draws from all assemblies; the configuration of a run decides which rules check it. Goals are
/// named `assembly.goal`; they count runs of that assembly.
const Checks& engine_checks();

/// The checks of one assembly only. Its goals have no prefix.
const Checks& checks_of(engine::Assembly assembly);

/// The same without the core rules: only those that its room adds.
const Checks& room_checks(engine::Assembly assembly);

}  // namespace kvfence
