#pragma once

/// What scripted children of a MultiConnector answer and report.

#include <memory>

#include "properties/engine/generator.h"

namespace kvfence::engine::multi {

/// Requires: there are some.
std::unique_ptr<Draws> make_scripted_draws(const Config& config, Choices& choices, EngineRole role);

}  // namespace kvfence::engine::multi
