#pragma once

/// Taking in what a step produced: the rules of update_from_output in
/// contract/scheduler/scheduler.h.

#include "contract/core/status.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/instrumentation.h"
#include "optimized/scheduler/scheduler_state.h"

namespace kvfence::optimized {

/// Whether update_from_output has to be refused, and why. Changes nothing but scratch storage.
template <class Instrumentation>
ErrorCode check_output(SchedulerState<Instrumentation>& state,
                       const SchedulerOutput& scheduler_output,
                       const ModelRunnerOutput& model_runner_output);

/// Overwrites out. Requires: check_output finds nothing.
/// Cost: O(requests of the step, their tokens and the blocks of those that end); with invalid
/// blocks, O(blocks of loading and running requests).
template <class Instrumentation>
void take_output(SchedulerState<Instrumentation>& state,
                 const ModelRunnerOutput& model_runner_output, EngineCoreOutputs& out);

extern template ErrorCode check_output(SchedulerState<NoInstrumentation>&, const SchedulerOutput&,
                                       const ModelRunnerOutput&);
extern template ErrorCode check_output(SchedulerState<CountingInstrumentation>&,
                                       const SchedulerOutput&, const ModelRunnerOutput&);
extern template ErrorCode check_output(SchedulerState<PlantedInstrumentation>&,
                                       const SchedulerOutput&, const ModelRunnerOutput&);
extern template void take_output(SchedulerState<NoInstrumentation>&, const ModelRunnerOutput&,
                                 EngineCoreOutputs&);
extern template void take_output(SchedulerState<CountingInstrumentation>&, const ModelRunnerOutput&,
                                 EngineCoreOutputs&);
extern template void take_output(SchedulerState<PlantedInstrumentation>&, const ModelRunnerOutput&,
                                 EngineCoreOutputs&);

}  // namespace kvfence::optimized
