#pragma once

/// What must hold of an engine with a MultiConnector, whatever any other implementation answers.
/// None of these says what a command answers: that is the reference's to say.

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "contract/engine/engine_target.h"
#include "properties/core/divergence.h"

namespace kvfence::engine::multi {

struct Invariant {
  std::string_view id;
  std::string_view name;  ///< Divergence::oracle
  std::string_view rule;  ///< Divergence::message
};

/// Every invariant: what the command line and the documentation list.
inline constexpr std::array<Invariant, 8> kInvariants = {{
    {"multi.0", "what_is_not_there_is_refused",
     "a command of a connector, an engine or a device that is not there is refused with its code"},
    {"multi.1", "blocks_add_up", "empty, cached and referenced blocks are all blocks of the pool"},
    {"multi.2", "queue_holds_the_unreferenced",
     "the free queue holds exactly the blocks that nobody references, once each"},
    {"multi.3", "tables_are_referenced",
     "a block has at least as many references as places in the requests' tables"},
    {"multi.4", "a_request_has_one_place",
     "an unfinished request stands once, in running, waiting or skipped_waiting"},
    {"multi.5", "slots_add_up", "slots of the CPU cache are free, or hold one block of its lists"},
    {"multi.6", "cpu_blocks_add_up",
     "empty, cached and referenced CPU blocks are all blocks of the simple connector's pool"},
    {"multi.7", "nothing_is_held_at_rest",
     "without requests, transfers and stores that await their report, no connector holds a block "
     "of the GPU's pool"},
}};

/// Watches one implementation. A value: copyable.
class Invariants {
 public:
  explicit Invariants(const EngineSetup& setup) : setup_(setup) {}

  /// Holds one observation against every invariant; the first that is broken, or nothing.
  /// Cost: linear in the blocks, and in the places of all tables.
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step) const;

 private:
  std::optional<Divergence> check_numbers(const Observation& observation) const;
  std::optional<Divergence> check_state(const Observation& observation) const;

  EngineSetup setup_;
};

}  // namespace kvfence::engine::multi
