#pragma once

/// Taking in what a step produced: the rules of update_from_output in
/// contract/scheduler/scheduler.h.

#include "contract/core/status.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/scheduler/scheduler_state.h"

namespace kvfence::optimized {

/// Whether update_from_output has to be refused, and why. Changes nothing but scratch storage.
ErrorCode check_output(SchedulerState& state, const SchedulerOutput& scheduler_output,
                       const ModelRunnerOutput& model_runner_output);

/// Overwrites out. Requires: check_output finds nothing.
/// Cost: O(requests of the step, their tokens and the blocks of those that end); with invalid
/// blocks, O(blocks of loading and running requests).
void take_output(SchedulerState& state, const ModelRunnerOutput& model_runner_output,
                 EngineCoreOutputs& out);

}  // namespace kvfence::optimized
