#pragma once

/// Draws configurations and commands for the block_pool target: tiny universes, hot names, swarm
/// weights, arguments that are mostly sensible in the state that the pool shows and now and then
/// are not.

#include <vector>

#include "contract/pool/block_pool_target.h"
#include "properties/core/choices.h"
#include "properties/core/swarm.h"

namespace kvfence::block_pool {

class Generator {
 public:
  /// A small configuration: 1 to 12 blocks, every switch, every profile.
  static Config draw_config(Choices& choices);

  /// Draws the weights of this episode: some commands often, some hardly ever, some not at all.
  Generator(const Config& config, Choices& choices);

  /// The next command, given what a pool shows and which requests there are.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  /// What a command in the making has drawn so far, and what it may draw from.
  class Draft;

  /// Whether that command would find nothing to work on.
  bool is_idle(std::size_t chosen, const Observation& now, const World& world) const;

  Config config_;
  Rules rules_;
  VerbSwarm<Command> swarm_;
  std::vector<BlockId> held_;    ///< referenced blocks
  std::vector<BlockId> bare_;    ///< referenced blocks without a key
  std::vector<BlockId> cached_;  ///< queued blocks with a key
  std::vector<BlockId> keyed_;   ///< all blocks with a key
};

}  // namespace kvfence::block_pool
