#include "properties/engine/on_device/goals.h"

#include <algorithm>
#include <variant>

namespace kvfence::engine::on_device {
namespace {

/// Before the first command nothing is there; what is not there may hold anything.
bool has_transfers(const Observation& observation) {
  return observation.num_transfers.has_value() && *observation.num_transfers > 0;
}

}  // namespace

void Reach::start(const Config& config) {
  block_size_factor_ = config.connector<offloading::Record>()->block_size_factor;
  has_window_.clear();
  for (const KVCacheSpec& group : config.groups) {
    has_window_.push_back(!group.is_full_attention());
  }
  num_executed_ = 0;
  flushes_.clear();
  was_idle_ = {};
  was_reset_ = false;
  in_flight_.clear();
  failed_loads_.clear();
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  if (after.error != ErrorCode::kNone) {
    add_error(after.error);
    return;
  }
  const bool had_transfers = has_transfers(before);
  if (const auto* advance = std::get_if<Advance>(&command)) {
    if (advance->stream == "compute") return;
    bool& was_idle = was_idle_[advance->stream == "load" ? 1 : 0];
    add(Reached::kTransferBlocked, *after.advanced && was_idle);
    was_idle = !*after.advanced;
    return;
  }
  was_idle_ = {};
  if (std::holds_alternative<Schedule>(command)) {
    count_schedule(before, after);
  } else if (std::holds_alternative<Execute>(command)) {
    count_execute(before, after);
  } else if (std::holds_alternative<Poll>(command)) {
    count_poll(after);
  } else if (std::holds_alternative<Update>(command)) {
    count_update(after);
  } else if (std::holds_alternative<FinishRequests>(command) ||
             std::holds_alternative<FinishAllRequests>(command)) {
    add(Reached::kAbortedWithTransfers,
        had_transfers && after.num_unfinished < before.num_unfinished);
  } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    was_reset_ |= reset->reset_connector;
    add(Reached::kResetWithTransfers, had_transfers && *after.success);
    add(Reached::kCPUCacheResetWithTransfers, had_transfers && reset->reset_connector);
  } else if (std::holds_alternative<Drain>(command)) {
    add(Reached::kDrainedWithTransfers, had_transfers);
    num_executed_ = 0;
    flushes_.clear();
    in_flight_.clear();
  }
}

void Reach::count_schedule(const Observation& before, const Observation& after) {
  flushes_.push_back(!after.jobs_to_flush->empty() || !after.requests_to_flush->empty());
  add(Reached::kPreemptedWhileStoring, has_transfers(before) && !after.preempted->empty());
  add(Reached::kPlannedBetween, num_executed_ > 0);
  add(Reached::kPrefixHit,
      std::any_of(after.new_reqs->begin(), after.new_reqs->end(),
                  [](const auto& entry) { return entry.num_computed_tokens > 0; }));
  const auto is_flushed = [&](const DeviceTransfer& transfer) {
    const auto& jobs = *after.jobs_to_flush;
    return transfer.store && std::find(jobs.begin(), jobs.end(), transfer.job) != jobs.end();
  };
  const auto runs_on = [&](const DeviceTransfer& transfer) {
    return std::any_of(after.scheduled->begin(), after.scheduled->end(),
                       [&](const auto& entry) { return entry.request == transfer.request; });
  };
  add(Reached::kWindowFlushed,
      !was_reset_ && std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& transfer) {
        return is_flushed(transfer) && runs_on(transfer);
      }));
  was_reset_ = false;
}

void Reach::count_execute(const Observation& before, const Observation& after) {
  add(Reached::kRunAhead, num_executed_ > 0);
  ++num_executed_;
  if (!flushes_.empty()) {
    add(Reached::kFlushedWhileStoring, flushes_.front() && has_transfers(before));
    flushes_.erase(flushes_.begin());
  }
  for (const DeviceTransfer& transfer : *after.submitted) {
    in_flight_.push_back(transfer);
    if (transfer.store) continue;
    for (std::size_t group = 0; group < transfer.group_sizes.size(); ++group) {
      if (transfer.group_sizes[group] == 0) continue;
      add(Reached::kLoadWithinSlot, transfer.block_indices[group] % block_size_factor_ != 0);
      add(Reached::kLoadIntoWindow, has_window_[group]);
    }
  }
}

void Reach::count_poll(const Observation& after) {
  bool has_store = false;
  bool has_load = false;
  for (const EndedTransfer& ended : *after.ended) {
    has_store |= ended.store;
    has_load |= !ended.store;
    add(ended.store ? Reached::kFailedStore : Reached::kFailedLoad, !ended.succeeded);
    const auto transfer =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&](const DeviceTransfer& each) {
          return each.rank == ended.rank && each.store == ended.store && each.job == ended.job;
        });
    if (transfer == in_flight_.end()) continue;
    if (!ended.store) {
      const auto& received = *after.finished_recving;
      add(Reached::kLateRank,
          std::find(received.begin(), received.end(), transfer->request) == received.end());
      if (!ended.succeeded) failed_loads_.insert(transfer->request);
    }
    in_flight_.erase(transfer);
    add(Reached::kFailedOnOneRank,
        !ended.succeeded && std::any_of(after.ended->begin(), after.ended->end(), [&](auto& other) {
          return other.job == ended.job && other.store == ended.store && other.succeeded;
        }));
  }
  add(Reached::kStore, has_store);
  add(Reached::kLoad, has_load);
  add(Reached::kBothDirections, has_store && has_load);
  add(Reached::kReportHeldBack, after.ended->empty() && has_transfers(after));
  add(Reached::kHeldFreed, !after.finished_sending->empty());
}

void Reach::count_update(const Observation& after) {
  --num_executed_;
  bool has_finished = false;
  for (const RequestOutput& output : *after.outputs) {
    has_finished |= is_finished(output.status);
    if (failed_loads_.erase(output.request) == 0) continue;
    add(output.tokens.empty() ? Reached::kFailedRequest : Reached::kRecomputed);
  }
  add(Reached::kRequestFinished, has_finished);
}

}  // namespace kvfence::engine::on_device
