#pragma once

/// What a suite of kv_cache runs has reached: a green suite in which no window ever slid has shown
/// nothing about windows.

#include "properties/core/goals.h"

namespace kvfence::kv_cache {

GoalSuite goals();

}  // namespace kvfence::kv_cache
