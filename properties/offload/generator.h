#pragma once

/// Draws configurations and commands for the offload target: few slots, runs of keys as requests
/// have them, swarm weights, arguments that are mostly sensible in the state that the manager shows
/// and now and then are not.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/offload/offload_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"
#include "properties/eviction/keys.h"

namespace kvfence::offload {

class Generator {
 public:
  /// A small configuration: 1 to 10 slots, both policies, with and without a filter, every profile.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a manager shows.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen) const;
  Command draw(Choices& choices, std::size_t chosen);
  std::vector<std::uint32_t> draw_run(Choices& choices) const;
  std::vector<std::uint32_t> draw_keys_to_store(Choices& choices) const;

  Rules rules_;
  bool has_filter_;
  VerbSwarm<Command> swarm_;
  eviction::DrawnKeys keys_;
  std::vector<std::uint32_t> looked_up_;  ///< lately, the last at the end
};

}  // namespace kvfence::offload
