#include "properties/worker/goals.h"

#include <algorithm>
#include <variant>

namespace kvfence::worker {

void Reach::start(const Config& config) {
  block_size_factor_ = config.block_size_factor;
  num_ranks_ = config.num_ranks;
  is_commanded_ = config.schedule == "commanded";
  num_faults_ = 0;
  num_failed_ = 0;
  is_lost_ = false;
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
  add(Reached::kCopyFailedInPart, is_met && before.next_fault == "partial");
  add(Reached::kDeviceLost, is_met && before.next_fault == "sticky");
  num_faults_ += is_met;
  is_lost_ |= is_met && before.next_fault == "sticky";
  const bool runs_nothing = std::holds_alternative<Advance>(command) ||
                            std::holds_alternative<GetFinished>(command) ||
                            std::holds_alternative<FailNext>(command);
  if (!runs_nothing || !is_commanded_) idle_streams_.clear();
  if (const auto* submitted = std::get_if<TransferAsync>(&command)) {
    add(Reached::kTransferOfNothing, submitted->gpu_blocks.empty());
    add(Reached::kFirstBlockSkipped,
        !submitted->gpu_blocks.empty() && submitted->block_index % block_size_factor_ != 0);
  } else if (const auto* advance = std::get_if<Advance>(&command)) {
    const std::string stream = advance->stream + std::to_string(advance->rank);
    const bool was_idle =
        std::find(idle_streams_.begin(), idle_streams_.end(), stream) != idle_streams_.end();
    add(Reached::kTransferBlocked, advance->stream != "compute" && *after.advanced && was_idle);
    add(Reached::kPartRan, advance->steps > 0 && *after.advanced);
    if (!*after.advanced) idle_streams_.push_back(stream);
  } else if (std::holds_alternative<Wait>(command)) {
    add(Reached::kFlushedByWait, after.num_deferred < before.num_deferred);
    add(Reached::kForwardsRunByWait, !after.seen.empty());
  } else if (std::holds_alternative<Shutdown>(command)) {
    add(Reached::kShutDownInFlight, !after.finished_jobs->empty());
  } else if (std::holds_alternative<GetFinished>(command)) {
    add(Reached::kReportHeldBack, after.finished_jobs->empty() && after.num_in_flight > 0);
  }
  if (after.finished_jobs.has_value()) count_reports(after);
  if (after.gpu_pages.has_value()) {
    const auto is_undefined = [](const Page& page) { return page.undefined; };
    add(Reached::kPageUndefined,
        std::any_of(after.gpu_pages->begin(), after.gpu_pages->end(), is_undefined) ||
            std::any_of(after.cpu_pages->begin(), after.cpu_pages->end(), is_undefined));
  }
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
    add(Reached::kFreeDeviceReported, !is_commanded_ && job.succeeded);
    add(Reached::kRanksReported, num_ranks_ > 1 && job.succeeded);
    add(Reached::kFailedOnARank, num_ranks_ > 1 && !job.succeeded);
    num_failed_ += !job.succeeded;
  }
  add(Reached::kFailedByTheLoss, is_lost_ && num_failed_ > num_faults_);
  add(Reached::kBothDirectionsInFlight, has_store && has_load);
}

}  // namespace kvfence::worker
