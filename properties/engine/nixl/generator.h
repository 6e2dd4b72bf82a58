#pragma once

/// What two engines over NIXL draw: a router, a transport that is eager, lazy or uneven between the
/// ranks, a clock that reaches deadlines.

#include <memory>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::nixl {

std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);

/// A record, ranks and pools of a pair.
Record draw_pair(Choices& choices, Config& config);

struct Generator : engine::Generator {
  /// A valid configuration of 5 to 20 blocks per engine, up to 4 ranks each, and small deadlines.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::nixl
