#include <algorithm>
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
#include "properties/engine/rooms.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::on_device {
namespace {

constexpr Goal kGoalsOfOthers[] = {
    {"prefix_hit", "a request began after tokens that it did not compute"},
    {"run_ahead", "a step was executed while an earlier one was in flight"},
    {"rank_ahead", "a rank executed a step when another rank had not executed the step before it"},
    {"request_finished", "a request sampled all its tokens"},
    {"preempted_alone", "a request was preempted without a connector while a step was in flight"},
    {"reset_while_running", "running requests were preempted by a reset, with a step in flight"},
    {"running_reset", "a reset preempted running requests while transfers were in flight"},
    {"drained_with_transfers", "the engine was drained while transfers were in flight"},
    {"copied_by_simple", "a load of the simple connector had ended on all ranks"},
    {"stored_lazily", "a lazy store had ended on a rank"},
    {"late_rank", "a load of the simple connector had ended on one rank, and not on all"},
    {"flushed_by_simple", "a preemption waited for transfers of the simple connector"},
    {"aborted_while_loading", "a request was ended from outside while a load was in flight"},
    {"transfer_blocked", "a transfer ran that had waited for a forward"},
    {"both_under_way", "transfers of both children were in flight on a rank"},
    {"loaded_by_each", "loads of both children were in flight"},
    {"store_fenced_for_the_other",
     "a load of the simple connector goes into blocks that a store of the other child reads"},
    {"drafts_rejected", "a draft was rejected while transfers were in flight"},
    {"drafts_rejected_beside_a_read",
     "a draft was rejected at a consumer while a read was under way"},
    {"said_after_a_read", "a consumer sampled with KV that it had read from the producer"},
    {"computed_after_a_failed_read", "a consumer computed a prompt whose read had failed"},
    {"stored_what_was_read", "a consumer stored blocks that it had read from the producer"},
    {"copy_failed_beside_a_read",
     "a copy of the OffloadingConnector failed while a read was under way"},
    {"loaded_beside_a_read", "a consumer's load was in flight while a read was under way"},
};

class CounterOfOthers : public GoalCounter<EngineTarget, kGoalsOfOthers> {
 public:
  using GoalCounter::GoalCounter;

  void count_accepted(const Command& command) {
    const bool rejects = drafts_.rejects(command, after());
    if (setup().is_pair()) return count_of_pair(command, rejects);
    progress_.take_in(command, after());
    add("drafts_rejected", rejects && !in_flight_.empty());
    const std::uint32_t num_executed = progress_.num_executed_by_one();
    if (has_ended(after())) {
      in_flight_.clear();
      return;
    }
    const std::size_t num_in_flight = in_flight_.size();
    if (const auto* advance = std::get_if<Advance>(&command)) {
      if (advance->stream == "compute") return;
      bool& was_idle = was_idle_[advance->stream == "load" ? 1 : 0];
      add("transfer_blocked", *after().advanced && was_idle);
      was_idle = !*after().advanced;
      return;
    }
    was_idle_[0] = was_idle_[1] = false;
    if (after().submitted.has_value()) {
      in_flight_.insert(in_flight_.end(), after().submitted->begin(), after().submitted->end());
      count_under_way();
    }
    if (std::holds_alternative<Schedule>(command)) {
      count_schedule();
    } else if (std::holds_alternative<Execute>(command)) {
      add("run_ahead", num_executed > 1);
      add("rank_ahead", progress_.is_one_ahead());
    } else if (std::holds_alternative<Poll>(command)) {
      count_poll();
    } else if (std::holds_alternative<Update>(command)) {
      add("request_finished",
          std::ranges::any_of(*after().outputs, [](const RequestOutput& output) {
            return is_finished(output.status);
          }));
    } else if (std::holds_alternative<FinishRequests>(command) ||
               std::holds_alternative<FinishAllRequests>(command)) {
      add("aborted_while_loading", has_load() && after().num_unfinished < before().num_unfinished);
    } else if (const auto* reset = std::get_if<ResetPrefixCache>(&command)) {
      add("reset_while_running",
          reset->reset_running_requests && num_executed > 0 && before().num_running > 0);
      add("running_reset",
          reset->reset_running_requests && num_in_flight > 0 && before().num_running > 0);
    } else if (std::holds_alternative<Drain>(command)) {
      add("drained_with_transfers", num_in_flight > 0);
      in_flight_.clear();
    }
  }

 private:
  bool is_of_simple(const DeviceTransfer& transfer) const {
    return setup().is_of_simple(transfer.job);
  }
  bool has_load() const { return contains(in_flight_, false, &DeviceTransfer::store); }

  void count_under_way() {
    bool is_there[2][2] = {};  // of the simple connector, of a store
    for (const DeviceTransfer& transfer : in_flight_) {
      is_there[is_of_simple(transfer)][transfer.store] = true;
    }
    add("both_under_way", (is_there[0][0] || is_there[0][1]) && (is_there[1][0] || is_there[1][1]));
    add("loaded_by_each", is_there[0][0] && is_there[1][0]);
  }

  void count_schedule() {
    add("prefix_hit", std::ranges::any_of(*after().new_reqs, [](const auto& entry) {
          return entry.num_computed_tokens > 0;
        }));
    add("preempted_alone",
        !setup().has_workers() && *before().num_steps_in_flight > 0 && !after().preempted->empty());
    add("flushed_by_simple",
        after().need_flush.or_empty() &&
            std::ranges::any_of(in_flight_, [&](const DeviceTransfer& transfer) {
              return is_of_simple(transfer);
            }));
    const std::vector<BlockId>& loaded = after().load_gpu_blocks.or_empty();
    add("store_fenced_for_the_other",
        std::ranges::any_of(in_flight_, [&](const DeviceTransfer& transfer) {
          return transfer.store && !is_of_simple(transfer) &&
                 std::find_first_of(loaded.begin(), loaded.end(), transfer.gpu_blocks.begin(),
                                    transfer.gpu_blocks.end()) != loaded.end();
        }));
  }

  /// rejects: whether the consumer's step that comes back had a rejected draft.
  void count_of_pair(const Command& command, bool rejects) {
    if (has_ended(after())) {
      reads_.clear();
      loads_.clear();
      return;
    }
    const EngineObservation& shown = after().consumer;
    if (const auto* advance = std::get_if<nixl::AdvanceRead>(&command)) {
      for (const ReadState& read : before().reads.or_empty()) {
        if (read.read != advance->read || advance->progress == TransferProgress::kPart) continue;
        bool& has_failed = reads_.try_emplace(read.request, false).first->second;
        has_failed |= advance->progress == TransferProgress::kFailed;
      }
    }
    for (const DeviceTransfer& transfer : shown.submitted.or_empty()) {
      add("stored_what_was_read", transfer.store && was_read(transfer.request));
      if (!transfer.store) loads_.insert({transfer.rank, transfer.job});
    }
    for (const EndedTransfer& ended : shown.ended.or_empty()) {
      loads_.erase({ended.rank, ended.job});
    }
    if (const auto* drained = std::get_if<Drain>(&command)) {
      if (drained->engine == EngineRole::kConsumer) loads_.clear();
    }
    const bool is_reading = std::ranges::any_of(after().reads.or_empty(), &ReadState::is_under_way);
    add("loaded_beside_a_read", !loads_.empty() && is_reading);
    add("drafts_rejected_beside_a_read", rejects && is_reading);
    const bool has_failed = std::ranges::any_of(kEngineRoles, [&](EngineRole role) {
      return !std::ranges::all_of(after().of(role).ended.or_empty(), &EndedTransfer::succeeded);
    });
    add("copy_failed_beside_a_read", has_failed && is_reading);
    for (const RequestOutput& output : shown.outputs.or_empty()) {
      if (output.tokens.empty() || !reads_.contains(output.request)) continue;
      add("said_after_a_read", was_read(output.request));
      add("computed_after_a_failed_read", !was_read(output.request));
    }
  }

  bool was_read(const std::string& request) const {
    const auto read = reads_.find(request);
    return read != reads_.end() && !read->second;
  }

  void count_poll() {
    bool has_simple_load = false;
    for (const EndedTransfer& ended : *after().ended) {
      const auto transfer = std::ranges::find_if(in_flight_, [&](const DeviceTransfer& each) {
        return each.rank == ended.rank && each.job == ended.job;
      });
      if (transfer == in_flight_.end()) continue;
      if (is_of_simple(*transfer)) {
        has_simple_load |= !ended.store;
        add("stored_lazily", ended.store && setup().simple->lazy_offload);
      }
      in_flight_.erase(transfer);
    }
    const bool is_received = has_elements(after().finished_recving);
    add("copied_by_simple", has_simple_load && is_received);
    add("late_rank", has_simple_load && after().finished_recving.has_value() && !is_received);
  }

  // For a pair.
  std::map<std::string, bool> reads_;  ///< ended reads by request: whether one failed
  std::set<std::pair<std::uint32_t, std::uint32_t>> loads_;  ///< the consumer's: rank, job

  DraftsInFlight drafts_{setup().is_pair() ? EngineRole::kConsumer : EngineRole::kProducer};
  std::vector<DeviceTransfer> in_flight_;  ///< not reported
  RankProgress progress_{config().ranks};
  bool was_idle_[2] = {};  ///< store, load: since then only the device ran
};

}  // namespace

GoalSuite goals_of_others() { return goal_suite<EngineTarget, kGoalsOfOthers, CounterOfOthers>(); }

}  // namespace kvfence::engine::on_device
