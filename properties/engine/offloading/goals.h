#pragma once

/// What a suite of runs of engines with an OffloadingConnector has reached: a green suite in which
/// no block was used again while it was copied has shown nothing about that.

#include "properties/core/goals.h"

namespace kvfence::engine::offloading {

GoalSuite goals();

}  // namespace kvfence::engine::offloading
