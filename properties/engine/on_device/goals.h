#pragma once

/// What a suite of runs has reached: a green suite in which no flushed transfer was under way has
/// shown nothing about reuse.

#include "properties/core/goals.h"

namespace kvfence::engine::on_device {

GoalSuite goals();

}  // namespace kvfence::engine::on_device
