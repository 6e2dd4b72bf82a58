#pragma once

/// What engines with a synchronous connector draw: other engines that write, lose and damage files
/// of the same prompts, whole ones and parts; file operations that fail.

#include <memory>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::files {

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);

struct Generator : engine::Generator {
  /// A valid configuration of 5 to 20 GPU blocks, 1 to 3 ranks of 1 or 2 layers, of either
  /// connector and profile. Several groups: DecodeBenchConnector, and nobody reads the GPU's cache.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::files
