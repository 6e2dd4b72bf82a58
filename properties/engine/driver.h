#pragma once

/// Drives schedulers, their connectors, and the workers of all ranks with their copies and
/// computation, through the interface that a lockstep uses.
///
/// `update` over scripted copies runs the oldest step on each rank, in the order of the ranks:
/// handle_preemptions, start_load_kv, what the model computes (layer by layer where files are
/// read and written), wait_for_save if the step has tokens, get_finished; then the scheduler gets
/// what was sampled and the ranks' report.
///
/// Codes besides the scheduler's own and those that the commands name. These are checked first:
///   kAlreadyDeclared  add_request, hand_over: the name was used before
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one; in a
///                     pair, not finished_aborted or finished_error: requests end otherwise by what
///                     they sample
///   kNotInConfig      the configuration has no such engine, rank, connector or device
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step, or
///                     gives it another number of tokens than it can sample
/// A request of the other engine of a pair counts as one that is gone.
///
/// When an engine of a pair ends, the other one ends too, and everything between them is dropped: a
/// new pair starts at time 0.
///
/// An engine under a MultiConnector ends where upstream raises, or where upstream has an assertion
/// and the scheduler refuses the report. It ends with kNotLoading if a scripted child reports a
/// request as received that it does not load, or twice on a rank. It ends with kNotFinished if a
/// request is reported as sent while its load is under way: one child held its blocks, another
/// loads into them. Upstream frees the blocks, and asserts after the load that the request exists.

#include <memory>
#include <string>

#include "contract/core/implementation.h"
#include "properties/engine/engine_parts.h"

namespace kvfence {

std::unique_ptr<Implementation> make_engine_driver(std::string name, EngineParts parts);

}  // namespace kvfence
