#pragma once

/// Puts schedulers, their connectors, and the workers of all ranks with what copies and computes
/// there through the interface that a lockstep drives.
///
/// `update` over scripted copies runs the oldest step on each rank, in the order of the ranks:
/// handle_preemptions, start_load_kv, what the model computes (layer by layer where files are
/// read and written), wait_for_save if the step has tokens, get_finished; then the scheduler gets
/// what was sampled and the ranks' report.
///
/// Besides the scheduler's own codes and those that the commands name, and looked for before them:
///   kAlreadyDeclared  add_request, hand_over: the name was used before
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one; of a
///                     pair, not finished_aborted or finished_error: ends of their own come of what
///                     requests sample
///   kNotInConfig      a command of what is not there: an engine, a rank, a connector, a device
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step, or
///                     gives it another number of tokens than it can sample
/// A request of the other engine of a pair is as one that is gone.
///
/// Where an engine of a pair ends, the other one ends as well, and what is between them is
/// forgotten: another pair starts, at time 0.
///
/// An engine under a MultiConnector ends where upstream raises, or asserts what the scheduler
/// refuses of a report; with kNotLoading where a scripted child reports as received what it does
/// not load, or twice on a rank; and with kNotFinished where a request is reported as sent whose
/// load is under way: one child held its blocks, another loads into them. Upstream frees them, and
/// asserts when the load is over that the request is there.

#include <memory>
#include <string>

#include "contract/core/implementation.h"
#include "properties/engine/engine_parts.h"

namespace kvfence {

std::unique_ptr<Implementation> make_engine_driver(std::string name, EngineParts parts);

}  // namespace kvfence
