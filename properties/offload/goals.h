#pragma once

/// What a suite of runs has reached: a green suite in which no store had to evict has shown nothing
/// about eviction.

#include "properties/core/goals.h"

namespace kvfence::offload {

GoalSuite goals();

}  // namespace kvfence::offload
