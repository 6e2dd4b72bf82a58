#pragma once

/// Situations that a suite of runs with a MultiConnector has to reach.

#include "properties/core/goals.h"

namespace kvfence::engine::multi {

GoalSuite goals();

}  // namespace kvfence::engine::multi
