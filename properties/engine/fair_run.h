#pragma once

/// A fair run: no command asks for anything new, takes anything away or fails. Steps are planned
/// and come back, and all other work under way ends with success.

#include <cstdint>

#include "contract/engine/engine_target.h"

namespace kvfence::engine {

/// Whether an accepted command with this observation continues a fair run.
bool goes_on(const Command& command, const Observation& shown);

/// How often the command makes connectors and tiers put requests off.
std::uint64_t num_times_put_off(const Command& command);

/// Whether copies, reads, notices or tiers' jobs of an engine have not been reported yet.
bool is_anything_under_way(const Observation& shown, EngineRole role);

}  // namespace kvfence::engine
