#pragma once

/// Draws configurations and commands for engines with a MultiConnector over real and scripted
/// connectors: what each real child needs (its room's draws), and what scripted children answer and
/// report.

#include "contract/engine/engine_target.h"
#include "properties/core/choices.h"
#include "properties/engine/generator.h"

namespace kvfence::engine::multi {

class Generator : public engine::Generator {
 public:
  /// A valid configuration: the OffloadingConnector and one or two others, now and then with
  /// scripted ones among them; or scripted ones alone; or a pair over NIXL and one or two others.
  /// In any order.
  static Config draw_config(Choices& choices);

  Generator(const Config& config, Choices& choices);
};

}  // namespace kvfence::engine::multi
