#pragma once

/// What a suite of runs with a synchronous connector has reached: a green suite in which no engine
/// ended at a file has shown nothing about that.

#include "properties/core/goals.h"

namespace kvfence::engine::files {

GoalSuite goals();

}  // namespace kvfence::engine::files
