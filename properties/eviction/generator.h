#pragma once

/// Draws configurations and commands for the eviction target: tiny capacities, hot keys, swarm
/// weights, arguments that are mostly sensible in the state that the policy shows and now and then
/// are not.

#include <cstddef>
#include <cstdint>

#include "contract/eviction/eviction_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/eviction/keys.h"

namespace kvfence::eviction {

class Generator {
 public:
  /// A small configuration: 1 to 10 blocks, both policies, every profile.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a policy shows.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen) const;
  Command draw(Choices& choices, std::size_t chosen);

  std::uint32_t capacity_;
  VerbSwarm<Command> swarm_;
  DrawnKeys keys_;
};

}  // namespace kvfence::eviction
