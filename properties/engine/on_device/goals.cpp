/// The coverage goals of runs over devices. A suite in which no flushed transfer was under way has
/// not tested reuse.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/rank_progress.h"

namespace kvfence::engine::on_device {
namespace {

constexpr Goal kGoals[] = {
    {"store", "a store was reported"},
    {"load", "a load was reported"},
    {"both_directions", "a report has stores and loads"},
    {"load_within_slot", "a load began in the middle of a slot"},
    {"report_held_back", "nothing was reported although transfers are in flight"},
    {"transfer_blocked", "a transfer ran that had waited for a forward"},
    {"flushed_while_storing", "a step flushed transfers while some were in flight"},
    {"preempted_while_storing", "a request was preempted while transfers were in flight"},
    {"aborted_with_transfers", "requests were ended from outside while transfers were in flight"},
    {"held_freed", "held blocks were freed, since the stores were over"},
    {"run_ahead", "a step was executed while an earlier one was in flight"},
    {"rank_ahead", "a rank executed a step when another rank had not executed the step before it"},
    {"planned_between",
     "a step was planned between the execution and the update of an earlier one"},
    {"prefix_hit", "a request began after tokens that it did not compute"},
    {"request_finished", "a request sampled all its tokens"},
    {"reset_with_transfers", "the GPU's cache was reset while transfers were in flight"},
    {"cpu_cache_reset_with_transfers", "both caches were reset while transfers were in flight"},
    {"drained_with_transfers", "the engine was drained while transfers were in flight"},
    {"failed_load", "a load was reported that failed"},
    {"failed_store", "a store was reported that failed"},
    {"torn_load", "a load whose writes will be torn was submitted"},
    {"torn_store", "a store whose writes will be torn was submitted"},
    {"store_past_a_filter", "a store of blocks that a reuse filter had counted was submitted"},
    {"late_end", "a transfer whose end will be reported late was submitted"},
    {"recomputed", "a request whose load had failed sampled"},
    {"failed_request", "a request ended since its load had failed"},
    {"late_rank", "a load had ended on one rank, and not on all"},
    {"failed_on_one_rank", "a report had a transfer that failed on one rank, and not on another"},
    {"load_into_window", "a group with a window was loaded"},
    {"drafts_rejected", "a draft was rejected while transfers were in flight"},
    {"window_flushed",
     "a step flushed a store of a request that it ran, since a block had left its window"},
};

/// False before the first command, when no member is shown.
bool has_transfers(const Observation& observation) {
  return observation.num_transfers.or_empty() > 0;
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool had_transfers = has_transfers(before());
    if (const auto* advance = std::get_if<Advance>(&command)) {
      if (advance->stream == "compute") return;
      bool& was_idle = was_idle_[advance->stream == "load" ? 1 : 0];
      add("transfer_blocked", *after().advanced && was_idle);
      was_idle = !*after().advanced;
      return;
    }
    was_idle_ = {};
    if (const auto* failing = std::get_if<FailNext>(&command)) {
      faults_[{failing->rank, failing->stream == "store"}] = failing->fault;
      return;
    }
    add("drafts_rejected", drafts_.rejects(command, after()) && had_transfers);
    const std::uint32_t num_executed_before = progress_.num_executed_by_one();
    progress_.take_in(command, after());
    if (std::holds_alternative<Schedule>(command)) {
      count_schedule();
    } else if (std::holds_alternative<Execute>(command)) {
      const bool is_first = progress_.num_executed_by_one() > num_executed_before;
      count_execute(is_first);
    } else if (std::holds_alternative<Poll>(command)) {
      count_poll();
    } else if (std::holds_alternative<Update>(command)) {
      count_update();
    } else if (std::holds_alternative<FinishRequests>(command) ||
               std::holds_alternative<FinishAllRequests>(command)) {
      add("aborted_with_transfers",
          had_transfers && after().num_unfinished < before().num_unfinished);
    } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
      was_reset_ |= reset->reset_connector;
      add("reset_with_transfers", had_transfers && *after().success);
      add("cpu_cache_reset_with_transfers", had_transfers && reset->reset_connector);
    } else if (std::holds_alternative<Drain>(command)) {
      add("drained_with_transfers", had_transfers);
      faults_.clear();
      flushes_.clear();
      in_flight_.clear();
    }
  }

 private:
  void count_schedule() {
    flushes_.push_back(!after().jobs_to_flush->empty() || !after().requests_to_flush->empty());
    add("preempted_while_storing", has_transfers(before()) && !after().preempted->empty());
    add("planned_between", progress_.num_executed_by_one() > 0);
    add("prefix_hit", std::ranges::any_of(*after().new_reqs, [](const auto& entry) {
          return entry.num_computed_tokens > 0;
        }));
    const auto is_flushed = [&](const DeviceTransfer& transfer) {
      const auto& jobs = *after().jobs_to_flush;
      return transfer.store && contains(jobs, transfer.job);
    };
    const auto runs_on = [&](const DeviceTransfer& transfer) {
      return contains(*after().scheduled, transfer.request, &ScheduledRequest::request);
    };
    add("window_flushed", !was_reset_ && std::ranges::any_of(in_flight_, [&](const auto& transfer) {
          return is_flushed(transfer) && runs_on(transfer);
        }));
    was_reset_ = false;
  }

  /// is_first: no rank executed the step before.
  void count_execute(bool is_first) {
    add("run_ahead", progress_.num_executed_by_one() > 1);
    add("rank_ahead", progress_.is_one_ahead());
    if (is_first && !flushes_.empty()) {
      add("flushed_while_storing", flushes_.front() && has_transfers(before()));
      flushes_.erase(flushes_.begin());
    }
    for (const DeviceTransfer& transfer : *after().submitted) {
      in_flight_.push_back(transfer);
      if (const auto fault = faults_.extract({transfer.rank, transfer.store})) {
        add("late_end", fault.mapped() == "late");
        add(transfer.store ? Name("torn_store") : Name("torn_load"), fault.mapped() == "partial");
      }
      add("store_past_a_filter", transfer.store && has_filter_);
      if (transfer.store) continue;
      for (std::size_t group = 0; group < transfer.group_sizes.size(); ++group) {
        if (transfer.group_sizes[group] == 0) continue;
        add("load_within_slot", transfer.block_indices[group] % block_size_factor_ != 0);
        add("load_into_window", !config().groups[group].is_full_attention());
      }
    }
  }

  void count_poll() {
    const bool is_reported = after().finished_recving.has_value();
    bool has_store = false;
    bool has_load = false;
    for (const EndedTransfer& ended : *after().ended) {
      has_store |= ended.store;
      has_load |= !ended.store;
      add(ended.store ? Name("failed_store") : Name("failed_load"), !ended.succeeded);
      const auto transfer = std::ranges::find_if(in_flight_, [&](const DeviceTransfer& each) {
        return each.rank == ended.rank && each.store == ended.store && each.job == ended.job;
      });
      if (transfer == in_flight_.end()) continue;
      if (!ended.store) {
        add("late_rank", is_reported && !contains(*after().finished_recving, transfer->request));
        if (!ended.succeeded) failed_loads_.insert(transfer->request);
      }
      in_flight_.erase(transfer);
      add("failed_on_one_rank",
          !ended.succeeded && std::ranges::any_of(*after().ended, [&](auto& other) {
            return other.job == ended.job && other.store == ended.store && other.succeeded;
          }));
    }
    add("store", has_store);
    add("load", has_load);
    add("both_directions", has_store && has_load);
    add("report_held_back", after().ended->empty() && has_transfers(after()));
    add("held_freed", is_reported && !after().finished_sending->empty());
  }

  void count_update() {
    bool has_finished = false;
    for (const RequestOutput& output : *after().outputs) {
      has_finished |= is_finished(output.status);
      if (failed_loads_.erase(output.request) == 0) continue;
      add(output.tokens.empty() ? Name("failed_request") : Name("recomputed"));
    }
    add("request_finished", has_finished);
  }

  const std::uint32_t block_size_factor_ =
      config().connector<offloading::Record>()->block_size_factor;
  const bool has_filter_ = config().connector<offloading::Record>()->store_threshold >= 2;
  DraftsInFlight drafts_;
  bool was_reset_ = false;                 ///< since the last step was planned
  std::vector<DeviceTransfer> in_flight_;  ///< not reported
  /// Faults to come, by rank and whether they are a store's.
  std::map<std::pair<std::uint32_t, bool>, std::string> faults_;
  std::set<std::string> failed_loads_;  ///< by request
  RankProgress progress_{config().ranks};
  std::vector<bool> flushes_;          ///< by planned step: whether it flushes any transfer
  std::array<bool, 2> was_idle_ = {};  ///< store, load: since then only the device ran
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::on_device
