#pragma once

/// What a suite of runs has reached: a green suite in which no flushed transfer was under way has
/// shown nothing about reuse.

#include "properties/core/goals.h"

namespace kvfence::engine::on_device {

/// With the OffloadingConnector.
GoalSuite goals();
/// With no connector, the simple one, or both under a MultiConnector; or a pair over NIXL.
GoalSuite goals_of_others();

}  // namespace kvfence::engine::on_device
