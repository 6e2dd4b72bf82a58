#include "properties/engine/multi/goals.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>

#include "contract/connectors/multi/multi_connector.h"

namespace kvfence::engine::multi {
namespace {

bool has_elements(const auto& list) { return list.has_value() && !list->empty(); }

bool has_two_under_way(const Observation& shown) {
  return has_elements(shown.transfers) && has_elements(shown.copies);
}

bool has_file_transfer(const Observation& shown, bool store) {
  return shown.file_transfers.has_value() &&
         std::any_of(shown.file_transfers->begin(), shown.file_transfers->end(),
                     [&](const files::Transfer& each) { return each.store == store; });
}

template <class Is>
bool has_call(const Observation& shown, Is is) {
  return shown.connector_calls.has_value() &&
         std::any_of(shown.connector_calls->begin(), shown.connector_calls->end(), is);
}

}  // namespace

void Reach::start(const Config& config) {
  const ConnectorList& children = config.connector<MultiRecord>()->children;
  num_children_ = static_cast<std::uint32_t>(children.size());
  classes_.clear();
  shared_.clear();
  std::size_t num_scripted = 0;
  for (const ConnectorRecord& child : children) {
    const auto* const scripted = std::get_if<ScriptedRecord>(&child.as_variant());
    classes_.push_back(scripted ? scripted->connector_class : std::string());
    num_scripted += scripted ? 1 : 0;
  }
  add(Reached::kScriptedAlone, num_children_ > 1 && num_scripted == num_children_);
  add(Reached::kScriptedBesideReal, num_scripted > 0 && num_scripted < num_children_);
  add(Reached::kThreeChildren, num_children_ > 2);
  add(Reached::kSeveralGroups, config.groups.size() > 1);
  add(Reached::kSeveralRanks, config.ranks > 1);
}

void Reach::count(const Command& command, const Observation& before, const Observation& after,
                  const World&) {
  add(Reached::kOffloadingLoads, has_elements(after.loads));
  add(Reached::kSimpleLoads, has_elements(after.load_requests));
  add(Reached::kFilesLoad, has_file_transfer(after, /*store=*/false));
  const int num_saving = static_cast<int>(has_elements(after.stores)) +
                         static_cast<int>(has_elements(after.store_gpu_blocks)) +
                         static_cast<int>(has_file_transfer(after, /*store=*/true));
  add(Reached::kAllSave, num_saving > 1);
  add(Reached::kTwoUnderWay, has_two_under_way(after));
  if (has_elements(after.completed_jobs)) {
    const auto child_of = [&](const Completed& each) {
      return child_job(each.job, num_children_).child;
    };
    const std::uint32_t first = child_of(after.completed_jobs->front());
    add(Reached::kReportOfTwo,
        std::any_of(after.completed_jobs->begin(), after.completed_jobs->end(),
                    [&](const Completed& each) { return child_of(each) != first; }));
  }
  const bool ends = std::holds_alternative<FinishRequests>(command) ||
                    std::holds_alternative<FinishAllRequests>(command);
  add(Reached::kAbortedUnderWay,
      ends && after.error == ErrorCode::kNone && has_two_under_way(before));
  add(Reached::kPreemptedUnderWay, has_elements(after.preempted) && has_two_under_way(before));
  add(Reached::kLoadFailed, has_elements(after.invalid_blocks));
  add(Reached::kEngineEnded, has_elements(after.failed));
  const auto* const reset = std::get_if<ResetPrefixCache>(&command);
  add(Reached::kResetAll, reset && reset->reset_connector && after.error == ErrorCode::kNone);
  if (after.error != ErrorCode::kNone) return;
  const auto* const update = std::get_if<Update>(&command);
  if (after.engine_ended.has_value()) {
    const bool by_params = *after.engine_ended == to_text(ErrorCode::kSeveralParams);
    add(Reached::kEndedByParams, by_params);
    add(Reached::kEndedByReport, update && !by_params);
    shared_.clear();
    add(Reached::kShutdownFailed, has_call(after, [](const ConnectorCallRecord& call) {
          return call.method == "shutdown" && call.answer == "failed";
        }));
    return;
  }
  add(Reached::kCrossLayers, has_call(after, [](const ConnectorCallRecord& call) {
        return call.method == "register_cross_layers_kv_cache";
      }));
  add(Reached::kLaterHandshake, has_call(after, [](const ConnectorCallRecord& call) {
        return call.method == "get_handshake_metadata" && *call.child > 0 && !call.answer.empty();
      }));
  add(Reached::kClientParams, has_elements(after.client_params));
  if (reset && reset->reset_connector) {
    add(Reached::kResetFailed, !reset->failing_children.empty());
    add(Reached::kResetUnsaid, !reset->silent_children.empty());
  }
  if (before.chosen.has_value() && after.chosen.has_value()) {
    for (const Chosen& then : *before.chosen) {
      add(Reached::kChoiceChanged,
          std::any_of(after.chosen->begin(), after.chosen->end(), [&](const Chosen& now) {
            return now.request == then.request && now.child != then.child;
          }));
    }
  }
  count_calls(after);
  if (update) count_reports(*update, before, after);
}

void Reach::count_calls(const Observation& after) {
  if (!after.connector_calls.has_value()) return;
  std::string request;
  bool had_hit = false;
  std::uint32_t num_holding = 0;
  std::string ended;
  for (const ConnectorCallRecord& call : *after.connector_calls) {
    if (call.method == "get_num_new_matched_tokens") {
      if (call.request != request || *call.child == 0) had_hit = false;
      request = call.request;
      const bool has_hit = call.answer != "0" && call.answer != "again";
      add(Reached::kLosingHit, had_hit && has_hit);
      add(Reached::kAskedAgainAfterHit, had_hit && call.answer == "again");
      had_hit = had_hit || has_hit;
    } else if (call.method == "update_state_after_alloc") {
      add(Reached::kScriptedLoads, call.num_tokens > 0);
    } else if (call.method == "request_finished") {
      if (call.request != ended) num_holding = 0;
      ended = call.request;
      num_holding += call.answer.starts_with("hold") ? 1 : 0;
      add(Reached::kHeldBySeveral, num_holding == 2);
      if (num_holding == 2) shared_.insert(call.request);
      add(Reached::kSeveralGroupsTold, call.blocks.size() > 1);
    } else if (call.method == "update_connector_output") {
      add(Reached::kJobsOfTwoRanks,
          std::adjacent_find(call.jobs.begin(), call.jobs.end()) != call.jobs.end());
    }
  }
}

void Reach::count_reports(const Update& command, const Observation& before,
                          const Observation& after) {
  for (const ChildReport& report : command.reports) {
    for (const ChildReport& other : command.reports) {
      if (report.rank != other.rank || report.child >= other.child) continue;
      add(Reached::kLoadErrorsOfTwo, !report.invalid.empty() && !other.invalid.empty());
      add(Reached::kStatsOfOneClass, !report.stats.empty() && !other.stats.empty() &&
                                         classes_[report.child] == classes_[other.child]);
    }
  }
  for (const std::string& name : *after.finished_sending) {
    add(Reached::kSentInTheEnd, shared_.contains(name));
  }
  if (!before.extra_saves.has_value() || !after.extra_saves.has_value()) return;
  for (const Extra& then : *before.extra_saves) {
    const auto now = std::find_if(
        after.extra_saves->begin(), after.extra_saves->end(),
        [&](const Extra& each) { return each.rank == then.rank && each.request == then.request; });
    add(Reached::kNoticeSwallowed,
        then.rank && (now == after.extra_saves->end() || now->saves < then.saves));
    const auto receives = [&](const ChildReport& report) {
      return report.rank == then.rank && std::find(report.recving.begin(), report.recving.end(),
                                                   then.request) != report.recving.end();
    };
    add(Reached::kReceivedWhileHeld,
        std::any_of(command.reports.begin(), command.reports.end(), receives));
  }
  for (const Extra& one : *after.extra_saves) {
    for (const Extra& other : *after.extra_saves) {
      add(Reached::kRanksApart,
          one.rank && other.rank && one.request == other.request && one.saves < other.saves);
    }
  }
}

}  // namespace kvfence::engine::multi
