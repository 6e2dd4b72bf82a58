#pragma once

/// What a suite of runs has reached: a green suite in which no promotion failed has shown nothing
/// about failed promotions.

#include "properties/core/goals.h"

namespace kvfence::tiering {

GoalSuite goals();

}  // namespace kvfence::tiering
