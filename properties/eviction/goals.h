#pragma once

/// What a suite of runs has reached: a green suite in which the target of ARC never moved has shown
/// nothing about ARC.

#include "properties/core/goals.h"

namespace kvfence::eviction {

GoalSuite goals();

}  // namespace kvfence::eviction
