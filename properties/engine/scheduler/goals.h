#pragma once

/// What a suite of scheduler runs has reached: a green suite in which nobody was ever preempted has
/// shown nothing about preemption.

#include "properties/core/goals.h"

namespace kvfence::engine::scheduler {

GoalSuite goals();

}  // namespace kvfence::engine::scheduler
