#include "properties/worker_reach.h"

#include <algorithm>
#include <variant>

namespace kvfence::worker {

void Reach::start(const Config& config) {
  block_size_factor_ = config.block_size_factor;
  idle_streams_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  const bool is_met = before.next_fault != "none" && after.next_fault == "none" &&
                      !std::holds_alternative<FailNext>(command);
  add(Reached::kCopyFailed, is_met && before.next_fault == "copy");
  add(Reached::kWaitFailed, is_met && before.next_fault == "wait");
  add(Reached::kRecordFailed, is_met && before.next_fault == "record");
  add(Reached::kEndDenied, is_met && before.next_fault == "late");
  if (!std::holds_alternative<Advance>(command)) idle_streams_.clear();
  if (const auto* submitted = std::get_if<TransferAsync>(&command)) {
    add(Reached::kTransferOfNothing, submitted->gpu_blocks.empty());
    add(Reached::kFirstBlockSkipped,
        !submitted->gpu_blocks.empty() && submitted->block_index % block_size_factor_ != 0);
  } else if (const auto* advance = std::get_if<Advance>(&command)) {
    const bool was_idle = std::find(idle_streams_.begin(), idle_streams_.end(), advance->stream) !=
                          idle_streams_.end();
    add(Reached::kTransferBlocked, advance->stream != "compute" && *after.advanced && was_idle);
    if (!*after.advanced) idle_streams_.push_back(advance->stream);
  } else if (std::holds_alternative<Wait>(command)) {
    add(Reached::kFlushedByWait, after.num_deferred < before.num_deferred);
    add(Reached::kForwardsRunByWait, !after.seen.empty());
  } else if (std::holds_alternative<Shutdown>(command)) {
    add(Reached::kShutDownInFlight, !after.finished_jobs->empty());
  } else if (std::holds_alternative<GetFinished>(command)) {
    add(Reached::kReportHeldBack, after.finished_jobs->empty() && after.num_in_flight > 0);
  }
  if (after.finished_jobs.has_value()) count_reports(after);
  add(Reached::kLoadedBlockSeen, std::any_of(after.seen.begin(), after.seen.end(), [](auto& page) {
        return page.generation > 0 && page.of_block != page.number;
      }));
}

void Reach::count_reports(const Observation& after) {
  bool has_store = false;
  bool has_load = false;
  for (const FinishedJob& job : *after.finished_jobs) {
    const bool is_load = job.direction == "load";
    has_load |= is_load;
    has_store |= !is_load;
    add(Reached::kStoreReported, !is_load && job.succeeded);
    add(Reached::kLoadReported, is_load && job.succeeded);
    add(Reached::kFailureReported, !job.succeeded);
  }
  add(Reached::kBothDirectionsInFlight, has_store && has_load);
}

}  // namespace kvfence::worker
