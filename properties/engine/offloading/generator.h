#pragma once

/// What engines with an OffloadingConnector over scripted copies draw: few slots of CPU memory,
/// tiers below them in a share of the episodes, copy engines and tiers that are eager, lazy or
/// uneven, files that are damaged.

#include <memory>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::offloading {

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices,
                                  EngineRole role = EngineRole::kProducer);

struct Generator : engine::Generator {
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 9 slots. Groups, block sizes and
  /// failures are those with which upstream does not trip over its own assertions: windowed groups
  /// have one block size, which divides that of the others; with several groups nobody reads the
  /// GPU's cache.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::offloading
