#pragma once

/// What a suite of runs has reached: a green suite that never evicted a block has shown nothing
/// about eviction.

#include "properties/core/goals.h"

namespace kvfence::block_pool {

GoalSuite goals();

}  // namespace kvfence::block_pool
