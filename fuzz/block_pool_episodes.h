#pragma once

/// Fuzz inputs as episodes of the block_pool target, in lockstep against the reference.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "contract/block_pool_target.h"
#include "contract/implementation.h"
#include "contract/scenario.h"
#include "properties/block_pool_checks.h"
#include "properties/divergence.h"

namespace kvfence::fuzz {

/// A divergence and what leads to it, as one scenario: the report stands in its comments, so the
/// text of a crash is a `.kvs` file.
std::string to_scenario_text(const Divergence& divergence, Scenario<BlockPoolTarget> scenario);

/// Runs inputs one by one and counts what they reached. Nothing else is kept between two of them,
/// so an input behaves alike wherever it stands, and libFuzzer sees each give back its memory.
class BlockPoolEpisodes {
 public:
  using MakeActual = std::unique_ptr<Implementation<BlockPoolTarget>> (*)();

  /// Bounds the time of one input; the bytes end most episodes earlier.
  static constexpr std::size_t kCommandsMax = 200;

  explicit BlockPoolEpisodes(MakeActual make_actual) : make_actual_(make_actual) {}

  /// Runs the episode that the bytes spell. At a divergence it prints to_scenario_text to stderr
  /// and aborts.
  void run(std::span<const std::uint8_t> bytes);

  const block_pool::Reach& reach() const { return reach_; }
  std::uint64_t num_commands() const { return num_commands_; }

 private:
  MakeActual make_actual_;
  block_pool::Reach reach_;
  std::uint64_t num_commands_ = 0;
};

}  // namespace kvfence::fuzz
