#pragma once

/// What a suite of runs with a SimpleCPUOffloadConnector has reached: a green suite in which no hit
/// was pinned has shown nothing about pins.

#include "properties/core/goals.h"

namespace kvfence::engine::simple {

GoalSuite goals();

}  // namespace kvfence::engine::simple
