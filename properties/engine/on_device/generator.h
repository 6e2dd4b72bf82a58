#pragma once

/// What engines over devices draw: ranks and streams that are eager or lazy, transfers that fail,
/// steps that are executed and polled in any order.

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::on_device {

/// With the OffloadingConnector.
struct Generator : engine::Generator {
  /// A valid configuration of 5 to 20 GPU blocks and 1 to 15 slots.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

/// With no connector, the simple one, or both under a MultiConnector; or a pair over NIXL.
struct GeneratorOfOthers : engine::Generator {
  static Config draw_config(Choices& choices);

  GeneratorOfOthers(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::on_device
