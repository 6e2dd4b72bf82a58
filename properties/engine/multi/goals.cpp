/// The coverage goals of runs with a MultiConnector.

#include "properties/engine/rooms.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/lists.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "properties/core/invariant_values.h"
#include "properties/engine/drafts_in_flight.h"
#include "properties/engine/shown_requests.h"

namespace kvfence::engine::multi {
namespace {

constexpr Goal kGoals[] = {
    {"offloading_loads", "the offloading child was chosen to load"},
    {"simple_loads", "the simple child was chosen to load"},
    {"files_load", "the child that keeps files was chosen to load"},
    {"all_save", "one step had stores of two children"},
    {"two_under_way", "transfers of two children were under way"},
    {"report_of_two", "one report had jobs of two children"},
    {"aborted_under_way", "requests were ended from outside during transfers of two children"},
    {"preempted_under_way", "a request was preempted during transfers of two children"},
    {"load_failed", "a load failed"},
    {"engine_ended", "a file ended the engine"},
    {"three_children", "a run with three children"},
    {"several_groups", "a run with several groups"},
    {"several_ranks", "a run with several ranks"},
    {"reset_all", "a reset went to all children's caches"},
    {"scripted_alone", "a run with two or more scripted children only"},
    {"scripted_beside_real", "a run with scripted and real children"},
    {"losing_hit", "two scripted children had tokens for one lookup"},
    {"asked_again_after_hit", "a child after one with tokens wanted to be asked again"},
    {"choice_changed", "another child was chosen than before"},
    {"scripted_loads", "a scripted child was chosen to load"},
    {"held_by_several", "several children held a finished request"},
    {"notice_swallowed", "a notice was swallowed, since it was not the last one"},
    {"sent_in_the_end", "a request that several children held was reported as sent"},
    {"received_while_held", "a request with extra saves was received"},
    {"ranks_apart", "one rank had more notices to report than another"},
    {"several_groups_notified",
     "children were notified of the end of a request with several groups"},
    {"load_errors_of_two", "two children failed to load blocks at once"},
    {"stats_of_one_class", "two children of a class had statistics"},
    {"jobs_of_two_ranks", "a child got jobs of several ranks"},
    {"client_params", "a client got parameters of a child"},
    {"ended_by_params", "two children had parameters"},
    {"ended_by_report", "a child reported a request that it did not have"},
    {"reset_failed", "a scripted child could not be reset"},
    {"reset_unsaid", "a child did not report the result of its reset"},
    {"cross_layers", "a child got KV caches with the layers together"},
    {"later_handshake", "a child other than the first had a handshake"},
    {"shutdown_failed", "a scripted child failed to shut down"},
    {"a_pair", "a run of two engines over NIXL and other children"},
    {"nixl_loads", "the NIXL child was chosen to load"},
    {"nixl_loads_others_save", "another child stored what NIXL read"},
    {"another_loads_the_prompt",
     "another child loaded a prompt that was handed over, and NIXL released the producer's "
     "blocks"},
    {"held_for_readers_and_stores", "the producer's request was held by NIXL and by another child"},
    {"aborted_under_read", "requests were ended during a read and transfers of another child"},
    {"read_failed", "a read failed under a MultiConnector"},
    {"running_reset", "a reset preempted running requests during a child's copies"},
    {"preempted_priority", "a request was preempted under priority"},
    {"drafts_rejected", "a draft was rejected during transfers of two children"},
    {"pair_ended", "an engine of a pair ended while it had requests"},
};

bool has_two_under_way(const EngineObservation& shown) {
  return has_elements(shown.transfers) && has_elements(shown.copies);
}

bool is_read_under_way(const Observation& shown) {
  return std::ranges::any_of(shown.reads.or_empty(), &ReadState::is_under_way);
}

bool has_read_failed(const Observation& shown) {
  return contains(shown.reads.or_empty(), TransferProgress::kFailed, &ReadState::progress);
}

bool has_file_transfer(const EngineObservation& shown, bool store) {
  return contains(shown.file_transfers.or_empty(), store, &FileTransfer::store);
}

template <class Is>
bool has_call(const EngineObservation& shown, Is is) {
  return std::ranges::any_of(shown.connector_calls.or_empty(), is);
}

class Counter : public GoalCounter<EngineTarget, kGoals> {
 public:
  Counter(const kvfence::Setup& run, std::span<std::uint64_t> counts) : GoalCounter(run, counts) {
    std::size_t num_scripted = 0;
    for (const ConnectorRecord& child : config().connector<MultiRecord>()->children) {
      const auto* const scripted = std::get_if<ScriptedRecord>(&child.as_variant());
      classes_.push_back(scripted ? scripted->connector_class : std::string());
      num_scripted += scripted ? 1 : 0;
    }
    const std::size_t num_children = classes_.size();
    add("scripted_alone", num_children > 1 && num_scripted == num_children);
    add("scripted_beside_real", num_scripted > 0 && num_scripted < num_children);
    add("three_children", num_children > 2);
    add("several_groups", config().groups.size() > 1);
    add("several_ranks", config().ranks > 1);
    add("a_pair", config().engines > 1 && num_children > 1);
  }

  void count_any(const Command&) {
    for (const EngineRole role : kEngineRoles) count_engine(before().of(role), after().of(role));
    if (has_elements(after().completed_jobs)) {
      const auto child_of = [&](const CompletedJob& each) {
        return child_job(each.job, static_cast<std::uint32_t>(classes_.size())).child;
      };
      const std::uint32_t first = child_of(after().completed_jobs->front());
      add("report_of_two",
          std::ranges::any_of(*after().completed_jobs,
                              [&](const CompletedJob& each) { return child_of(each) != first; }));
    }
    add("load_failed", has_elements(after().invalid_blocks));
    count_pair();
  }

  void count_accepted(const Command& command) {
    const bool ends = std::holds_alternative<FinishRequests>(command) ||
                      std::holds_alternative<FinishAllRequests>(command);
    for (const EngineRole role : kEngineRoles) {
      DraftsInFlight& drafts = drafts_[static_cast<std::size_t>(role)];
      add("drafts_rejected",
          drafts.rejects(command, after()) && has_two_under_way(before().of(role)));
      add("aborted_under_way", ends && has_two_under_way(before().of(role)));
      add("aborted_under_read", ends && is_read_under_way(before()) &&
                                    (has_elements(before().of(role).transfers) ||
                                     has_elements(before().of(role).copies)));
    }
    const auto* const reset = std::get_if<ResetPrefixCache>(&command);
    add("reset_all", reset && reset->reset_connector);
    if (reset) {
      const EngineObservation& shown = before().of(reset->engine);
      add("running_reset", reset->reset_running_requests && shown.num_running > 0 &&
                               (has_elements(shown.transfers) || has_elements(shown.copies)));
    }
    const auto* const update = std::get_if<Update>(&command);
    if (after().engine_ended.has_value()) {
      const bool by_params = *after().engine_ended == to_text(ErrorCode::kSeveralParams);
      add("ended_by_params", by_params);
      add("ended_by_report", update && !by_params);
      shared_.clear();
      for (const EngineRole role : kEngineRoles) {
        add("shutdown_failed", has_call(after().of(role), [](const ConnectorCall& call) {
              return call.method == "shutdown" && call.answer == "failed";
            }));
      }
      return;
    }
    if (reset && reset->reset_connector) {
      add("reset_failed", !reset->failing_children.empty());
      add("reset_unsaid", !reset->silent_children.empty());
    }
    for (const EngineRole role : kEngineRoles) {
      const EngineObservation& then = before().of(role);
      const EngineObservation& now = after().of(role);
      count_registrations(then, now);
      count_calls(now);
      if (update && update->engine == role) count_reports(*update, then, now, after());
    }
  }

 private:
  /// If NIXL is a child.
  void count_pair() {
    add("read_failed", has_read_failed(after()));
    const std::uint32_t num_before = before().num_unfinished + before().consumer.num_unfinished;
    add("pair_ended", config().engines > 1 && has_ended(after()) && num_before > 0);
    if (has_ended(after())) read_.clear();
    if (after().reqs_to_recv.has_value()) {
      const EngineObservation& consumer = after().consumer;
      for (const nixl::Receive& receive : *after().reqs_to_recv) {
        add("nixl_loads", !receive.local_blocks.empty());
        if (!receive.local_blocks.empty()) read_.insert(receive.request);
        const bool is_loaded =
            find_by(consumer.loads.or_empty(), &offloading::Transfer::request, receive.request) ||
            contains(consumer.load_requests.or_empty(), receive.request);
        add("another_loads_the_prompt", receive.local_blocks.empty() && is_loaded);
      }
      for (const offloading::Transfer& store : consumer.stores.or_empty()) {
        add("nixl_loads_others_save", read_.contains(store.request));
      }
    }
    for (const nixl::FinishedPrefill& prefill : after().finished_prefills.or_empty()) {
      add("held_for_readers_and_stores",
          find_by(after().extra_saves.or_empty(), &Extra::request, prefill.request) != nullptr);
    }
  }

  void count_engine(const EngineObservation& before, const EngineObservation& after) {
    add("offloading_loads", has_elements(after.loads));
    add("simple_loads", has_elements(after.load_requests));
    add("files_load", has_file_transfer(after, /*store=*/false));
    const int num_saving = static_cast<int>(has_elements(after.stores)) +
                           static_cast<int>(has_elements(after.store_gpu_blocks)) +
                           static_cast<int>(has_file_transfer(after, /*store=*/true));
    add("all_save", num_saving > 1);
    add("two_under_way", has_two_under_way(after));
    add("preempted_under_way", has_elements(after.preempted) && has_two_under_way(before));
    add("preempted_priority", config().policy == SchedulingPolicy::kPriority &&
                                  has_elements(after.preempted) && !after.never_fits.has_value());
    add("engine_ended", has_elements(after.failed));
  }

  void count_registrations(const EngineObservation& before, const EngineObservation& after) {
    add("cross_layers", has_call(after, [](const ConnectorCall& call) {
          return call.method == "register_cross_layers_kv_cache";
        }));
    add("later_handshake", has_call(after, [](const ConnectorCall& call) {
          return call.method == "get_handshake_metadata" && *call.child > 0 && !call.answer.empty();
        }));
    add("client_params", has_elements(after.client_params));
    for (const ChosenConnector& then : before.chosen.or_empty()) {
      add("choice_changed",
          std::ranges::any_of(after.chosen.or_empty(), [&](const ChosenConnector& now) {
            return now.request == then.request && now.child != then.child;
          }));
    }
  }

  void count_calls(const EngineObservation& after) {
    std::string request;
    bool had_hit = false;
    std::uint32_t num_holding = 0;
    std::string ended;
    for (const ConnectorCall& call : after.connector_calls.or_empty()) {
      if (call.method == "get_num_new_matched_tokens") {
        if (call.request != request || *call.child == 0) had_hit = false;
        request = call.request;
        const bool has_hit = call.answer != "0" && call.answer != "again";
        add("losing_hit", had_hit && has_hit);
        add("asked_again_after_hit", had_hit && call.answer == "again");
        had_hit = had_hit || has_hit;
      } else if (call.method == "update_state_after_alloc") {
        add("scripted_loads", call.num_tokens > 0);
      } else if (call.method == "request_finished") {
        if (call.request != ended) num_holding = 0;
        ended = call.request;
        num_holding += call.answer.starts_with("hold") ? 1 : 0;
        add("held_by_several", num_holding == 2);
        if (num_holding == 2) shared_.insert(call.request);
        add("several_groups_notified", call.blocks.size() > 1);
      } else if (call.method == "update_connector_output") {
        add("jobs_of_two_ranks",
            std::adjacent_find(call.jobs.begin(), call.jobs.end()) != call.jobs.end());
      }
    }
  }

  void count_reports(const Update& command, const EngineObservation& before,
                     const EngineObservation& after, const Report& report_of_all) {
    for (const ChildReport& report : command.reports) {
      for (const ChildReport& other : command.reports) {
        if (report.rank != other.rank || report.child >= other.child) continue;
        add("load_errors_of_two", !report.invalid.empty() && !other.invalid.empty());
        add("stats_of_one_class", !report.stats.empty() && !other.stats.empty() &&
                                      classes_[report.child] == classes_[other.child]);
      }
    }
    for (const std::string& name : *report_of_all.finished_sending) {
      add("sent_in_the_end", shared_.contains(name));
    }
    if (!before.extra_saves.has_value() || !after.extra_saves.has_value()) return;
    for (const Extra& then : *before.extra_saves) {
      const auto now = std::ranges::find_if(*after.extra_saves, [&](const Extra& each) {
        return each.rank == then.rank && each.request == then.request;
      });
      add("notice_swallowed",
          then.rank && (now == after.extra_saves->end() || now->saves < then.saves));
      const auto receives = [&](const ChildReport& report) {
        return report.rank == then.rank && contains(report.recving, then.request);
      };
      add("received_while_held", std::ranges::any_of(command.reports, receives));
    }
    for (const Extra& one : *after.extra_saves) {
      for (const Extra& other : *after.extra_saves) {
        add("ranks_apart",
            one.rank && other.rank && one.request == other.request && one.saves < other.saves);
      }
    }
  }

  std::array<DraftsInFlight, 2> drafts_{DraftsInFlight(EngineRole::kProducer),
                                        DraftsInFlight(EngineRole::kConsumer)};
  std::vector<std::string> classes_;  ///< by child; empty: it is not scripted
  std::set<std::string> shared_;      ///< requests that several children held
  std::set<std::string> read_;        ///< requests that NIXL reads
};

}  // namespace

GoalSuite goals() { return goal_suite<EngineTarget, kGoals, Counter>(); }

}  // namespace kvfence::engine::multi
