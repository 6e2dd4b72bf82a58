#pragma once

/// What a suite of runs has reached: a green suite in which no store waited for a forward has shown
/// nothing about order.

#include "properties/core/goals.h"

namespace kvfence::worker {

GoalSuite goals();

}  // namespace kvfence::worker
