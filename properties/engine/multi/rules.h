#pragma once

/// What a MultiConnector's children owe beside each other: their numbers add up. All else that they
/// owe is claimed by their own assemblies, and of the scheduler by the core rules.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"

namespace kvfence::engine::multi {

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 2> kInvariants = {{
    {"multi.1", "slots_add_up", "slots of the CPU cache are free, or hold one block of its lists"},
    {"multi.2", "cpu_blocks_add_up",
     "empty, cached and referenced CPU blocks are all blocks of the simple connector's pool"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step) const;

 private:
  EngineSetup setup_;
};

}  // namespace kvfence::engine::multi
