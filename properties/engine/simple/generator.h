#pragma once

/// What engines with a SimpleCPUOffloadConnector draw: two small block pools that run out all the
/// time, copy engines that are eager, lazy or uneven between the ranks and directions.

#include <memory>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::simple {

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices,
                                  EngineRole role = EngineRole::kProducer);

struct Generator : engine::Generator {
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 12 CPU blocks, eager or lazy, with each
  /// profile's rules and mixtures of them. With several groups nobody reads the GPU's cache.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::simple
