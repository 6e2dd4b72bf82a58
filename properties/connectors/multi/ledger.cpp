#include "properties/connectors/multi/ledger.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "contract/core/check.h"

namespace kvfence::multi_connector {
namespace {

/// The answer at a place; a default one behind the last.
template <class Answer>
Answer answer_at(const std::vector<Answer>& answers, std::size_t place) {
  return place < answers.size() ? answers[place] : Answer();
}

template <class T>
std::vector<T> listed(const std::set<T>& elements) {
  return std::vector<T>(elements.begin(), elements.end());
}

std::vector<Extra> extras_of(const std::map<std::string, std::uint32_t>& numbers) {
  std::vector<Extra> extras;
  for (const auto& [request, saves] : numbers) extras.push_back({request, saves});
  return extras;
}

void append(std::vector<std::uint32_t>& into, const std::vector<std::uint32_t>& more) {
  into.insert(into.end(), more.begin(), more.end());
}

void add_stats(std::vector<ClassStats>& stats, const ClassStats& more) {
  const auto same = std::find_if(stats.begin(), stats.end(), [&](const ClassStats& candidate) {
    return candidate.connector_class == more.connector_class;
  });
  if (same == stats.end()) {
    stats.push_back(more);
  } else {
    append(same->numbers, more.numbers);
  }
}

}  // namespace

Ledger::Ledger(const Config& config) : config_(config), ranks_(config.num_ranks) {
  const auto profile = profile_from_text(config.profile);
  KVFENCE_CHECK(profile, "a ledger for a configuration that was not validated");
  rules_ = rules_of(*profile);
}

Observation Ledger::apply(const Command& command) {
  Observation expected;
  expected.error = std::visit([&](const auto& one) { return refusal(one); }, command);
  if (expected.error == ErrorCode::kNone) {
    std::visit([&](const auto& one) { run(one, expected); }, command);
  }
  show_state(expected);
  return expected;
}

bool Ledger::takes_all_groups() const {
  return rules_.multi_connector_hma && std::all_of(config_.children.begin(), config_.children.end(),
                                                   [](const Child& child) { return child.hma; });
}

BlocksByGroup Ledger::groups_of(const BlockLists& blocks) const {
  BlocksByGroup groups = blocks;
  groups.resize(config_.num_groups);
  return groups;
}

ChildCall& Ledger::call(std::string_view method, std::size_t child, Observation& expected) const {
  ChildCall& record = expected.calls.emplace().emplace_back();
  record.method = method;
  record.child = static_cast<std::uint32_t>(child);
  return record;
}

void Ledger::tell_all(std::string_view method, std::optional<std::uint32_t> rank,
                      const std::string& layer, Observation& expected) const {
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call(method, child, expected);
    record.rank = rank;
    record.layer = layer;
  }
}

void Ledger::show_state(Observation& expected) const {
  std::vector<Chosen>& chosen = expected.chosen.emplace();
  for (const auto& [request, place] : chosen_) chosen.push_back({request, place});
  expected.extra.emplace() = extras_of(extra_);
  expected.num_chosen = static_cast<std::uint32_t>(chosen_.size());
  expected.num_extra = static_cast<std::uint32_t>(extra_.size());
  std::vector<Rank>& ranks = expected.ranks.emplace();
  for (const RankBooks& books : ranks_) {
    ranks.push_back({static_cast<std::uint32_t>(books.waiting.size()), books.in_step,
                     static_cast<std::uint32_t>(books.reports.size()), extras_of(books.owed)});
    expected.num_extra += static_cast<std::uint32_t>(books.owed.size());
  }
}

void Ledger::show_report(const Report& report, Observation& expected) {
  expected.finished_sending.emplace() = listed(report.sending);
  expected.finished_recving.emplace() = listed(report.recving);
  expected.invalid_block_ids.emplace() = listed(report.invalid);
  if (!report.stats.empty()) expected.stats.emplace() = report.stats;
  if (!report.meta.empty()) expected.worker_meta.emplace() = report.meta;
}

// ---- Refusals ----

ErrorCode Ledger::refusal(const OnNewRequest&) const {
  return rules_.connector_learns_new_requests ? ErrorCode::kNone : ErrorCode::kNotInProfile;
}

ErrorCode Ledger::refusal(const GetNumNewMatchedTokens& command) const {
  return command.answers.size() > num_children() ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const UpdateStateAfterAlloc& command) const {
  return command.blocks.size() > config_.num_groups ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const BuildConnectorMeta& command) const {
  return command.answers.size() > num_children() ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const UpdateConnectorOutput&) const {
  const bool all_reported = std::all_of(
      ranks_.begin(), ranks_.end(), [](const RankBooks& books) { return !books.reports.empty(); });
  return all_reported ? ErrorCode::kNone : ErrorCode::kNoStepInFlight;
}

ErrorCode Ledger::refusal(const RequestFinished& command) const {
  const bool fits =
      command.answers.size() <= num_children() && command.blocks.size() <= config_.num_groups;
  return fits ? ErrorCode::kNone : ErrorCode::kNotInConfig;
}

ErrorCode Ledger::refusal(const TakeEvents& command) const {
  return command.answers.size() > num_children() ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const ResetCache& command) const {
  return command.answers.size() > num_children() ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal(const HandlePreemptions& command) const {
  return refusal_of_beginning(command.rank);
}

ErrorCode Ledger::refusal(const StartLoadKV& command) const {
  return refusal_of_beginning(command.rank);
}

ErrorCode Ledger::refusal(const WaitForLayerLoad& command) const {
  return refusal_within(command.rank);
}

ErrorCode Ledger::refusal(const SaveKVLayer& command) const { return refusal_within(command.rank); }

ErrorCode Ledger::refusal(const GetKVConnectorOutput& command) const {
  const ErrorCode error = refusal_within(command.rank);
  if (error != ErrorCode::kNone) return error;
  return command.answers.size() > num_children() ? ErrorCode::kNotInConfig : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_of_beginning(std::uint32_t rank) const {
  if (rank >= ranks_.size()) return ErrorCode::kNotInConfig;
  if (ranks_[rank].in_step) return ErrorCode::kStepsInFlight;
  return ranks_[rank].waiting.empty() ? ErrorCode::kNoStepInFlight : ErrorCode::kNone;
}

ErrorCode Ledger::refusal_within(std::uint32_t rank) const {
  if (rank >= ranks_.size()) return ErrorCode::kNotInConfig;
  return ranks_[rank].in_step ? ErrorCode::kNone : ErrorCode::kNoStepInFlight;
}

// ---- The scheduler's half ----

void Ledger::run(const OnNewRequest& command, Observation& expected) {
  for (std::size_t child = 0; child < num_children(); ++child) {
    call("on_new_request", child, expected).request = command.request;
  }
}

void Ledger::run(const GetNumNewMatchedTokens& command, Observation& expected) {
  Match first;
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call("get_num_new_matched_tokens", child, expected);
    record.request = command.request;
    record.num_tokens = command.num_computed_tokens;
    const Match answer = answer_at(command.answers, child);
    if (!answer.num_tokens) {
      expected.matched.emplace() = "again";
      return;
    }
    if (*first.num_tokens == 0 && *answer.num_tokens > 0) {
      first = answer;
      chosen_[command.request] = static_cast<std::uint32_t>(child);
    }
  }
  expected.matched.emplace() =
      std::to_string(*first.num_tokens) + (first.load_async ? " async" : "");
}

void Ledger::run(const UpdateStateAfterAlloc& command, Observation& expected) {
  const auto chosen = chosen_.find(command.request);
  for (std::size_t child = 0; child < num_children(); ++child) {
    const bool loads = chosen != chosen_.end() && chosen->second == child;
    ChildCall& record = call("update_state_after_alloc", child, expected);
    record.request = command.request;
    record.num_tokens = loads ? command.num_external_tokens : 0;
    static_cast<BlocksByGroup&>(record.blocks) =
        loads ? groups_of(command.blocks) : BlocksByGroup(config_.num_groups);
  }
}

void Ledger::run(const BuildConnectorMeta& command, Observation& expected) {
  tell_all("build_connector_meta", std::nullopt, {}, expected);
  Step step;
  for (std::size_t child = 0; child < num_children(); ++child) {
    step.metadata.push_back(answer_at(command.answers, child));
  }
  step.extra = extras_of(extra_);
  extra_.clear();
  for (RankBooks& rank : ranks_) rank.waiting.push_back(step);
  expected.metadata.emplace() = step.metadata;
  expected.extra_async_saves.emplace() = step.extra;
}

Ledger::Requests Ledger::reported_by_all(Requests Report::*list, const std::vector<Report>& reports,
                                         std::map<std::string, std::uint32_t>& num_reports) const {
  Requests complete;
  for (const Report& report : reports) {
    for (const std::string& request : report.*list) {
      if (++num_reports[request] < config_.num_ranks) continue;
      num_reports.erase(request);
      complete.insert(request);
    }
  }
  return complete;
}

void Ledger::run(const UpdateConnectorOutput&, Observation& expected) {
  std::vector<Report> reports;
  Report all;
  for (RankBooks& rank : ranks_) {
    reports.push_back(std::move(rank.reports.front()));
    rank.reports.pop_front();
    const Report& report = reports.back();
    all.invalid.insert(report.invalid.begin(), report.invalid.end());
    for (const ClassStats& stats : report.stats) add_stats(all.stats, stats);
    if (!report.meta.empty()) all.meta.resize(num_children());
    for (std::size_t child = 0; child < report.meta.size(); ++child) {
      if (!report.meta[child].numbers) continue;
      if (!all.meta[child].numbers) all.meta[child].numbers.emplace();
      append(*all.meta[child].numbers, *report.meta[child].numbers);
    }
  }
  all.sending = reported_by_all(&Report::sending, reports, num_sent_);
  all.recving = reported_by_all(&Report::recving, reports, num_received_);
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call("update_connector_output", child, expected);
    record.sending = listed(all.sending);
    record.recving = listed(all.recving);
    record.invalid = listed(all.invalid);
    record.meta = answer_at(all.meta, child).numbers;
  }
  show_report(all, expected);
}

void Ledger::run(const RequestFinished& command, Observation& expected) {
  const BlocksByGroup groups = groups_of(command.blocks);
  std::uint32_t num_holders = 0;
  std::optional<std::string> params;
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call(
        takes_all_groups() ? "request_finished_all_groups" : "request_finished", child, expected);
    record.request = command.request;
    static_cast<BlocksByGroup&>(record.blocks) = groups;
    const Finish answer = answer_at(command.answers, child);
    if (answer.params && params) {
      expected.error = ErrorCode::kSeveralParams;
      return;
    }
    if (answer.params) params = answer.params;
    num_holders += answer.hold;
  }
  expected.hold.emplace() = num_holders > 0;
  expected.kv_transfer_params.emplace() = params;
  if (num_holders > 1) extra_[command.request] = num_holders - 1;
  chosen_.erase(command.request);
}

void Ledger::run(const TakeEvents& command, Observation& expected) {
  tell_all("take_events", std::nullopt, {}, expected);
  std::vector<std::uint32_t>& events = expected.events.emplace();
  for (const Events& answer : command.answers) append(events, answer.ids);
}

void Ledger::run(const ResetCache& command, Observation& expected) {
  tell_all("reset_cache", std::nullopt, {}, expected);
  expected.success.emplace() =
      std::none_of(command.answers.begin(), command.answers.end(),
                   [](const Reset& answer) { return answer.done == false; });
}

// ---- The worker's half of a rank ----

void Ledger::run(const HandlePreemptions& command, Observation& expected) {
  const Step& step = ranks_[command.rank].waiting.front();
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call("handle_preemptions", child, expected);
    record.rank = command.rank;
    record.metadata = step.metadata[child];
  }
}

void Ledger::run(const StartLoadKV& command, Observation& expected) {
  RankBooks& rank = ranks_[command.rank];
  const Step step = std::move(rank.waiting.front());
  rank.waiting.pop_front();
  rank.in_step = true;
  for (const Extra& extra : step.extra) rank.owed[extra.request] = extra.saves;
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call("bind_connector_metadata", child, expected);
    record.rank = command.rank;
    record.metadata = step.metadata[child];
  }
  tell_all("start_load_kv", command.rank, {}, expected);
}

void Ledger::run(const WaitForLayerLoad& command, Observation& expected) {
  tell_all("wait_for_layer_load", command.rank, command.layer, expected);
}

void Ledger::run(const SaveKVLayer& command, Observation& expected) {
  tell_all("save_kv_layer", command.rank, command.layer, expected);
}

void Ledger::run(const GetKVConnectorOutput& command, Observation& expected) {
  RankBooks& rank = ranks_[command.rank];
  if (command.wait_for_save) tell_all("wait_for_save", command.rank, {}, expected);
  const Requests finished(command.finished_req_ids.begin(), command.finished_req_ids.end());
  for (std::size_t child = 0; child < num_children(); ++child) {
    ChildCall& record = call("get_finished", child, expected);
    record.rank = command.rank;
    record.finished = listed(finished);
  }
  for (std::string_view method : {"get_block_ids_with_load_errors", "get_kv_connector_stats",
                                  "build_connector_worker_meta", "clear_connector_metadata"}) {
    tell_all(method, command.rank, {}, expected);
  }

  Report report;
  for (std::size_t child = 0; child < num_children(); ++child) {
    const Output answer = answer_at(command.answers, child);
    for (const std::string& request : Requests(answer.sending.begin(), answer.sending.end())) {
      const auto owed = rank.owed.find(request);
      if (owed == rank.owed.end()) {
        report.sending.insert(request);
      } else if (--owed->second == 0) {
        rank.owed.erase(owed);
      }
    }
    report.recving.insert(answer.recving.begin(), answer.recving.end());
    report.invalid.insert(answer.invalid.begin(), answer.invalid.end());
    if (answer.stats) {
      add_stats(report.stats, {config_.children[child].connector_class, *answer.stats});
    }
    if (answer.meta) {
      report.meta.resize(num_children());
      report.meta[child].numbers = answer.meta;
    }
  }
  rank.in_step = false;
  show_report(report, expected);
  rank.reports.push_back(std::move(report));
}

}  // namespace kvfence::multi_connector
