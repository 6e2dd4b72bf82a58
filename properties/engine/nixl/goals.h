#pragma once

/// What a suite of runs of a pair has reached: a green suite in which no deadline ended a read has
/// shown nothing about that.

#include "properties/core/goals.h"

namespace kvfence::engine::nixl {

GoalSuite goals();

}  // namespace kvfence::engine::nixl
