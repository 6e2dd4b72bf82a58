#pragma once

/// Puts any MultiConnector that satisfies the concepts behind the interface that a lockstep drives,
/// with scripted children below it, and between its halves what an engine has there: metadata that
/// wait for the ranks, and reports that wait for all of them.
///
/// Refused here, since they are about what only the script and the engine know:
///   kNotInConfig     no such rank; answers of more children, or blocks of more groups, than there
///                    are
///   kStepsInFlight   handle_preemptions, start_load_kv: the step of the rank is not over
///   kNoStepInFlight  the same: no metadata wait; what else is about a rank: its step has not
///                    begun; update_connector_output: a rank has not reported

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/connectors/multi/multi_connector_target.h"
#include "contract/core/check.h"
#include "contract/scripted/scripted_child.h"
#include "properties/core/driver.h"

namespace kvfence {

/// Side has the types Scheduler, Worker and Aggregator, and make_scheduler(rules, children),
/// make_worker(children), make_aggregator(num_ranks): the place where a planted variant gets its
/// bug.
template <class Side>
class MultiConnectorDriver final : public DriverOf<MultiConnectorTarget> {
 public:
  MultiConnectorDriver(std::string name, Side side)
      : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup&) override {
    const std::optional<Profile> profile = profile_from_text(config.profile);
    KVFENCE_CHECK(profile, "reset with a configuration that was not validated");
    num_groups_ = config.num_groups;
    calls_ = std::make_shared<ChildCalls>();
    std::vector<ScriptedChild> children;
    for (std::uint32_t place = 0; place < config.children.size(); ++place) {
      children.emplace_back(place, config.children[place].hma, calls_);
    }
    scheduler_.emplace(side_.make_scheduler(rules_of(*profile), std::move(children)));
    ranks_.clear();
    for (std::uint32_t rank = 0; rank < config.num_ranks; ++rank) {
      std::vector<ScriptedWorkerChild> workers;
      for (std::uint32_t place = 0; place < config.children.size(); ++place) {
        workers.emplace_back(place, rank, config.children[place].connector_class, calls_);
      }
      ranks_.push_back({side_.make_worker(std::move(workers)), {}, {}, {}});
    }
    aggregator_.emplace(side_.make_aggregator(config.num_ranks));
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World&, Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative); }, command);
    if (!calls_->empty()) observation_.calls.emplace().swap(*calls_);
    calls_->clear();
    show_state(observe == Observe::kState);
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using Scheduler = typename Side::Scheduler;
  using Worker = typename Side::Worker;
  using Aggregator = typename Side::Aggregator;
  using Metadata = MultiConnectorMetadata<std::string>;
  using WorkerMetadata = MultiConnectorWorkerMetadata<ScriptedNumbers>;
  using Stats = std::vector<StatsOfClass<ScriptedNumbers>>;

  /// Of a step of a rank; empty where there are none.
  struct Report {
    KVConnectorWorkerOutput output;
    std::optional<Stats> stats;
    std::optional<WorkerMetadata> worker_meta;
  };

  struct RankState {
    Worker worker;
    std::deque<Metadata> waiting;  ///< oldest first
    bool in_step = false;
    std::deque<Report> reports;  ///< oldest first
  };

  void forget_answer() {
    observation_.matched.reset();
    observation_.metadata.reset();
    observation_.extra_async_saves.reset();
    observation_.hold.reset();
    observation_.kv_transfer_params.reset();
    observation_.events.reset();
    observation_.success.reset();
    observation_.finished_sending.reset();
    observation_.finished_recving.reset();
    observation_.invalid_block_ids.reset();
    observation_.stats.reset();
    observation_.worker_meta.reset();
    observation_.calls.reset();
  }

  /// Calls set(the answers of a child, its element or a default one) for each child; false if there
  /// are more elements than children.
  template <class Children, class Element, class Set>
  static bool script(Children children, const std::vector<Element>& elements, Set&& set) {
    if (elements.size() > children.size()) return false;
    for (std::size_t place = 0; place < children.size(); ++place) {
      set(children[place].answers(), place < elements.size() ? elements[place] : Element());
    }
    return true;
  }

  /// As many groups as there are; nothing if more are listed.
  std::optional<BlocksByGroup> groups_of(const multi_connector::BlockLists& blocks) const {
    if (blocks.size() > num_groups_) return std::nullopt;
    BlocksByGroup groups = blocks;
    groups.resize(num_groups_);
    return groups;
  }

  // ---- The scheduler's half ----

  ErrorCode run(const multi_connector::OnNewRequest& command) {
    return scheduler_->on_new_request(command.request);
  }

  ErrorCode run(const multi_connector::GetNumNewMatchedTokens& command) {
    if (!script(scheduler_->children(), command.answers,
                [](auto& answers, const auto& match) { answers.match = match; })) {
      return ErrorCode::kNotInConfig;
    }
    const MatchedTokens matched =
        scheduler_->get_num_new_matched_tokens(command.request, command.num_computed_tokens);
    std::string& text = observation_.matched.emplace();
    text = matched.num_tokens ? std::to_string(*matched.num_tokens) : "again";
    if (matched.load_async) text += " async";
    return ErrorCode::kNone;
  }

  ErrorCode run(const multi_connector::UpdateStateAfterAlloc& command) {
    const auto groups = groups_of(command.blocks);
    if (!groups) return ErrorCode::kNotInConfig;
    scheduler_->update_state_after_alloc(command.request, *groups, command.num_external_tokens);
    return ErrorCode::kNone;
  }

  ErrorCode run(const multi_connector::BuildConnectorMeta& command) {
    if (!script(scheduler_->children(), command.answers,
                [](auto& answers, const auto& metadata) { answers.metadata = metadata; })) {
      return ErrorCode::kNotInConfig;
    }
    Metadata metadata;
    scheduler_->build_connector_meta(metadata);
    observation_.metadata.emplace() = metadata.metadata;
    show_extra(metadata.extra_async_saves, observation_.extra_async_saves.emplace());
    for (RankState& rank : ranks_) rank.waiting.push_back(metadata);
    return ErrorCode::kNone;
  }

  ErrorCode run(const multi_connector::UpdateConnectorOutput&) {
    for (const RankState& rank : ranks_) {
      if (rank.reports.empty()) return ErrorCode::kNoStepInFlight;
    }
    std::vector<KVConnectorWorkerOutput> outputs;
    std::optional<Stats> stats;
    std::optional<WorkerMetadata> worker_meta;
    for (RankState& rank : ranks_) {
      Report report = std::move(rank.reports.front());
      rank.reports.pop_front();
      outputs.push_back(std::move(report.output));
      take_in(rank.worker, std::move(report.stats), stats);
      take_in(rank.worker, std::move(report.worker_meta), worker_meta);
    }
    AggregatedOutput aggregated;
    aggregator_->aggregate(outputs, aggregated);
    scheduler_->update_connector_output(aggregated, worker_meta ? &*worker_meta : nullptr);
    show_output(aggregated, stats, worker_meta);
    return ErrorCode::kNone;
  }

  ErrorCode run(const multi_connector::RequestFinished& command) {
    const auto groups = groups_of(command.blocks);
    if (!groups || !script(scheduler_->children(), command.answers,
                           [](auto& answers, const auto& finish) { answers.finish = finish; })) {
      return ErrorCode::kNotInConfig;
    }
    FinishedAnswer answer;
    const ErrorCode error = scheduler_->request_finished(command.request, *groups, answer);
    if (error != ErrorCode::kNone) return error;
    observation_.hold.emplace() = answer.hold_blocks;
    observation_.kv_transfer_params.emplace() = answer.kv_transfer_params;
    return error;
  }

  ErrorCode run(const multi_connector::TakeEvents& command) {
    if (!script(scheduler_->children(), command.answers,
                [](auto& answers, const auto& events) { answers.events = events.ids; })) {
      return ErrorCode::kNotInConfig;
    }
    std::vector<std::uint32_t>& events = observation_.events.emplace();
    events.clear();
    scheduler_->take_events(events);
    return ErrorCode::kNone;
  }

  ErrorCode run(const multi_connector::ResetCache& command) {
    if (!script(scheduler_->children(), command.answers,
                [](auto& answers, const auto& reset) { answers.reset_done = reset.done; })) {
      return ErrorCode::kNotInConfig;
    }
    observation_.success.emplace() = scheduler_->reset_cache();
    return ErrorCode::kNone;
  }

  // ---- The worker's half of a rank ----

  /// Why no step of the rank can begin.
  ErrorCode refusal_of_beginning(std::uint32_t rank) const {
    if (rank >= ranks_.size()) return ErrorCode::kNotInConfig;
    if (ranks_[rank].in_step) return ErrorCode::kStepsInFlight;
    return ranks_[rank].waiting.empty() ? ErrorCode::kNoStepInFlight : ErrorCode::kNone;
  }

  /// Why nothing can happen in a step of the rank.
  ErrorCode refusal_within(std::uint32_t rank) const {
    if (rank >= ranks_.size()) return ErrorCode::kNotInConfig;
    return ranks_[rank].in_step ? ErrorCode::kNone : ErrorCode::kNoStepInFlight;
  }

  ErrorCode run(const multi_connector::HandlePreemptions& command) {
    const ErrorCode error = refusal_of_beginning(command.rank);
    if (error != ErrorCode::kNone) return error;
    RankState& rank = ranks_[command.rank];
    rank.worker.handle_preemptions(rank.waiting.front());
    return error;
  }

  ErrorCode run(const multi_connector::StartLoadKV& command) {
    const ErrorCode error = refusal_of_beginning(command.rank);
    if (error != ErrorCode::kNone) return error;
    RankState& rank = ranks_[command.rank];
    rank.worker.bind_connector_metadata(rank.waiting.front());
    rank.waiting.pop_front();
    rank.worker.start_load_kv();
    rank.in_step = true;
    return error;
  }

  ErrorCode run(const multi_connector::WaitForLayerLoad& command) {
    const ErrorCode error = refusal_within(command.rank);
    if (error == ErrorCode::kNone) ranks_[command.rank].worker.wait_for_layer_load(command.layer);
    return error;
  }

  ErrorCode run(const multi_connector::SaveKVLayer& command) {
    const ErrorCode error = refusal_within(command.rank);
    if (error == ErrorCode::kNone) ranks_[command.rank].worker.save_kv_layer(command.layer);
    return error;
  }

  /// In upstream's order. Source: vLLM v0.19.0 v1/worker/kv_connector_model_runner_mixin.py
  /// _get_kv_connector_output.
  ErrorCode run(const multi_connector::GetKVConnectorOutput& command) {
    const ErrorCode error = refusal_within(command.rank);
    if (error != ErrorCode::kNone) return error;
    RankState& rank = ranks_[command.rank];
    if (!script(rank.worker.children(), command.answers,
                [](auto& answers, const auto& output) { answers = output; })) {
      return ErrorCode::kNotInConfig;
    }
    if (command.wait_for_save) rank.worker.wait_for_save();
    Report& report = rank.reports.emplace_back();
    FinishedTransfers finished;
    rank.worker.get_finished(command.finished_req_ids, finished);
    report.output.finished_sending = std::move(finished.sending);
    report.output.finished_recving = std::move(finished.recving);
    rank.worker.get_block_ids_with_load_errors(report.output.invalid_block_ids);
    if (!rank.worker.get_kv_connector_stats(report.stats.emplace())) report.stats.reset();
    if (!rank.worker.build_connector_worker_meta(report.worker_meta.emplace())) {
      report.worker_meta.reset();
    }
    rank.worker.clear_connector_metadata();
    rank.in_step = false;
    show_output(report.output, report.stats, report.worker_meta);
    return error;
  }

  /// The first rank that has any begins.
  template <class Part>
  static void take_in(const Worker& worker, std::optional<Part> part, std::optional<Part>& all) {
    if (!part) return;
    if (all) {
      worker.aggregate(*all, *part);
    } else {
      all = std::move(part);
    }
  }

  // ---- What is observed ----

  template <class T>
  static void show_sorted(const std::vector<T>& elements, Reusable<std::vector<T>>& shown) {
    std::vector<T>& sorted = shown.emplace();
    sorted = elements;
    std::sort(sorted.begin(), sorted.end());
  }

  template <class Output>
  void show_output(const Output& output, const std::optional<Stats>& stats,
                   const std::optional<WorkerMetadata>& worker_meta) {
    show_sorted(output.finished_sending, observation_.finished_sending);
    show_sorted(output.finished_recving, observation_.finished_recving);
    show_sorted(output.invalid_block_ids, observation_.invalid_block_ids);
    if (stats) {
      std::vector<multi_connector::ClassStats>& shown = observation_.stats.emplace();
      shown.clear();
      for (const auto& of_class : *stats) {
        shown.push_back({of_class.connector_class, of_class.stats.numbers});
      }
    }
    if (worker_meta) {
      std::vector<multi_connector::ChildMeta>& shown = observation_.worker_meta.emplace();
      shown.assign(worker_meta->metadata.size(), {});
      for (std::size_t place = 0; place < shown.size(); ++place) {
        const auto& part = worker_meta->metadata[place];
        if (part) shown[place].numbers = part->numbers;
      }
    }
  }

  static void show_extra(const std::vector<ExtraAsyncSaves>& extras,
                         std::vector<multi_connector::Extra>& shown) {
    shown.clear();
    for (const ExtraAsyncSaves& extra : extras) shown.push_back({extra.request, extra.saves});
    std::sort(shown.begin(), shown.end(),
              [](const auto& a, const auto& b) { return a.request < b.request; });
  }

  void show_state(bool with_state) {
    observation_.chosen.reset();
    observation_.extra.reset();
    observation_.ranks.reset();
    scheduler_->chosen(chosen_);
    scheduler_->extra_async_saves(extras_);
    observation_.num_chosen = static_cast<std::uint32_t>(chosen_.size());
    observation_.num_extra = static_cast<std::uint32_t>(extras_.size());
    if (with_state) {
      std::vector<multi_connector::Chosen>& shown = observation_.chosen.emplace();
      shown.clear();
      for (const ChosenConnector& chosen : chosen_) shown.push_back({chosen.request, chosen.child});
      std::sort(shown.begin(), shown.end(),
                [](const auto& a, const auto& b) { return a.request < b.request; });
      show_extra(extras_, observation_.extra.emplace());
      observation_.ranks.emplace().resize(ranks_.size());
    }
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      ranks_[at].worker.extra_async_saves(extras_);
      observation_.num_extra += static_cast<std::uint32_t>(extras_.size());
      if (!with_state) continue;
      multi_connector::Rank& rank = observation_.ranks.emplace()[at];
      rank.num_waiting = static_cast<std::uint32_t>(ranks_[at].waiting.size());
      rank.in_step = ranks_[at].in_step;
      rank.num_reports = static_cast<std::uint32_t>(ranks_[at].reports.size());
      show_extra(extras_, rank.extra);
    }
  }

  std::string name_;
  Side side_;
  std::uint32_t num_groups_ = 1;
  std::shared_ptr<ChildCalls> calls_;
  std::optional<Scheduler> scheduler_;
  std::vector<RankState> ranks_;
  std::optional<Aggregator> aggregator_;
  Observation observation_;
  std::vector<ChosenConnector> chosen_;
  std::vector<ExtraAsyncSaves> extras_;
};

}  // namespace kvfence
