#pragma once

/// What a scheduler alone draws, or under the scripted connector: every setting of the scheduler,
/// drafts, grammars, stop tokens, LoRA adapters; loads that come late or fail, blocks that are
/// held, each by what commands say.

#include <memory>

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::scheduler {

/// Of the scheduler itself.
std::unique_ptr<Draws> make_draws(const Config& config, Choices& choices);
/// Of the scripted connector.
std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices);

struct Generator : engine::Generator {
  /// A valid configuration of Assembly::kScheduler: 5 to 24 blocks, the groups that
  /// kv_cache::Generator draws and often a single one of full attention, every setting of the
  /// scheduler.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::scheduler
