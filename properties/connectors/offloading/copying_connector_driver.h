#pragma once

/// What the drivers share of targets in which a scheduler's connector copies blocks: the workers'
/// halves of all ranks, and one copy engine a rank whose progress is commands.
///
/// `update` runs the oldest step on each rank, in the order of the ranks: handle_preemptions,
/// start_load_kv, wait_for_save if the step has tokens, get_finished; then the scheduler gets what
/// was sampled and the ranks' report. If the scheduler refuses that, nothing has run.
///
/// Besides the scheduler's own codes and those that the commands name, and looked for before them:
///   kAlreadyDeclared  add_request: the name was used before
///   kNotInConfig      add_request: several groups, without skip_reading_prefix_cache
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/connectors/offloading/connector_target.h"
#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_transfer_engine.h"
#include "properties/core/driver.h"
#include "properties/scheduler/observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug; Setup is what
/// they are made from:
///   Side::Scheduler, Side::Aggregator
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
///   make_connector(const Setup&) -> std::unique_ptr<Connector>
///   make_worker(const Setup&, rank) -> std::unique_ptr<KVConnectorWorker>
///   make_aggregator(num_workers)
/// Null, which a connector from elsewhere may give, is a failure of the implementation.
///
/// `Derived` runs the other commands and observes what is its own, and befriends this one:
///   kConnectorName
///   make_setup(config, setup) -> Setup
///   run(command, world), beside the ones here
///   forget_connector_answer(), forget_connector_state()
///   observe_metadata(const Metadata&), observe_report(const AggregatedOutput&)
///   observe_connector_numbers(), observe_connector_state()
template <class Derived, class TargetType, class Side, class SetupType, class ConnectorType,
          class MetadataType>
requires Scheduler<typename Side::Scheduler> && KVOutputAggregator<typename Side::Aggregator>
class CopyingConnectorDriver : public DriverOf<TargetType> {
 public:
  using Config = typename TargetType::Config;
  using Setup = typename TargetType::Setup;
  using Command = typename TargetType::Command;
  using Observation = typename TargetType::Observation;
  using World = typename TargetType::World;

  CopyingConnectorDriver(std::string name, Side side)
      : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    setup_ = derived().make_setup(config, setup);
    auto connector = side_.make_connector(setup_);
    if (!connector) {
      return ImplementationFailure{"the scheduler's half is no " +
                                   std::string(Derived::kConnectorName)};
    }
    scheduler_.emplace(
        side_.make_scheduler(setup_.scheduler, KVConnectorHandle(std::move(connector))));
    Workers workers{{}, side_.make_aggregator(setup_.spec.num_workers)};
    for (std::uint32_t rank = 0; rank < setup_.spec.num_workers; ++rank) {
      auto worker = side_.make_worker(setup_, rank);
      if (!worker) return ImplementationFailure{"there is no worker's half"};
      workers.ranks.push_back({KVConnectorWorkerHandle(std::move(worker)), {}});
    }
    workers_.emplace(std::move(workers));
    observer_.reset();
    in_flight_.clear();
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    Observer::forget_answer(observation_);
    derived().forget_connector_answer();
    observation_.error = std::visit(
        [&](const auto& alternative) { return derived().run(alternative, world); }, command);
    observer_.observe(*scheduler_, observe, observation_);
    derived().observe_connector_numbers();
    if (observe == Observe::kState) {
      derived().observe_connector_state();
    } else {
      derived().forget_connector_state();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 protected:
  using Observer = SchedulerObserver<typename Side::Scheduler>;

  /// One rank: its half of the connector, and what copies its blocks.
  struct Rank {
    KVConnectorWorkerHandle worker;
    ScriptedTransferEngine engine;
  };

  ConnectorType& connector() { return static_cast<ConnectorType&>(*scheduler_->connector()); }
  const Side& side() const { return side_; }
  const SetupType& setup() const { return setup_; }
  std::vector<Rank>& ranks() { return workers_->ranks; }
  Observation& observation() { return observation_; }
  const Observer& observer() const { return observer_; }

  // The commands that all of these targets have.
  using AddRequest = std::variant_alternative_t<0, Command>;

  ErrorCode run(const AddRequest& command, const World& world) {
    const scheduler::World::Entry* entry = world.find(command.id);
    if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
    if (setup_.spec.kv_cache.groups.size() > 1 && !command.skip_reading_prefix_cache) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    request.max_tokens = command.max_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    if constexpr (requires { command.max_offload_tokens; }) {
      request.kv_transfer_params.max_offload_tokens = command.max_offload_tokens;
    }
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error == ErrorCode::kNone) observer_.add(index, command.id);
    return error;
  }

  ErrorCode run(const scheduler::Schedule&, const World&) {
    PlannedStep& step = in_flight_.emplace_back();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      in_flight_.pop_back();
      return error;
    }
    observer_.names_of(step.output.finished, step.finished);
    observer_.observe_output(*scheduler_, step.output, observation_);
    derived().observe_metadata(metadata_of(step.output));
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::Update& command, const World& world) {
    for (const scheduler::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    if (in_flight_.empty()) return ErrorCode::kNoStepInFlight;
    const PlannedStep& step = in_flight_.front();
    if (!observer_.sample(command.samples, command.token, /*num_accepted=*/0, step.output,
                          runner_output_.sampled_token_ids)) {
      return ErrorCode::kWrongTokenCount;
    }
    Workers before = *workers_;
    run_on_all_ranks(step);
    Observer::sort_by_declaration(aggregated_.finished_recving, world);
    Observer::sort_by_declaration(aggregated_.finished_sending, world);
    const KVConnectorOutput report = Observer::report_of(*scheduler_, world, aggregated_);
    runner_output_.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = scheduler_->update_from_output(step.output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) {
      std::swap(*workers_, before);
      return error;
    }
    in_flight_.pop_front();
    observer_.observe_outputs(outputs_, observation_);
    derived().observe_report(aggregated_);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_requests(Observer::indices_of(*scheduler_, world, command.requests),
                                command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const scheduler::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::ResetPrefixCache& command, const World&) {
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

 private:
  /// What a refused update leaves as it was: a broken connector's report may be refused, which is
  /// known only when the ranks have run.
  struct Workers {
    std::vector<Rank> ranks;
    typename Side::Aggregator aggregator;
  };

  /// A planned step. The names of the finished are kept: their indices may come back into use.
  struct PlannedStep {
    SchedulerOutput output;
    std::vector<std::string> finished;
  };

  Derived& derived() { return static_cast<Derived&>(*this); }

  static const MetadataType& metadata_of(const SchedulerOutput& output) {
    KVFENCE_CHECK(output.kv_connector_metadata, "such a connector always has metadata");
    return static_cast<const MetadataType&>(*output.kv_connector_metadata);
  }

  void run_on_all_ranks(const PlannedStep& step) {
    const MetadataType& metadata = metadata_of(step.output);
    worker_outputs_.resize(workers_->ranks.size());
    for (std::size_t rank = 0; rank < worker_outputs_.size(); ++rank) {
      KVConnectorWorkerHandle& worker = workers_->ranks[rank].worker;
      ScriptedTransferEngine& engine = workers_->ranks[rank].engine;
      worker->handle_preemptions(metadata, engine);
      worker->start_load_kv(metadata, engine);
      if (step.output.total_num_scheduled_tokens > 0) worker->wait_for_save(metadata, engine);
      worker->get_finished(metadata, step.finished, engine, worker_outputs_[rank]);
    }
    workers_->aggregator.aggregate(std::span<const KVConnectorWorkerOutput>(worker_outputs_),
                                   aggregated_);
  }

  std::string name_;
  Side side_;
  SetupType setup_;
  std::optional<typename Side::Scheduler> scheduler_;
  std::optional<Workers> workers_;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  AggregatedOutput aggregated_;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
};

}  // namespace kvfence
