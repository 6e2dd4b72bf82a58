#include "properties/engine_reach.h"

#include <algorithm>
#include <variant>

namespace kvfence::engine {

void Reach::start(const Config& config) {
  block_size_factor_ = config.block_size_factor;
  num_executed_ = 0;
  flushes_.clear();
  was_idle_ = {};
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  const bool has_transfers = before.num_transfers > 0;
  if (const auto* advance = std::get_if<Advance>(&command)) {
    if (advance->stream == "compute") return;
    bool& was_idle = was_idle_[advance->stream == "load" ? 1 : 0];
    add(Reached::kTransferBlocked, *after.advanced && was_idle);
    was_idle = !*after.advanced;
    return;
  }
  was_idle_ = {};
  if (std::holds_alternative<Schedule>(command)) {
    flushes_.push_back(!after.jobs_to_flush->empty() || !after.requests_to_flush->empty());
    add(Reached::kPreemptedWhileStoring, has_transfers && !after.preempted->empty());
    add(Reached::kPlannedBetween, num_executed_ > 0);
    add(Reached::kPrefixHit,
        std::any_of(after.new_reqs->begin(), after.new_reqs->end(),
                    [](const auto& entry) { return entry.num_computed_tokens > 0; }));
  } else if (std::holds_alternative<Execute>(command)) {
    count_execute(before, after);
  } else if (std::holds_alternative<Poll>(command)) {
    bool has_store = false;
    bool has_load = false;
    for (const EndedTransfer& ended : *after.ended) {
      has_store |= ended.store;
      has_load |= !ended.store;
    }
    add(Reached::kStore, has_store);
    add(Reached::kLoad, has_load);
    add(Reached::kBothDirections, has_store && has_load);
    add(Reached::kReportHeldBack, after.ended->empty() && after.num_transfers > 0);
    add(Reached::kHeldFreed, !after.finished_sending->empty());
  } else if (std::holds_alternative<Update>(command)) {
    --num_executed_;
    add(Reached::kRequestFinished,
        std::any_of(after.outputs->begin(), after.outputs->end(),
                    [](const auto& output) { return is_finished(output.status); }));
  } else if (std::holds_alternative<FinishRequests>(command) ||
             std::holds_alternative<FinishAllRequests>(command)) {
    add(Reached::kAbortedWithTransfers,
        has_transfers && after.num_unfinished < before.num_unfinished);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    add(Reached::kResetWithTransfers, has_transfers && *after.success);
    add(Reached::kCPUCacheResetWithTransfers, has_transfers && reset->reset_connector);
  } else if (std::holds_alternative<Drain>(command)) {
    add(Reached::kDrainedWithTransfers, has_transfers);
    num_executed_ = 0;
    flushes_.clear();
  }
}

void Reach::count_execute(const Observation& before, const Observation& after) {
  add(Reached::kRunAhead, num_executed_ > 0);
  ++num_executed_;
  if (!flushes_.empty()) {
    add(Reached::kFlushedWhileStoring, flushes_.front() && before.num_transfers > 0);
    flushes_.erase(flushes_.begin());
  }
  for (const Transfer& transfer : *after.submitted) {
    add(Reached::kLoadWithinSlot,
        !transfer.store && transfer.block_index % block_size_factor_ != 0);
  }
}

}  // namespace kvfence::engine
