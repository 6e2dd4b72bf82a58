#pragma once

/// Draws configurations and commands for engines with a MultiConnector over real connectors: what
/// an engine with the OffloadingConnector sees, and between that the copies of a simple connector
/// and what happens to files.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/offloading/generator.h"

namespace kvfence::engine::multi {

class Generator {
 public:
  /// A valid configuration of the OffloadingConnector and one or two others, in any order.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);

  /// The next command, given what was answered to the one before. The caller runs every command
  /// that is drawn, and the world has taken it in.
  Command next(Choices& choices, const Observation& now, const World& world);

 private:
  std::optional<Command> draw_beside(Choices& choices, const World& world) const;
  std::optional<Command> draw_files(Choices& choices, const World& world) const;

  Config config_;
  offloading::Generator offloading_;
  bool has_simple_ = false;
  bool keeps_files_ = false;
  std::uint32_t beside_in_ = 3;  ///< before one command of so many something happens beside it
  std::uint32_t fault_in_ = 24;  ///< of what happens to files one in so many is a fault
  std::optional<Command> queued_;
};

}  // namespace kvfence::engine::multi
