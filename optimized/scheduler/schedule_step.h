#pragma once

/// Planning a step: the rules of schedule in contract/scheduler/scheduler.h.

#include "contract/scheduler/scheduler.h"
#include "optimized/base/instrumentation.h"
#include "optimized/scheduler/scheduler_state.h"

namespace kvfence::optimized {

/// Overwrites out. Requires: fewer than max_concurrent_batches steps in flight.
/// Cost: O(requests scheduled, preempted, admitted or asked again, and their new blocks).
template <class Instrumentation>
void schedule_step(SchedulerState<Instrumentation>& state, SchedulerOutput& out);

extern template void schedule_step(SchedulerState<NoInstrumentation>&, SchedulerOutput&);
extern template void schedule_step(SchedulerState<CountingInstrumentation>&, SchedulerOutput&);
extern template void schedule_step(SchedulerState<PlantedInstrumentation>&, SchedulerOutput&);

}  // namespace kvfence::optimized
