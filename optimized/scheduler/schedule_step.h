#pragma once

/// Planning a step: the rules of schedule in contract/scheduler/scheduler.h.

#include "contract/scheduler/scheduler.h"
#include "optimized/scheduler/scheduler_state.h"

namespace kvfence::optimized {

/// Overwrites out. Requires: fewer than max_concurrent_batches steps in flight.
/// Cost: O(requests scheduled, preempted, admitted or asked again, and their new blocks).
void schedule_step(SchedulerState& state, SchedulerOutput& out);

}  // namespace kvfence::optimized
