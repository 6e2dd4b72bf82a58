#pragma once

/// Puts a scheduler with an offloading connector, the workers' halves of all ranks and their copy
/// engines behind the interface that a lockstep drives.
///
/// `update` runs the oldest step on each rank, in the order of the ranks: handle_preemptions,
/// start_load_kv, wait_for_save if the step has tokens, get_finished; then the scheduler gets what
/// was sampled and the ranks' report. If the scheduler refuses that, nothing has run.
///
/// Besides the scheduler's own codes and those that the commands name, and looked for before them:
///   kAlreadyDeclared  add_request: the name was used before
///   kNotInConfig      add_request: several groups, without skip_reading_prefix_cache
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one;
///                     advance_transfer: to "submitted"
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step

#include <algorithm>
#include <cmath>
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

#include "contract/check.h"
#include "contract/connector_target.h"
#include "contract/implementation.h"
#include "contract/kv_connector_worker.h"
#include "contract/kv_output_aggregator.h"
#include "contract/offloading_connector.h"
#include "contract/scheduler.h"
#include "contract/scripted_transfer_engine.h"
#include "properties/scheduler_observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug:
///   Side::Scheduler, Side::Aggregator
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
///   make_connector(const ConnectorSetup&) -> std::unique_ptr<OffloadingConnectorScheduler>
///   make_worker(const ConnectorSetup&, rank) -> std::unique_ptr<KVConnectorWorker>
///   make_aggregator(num_workers)
/// Null, which a connector from elsewhere may give, is a failure of the implementation.
template <class Side>
requires Scheduler<typename Side::Scheduler> && KVOutputAggregator<typename Side::Aggregator>
class ConnectorDriver final : public Implementation<ConnectorTarget> {
 public:
  ConnectorDriver(std::string name, Side side) : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    const Parsed<ConnectorSetup> parsed = make_connector_setup(config);
    KVFENCE_CHECK(parsed, "reset with a configuration that was not validated");
    setup_ = *parsed;
    transfers_may_fail_ = config.transfers_may_fail;
    auto connector = side_.make_connector(setup_);
    if (!connector) return ImplementationFailure{"the scheduler's half is no offloading connector"};
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

  std::optional<ImplementationFailure> submit(const Command& command, const World& world,
                                              Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observer_.observe_numbers(*scheduler_, observation_);
    connector().policy_lists(lists_);
    observation_.num_free_slots = connector().num_free_slots();
    observation_.target_t1_size = lists_.target_t1_size;
    if (observe == Observe::kState) {
      observer_.observe_state(*scheduler_, observation_);
      observe_connector_state();
    } else {
      forget_state();
    }
    return std::nullopt;
  }

  std::optional<ImplementationFailure> collect(Observation& observation) override {
    std::swap(observation, observation_);
    return std::nullopt;
  }

 private:
  using SchedulerType = typename Side::Scheduler;
  using Observer = SchedulerObserver<SchedulerType>;

  /// One rank: its half of the connector, and what copies its blocks.
  struct Rank {
    KVConnectorWorkerHandle worker;
    ScriptedTransferEngine engine;
  };

  /// What a refused update leaves as it was.
  struct Workers {
    std::vector<Rank> ranks;
    typename Side::Aggregator aggregator;
  };

  /// A planned step. The names of the finished are kept: their indices may come back into use.
  struct PlannedStep {
    SchedulerOutput output;
    std::vector<std::string> finished;
  };

  void forget_answer() {
    Observer::forget_answer(observation_);
    observation_.loads.reset();
    observation_.stores.reset();
    observation_.requests_to_flush.reset();
    observation_.jobs_to_flush.reset();
    observation_.finished_recving.reset();
    observation_.finished_sending.reset();
    observation_.invalid_blocks.reset();
    observation_.completed_jobs.reset();
    observation_.transfer_stats.reset();
  }

  void forget_state() {
    Observer::forget_state(observation_);
    observation_.transfers.reset();
    observation_.t1.reset();
    observation_.t2.reset();
    observation_.b1.reset();
    observation_.b2.reset();
  }

  OffloadingConnectorScheduler& connector() {
    return static_cast<OffloadingConnectorScheduler&>(*scheduler_->connector());
  }

  static const OffloadingConnectorMetadata& metadata_of(const SchedulerOutput& output) {
    KVFENCE_CHECK(output.kv_connector_metadata, "an offloading connector always has metadata");
    return static_cast<const OffloadingConnectorMetadata&>(*output.kv_connector_metadata);
  }

  // ---- Commands ----

  ErrorCode run(const connector::AddRequest& command, const World& world) {
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
    request.kv_transfer_params.max_offload_tokens = command.max_offload_tokens;
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error == ErrorCode::kNone) observer_.add(index, command.id);
    return error;
  }

  ErrorCode run(const connector::Schedule&, const World&) {
    PlannedStep& step = in_flight_.emplace_back();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      in_flight_.pop_back();
      return error;
    }
    observer_.names_of(step.output.finished, step.finished);
    observer_.observe_output(*scheduler_, step.output, observation_);
    observe_metadata(metadata_of(step.output));
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
    sort_by_declaration(aggregated_.finished_recving, world);
    sort_by_declaration(aggregated_.finished_sending, world);
    const KVConnectorOutput report = report_of(aggregated_, world);
    runner_output_.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = scheduler_->update_from_output(step.output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) {
      std::swap(*workers_, before);
      return error;
    }
    in_flight_.pop_front();
    observer_.observe_outputs(outputs_, observation_);
    observe_report();
    return ErrorCode::kNone;
  }

  void run_on_all_ranks(const PlannedStep& step) {
    const OffloadingConnectorMetadata& metadata = metadata_of(step.output);
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

  /// Upstream has sets of names; each of these was declared.
  static void sort_by_declaration(std::vector<std::string>& names, const World& world) {
    std::sort(names.begin(), names.end(), [&](const std::string& left, const std::string& right) {
      return world.find(left)->number < world.find(right)->number;
    });
  }

  KVConnectorOutput report_of(const AggregatedOutput& aggregated, const World& world) const {
    KVConnectorOutput report;
    for (const std::string& name : aggregated.finished_recving) {
      report.finished_recving.push_back(Observer::index_of(*scheduler_, world, name));
    }
    for (const std::string& name : aggregated.finished_sending) {
      report.finished_sending.push_back(Observer::index_of(*scheduler_, world, name));
    }
    report.invalid_block_ids = aggregated.invalid_block_ids;
    report.completed_jobs = aggregated.completed_jobs;
    return report;
  }

  ErrorCode run(const connector::AdvanceTransfer& command, const World&) {
    const bool fails = command.progress == TransferProgress::kFailed;
    if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
    if (command.rank >= workers_->ranks.size()) return ErrorCode::kNotInConfig;
    if (fails && !transfers_may_fail_) return ErrorCode::kNotInConfig;
    ScriptedTransferEngine& engine = workers_->ranks[command.rank].engine;
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      const bool has_ended = transfer.progress == TransferProgress::kFinished ||
                             transfer.progress == TransferProgress::kFailed;
      if (transfer.job.job != command.job || has_ended) continue;
      const bool fences = setup_.spec.manager.rules.offload_fences_reuse;
      if (fails && transfer.job.spec.is_store && !fences) return ErrorCode::kNotInProfile;
    }
    return engine.advance(command.job, command.progress, command.microseconds)
               ? ErrorCode::kNone
               : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const connector::ReportTransferAgain& command, const World&) {
    if (command.rank >= workers_->ranks.size()) return ErrorCode::kNotInConfig;
    return workers_->ranks[command.rank].engine.report_again(command.job) ? ErrorCode::kNone
                                                                          : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const connector::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    std::vector<RequestIndex> indices;
    for (const std::string& name : command.requests) {
      indices.push_back(Observer::index_of(*scheduler_, world, name));
    }
    scheduler_->finish_requests(indices, command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const connector::ResetPrefixCache& command, const World&) {
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

  // ---- Observations ----

  void observe_metadata(const OffloadingConnectorMetadata& metadata) {
    observe_jobs(metadata.loads, observation_.loads.emplace());
    observe_jobs(metadata.stores, observation_.stores.emplace());
    observation_.requests_to_flush.emplace() = metadata.requests_to_flush;
    observation_.jobs_to_flush.emplace() = metadata.jobs_to_flush;
  }

  static void observe_jobs(const std::vector<TransferJob>& jobs,
                           std::vector<connector::Transfer>& transfers) {
    transfers.resize(jobs.size());
    for (std::size_t index = 0; index < jobs.size(); ++index) {
      transfers[index].job = jobs[index].job;
      transfers[index].request = jobs[index].request;
      transfers[index].gpu_blocks = jobs[index].spec.gpu_blocks;
      transfers[index].group_sizes = jobs[index].spec.group_sizes;
      transfers[index].block_indices = jobs[index].spec.block_indices;
      transfers[index].slots = jobs[index].spec.slots;
    }
  }

  void observe_report() {
    observation_.finished_recving.emplace() = aggregated_.finished_recving;
    observation_.finished_sending.emplace() = aggregated_.finished_sending;
    observation_.invalid_blocks.emplace() = aggregated_.invalid_block_ids;
    std::vector<connector::Completed>& completed = observation_.completed_jobs.emplace();
    completed.resize(aggregated_.completed_jobs.size());
    for (std::size_t index = 0; index < completed.size(); ++index) {
      completed[index].job = aggregated_.completed_jobs[index].job;
      completed[index].num_workers = aggregated_.completed_jobs[index].num_workers;
      completed[index].num_failed = aggregated_.completed_jobs[index].num_failed;
    }
    std::vector<connector::Operation>& stats = observation_.transfer_stats.emplace();
    stats.clear();
    for (const TransferOperations& operations : aggregated_.stats) {
      for (const OffloadingOperationMetrics& op : operations.ops) {
        stats.push_back({operations.transfer_type, static_cast<std::uint32_t>(op.op_size),
                         static_cast<std::uint32_t>(std::lround(op.op_time * 1e6))});
      }
    }
  }

  void observe_connector_state() {
    std::vector<connector::EngineTransfer>& transfers = observation_.transfers.emplace();
    transfers.clear();
    for (std::size_t rank = 0; rank < workers_->ranks.size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each :
           workers_->ranks[rank].engine.transfers()) {
        connector::EngineTransfer& transfer = transfers.emplace_back();
        transfer.rank = static_cast<std::uint32_t>(rank);
        transfer.job = each.job.job;
        transfer.request = each.job.request;
        transfer.store = each.job.spec.is_store;
        transfer.progress = each.progress;
      }
    }
    observe_blocks(lists_.t1, observation_.t1.emplace());
    observe_blocks(lists_.t2, observation_.t2.emplace());
    observe_ghosts(lists_.b1, observation_.b1.emplace());
    observe_ghosts(lists_.b2, observation_.b2.emplace());
  }

  static void observe_blocks(const std::vector<PolicyEntry>& entries,
                             std::vector<connector::OffloadedBlock>& blocks) {
    blocks.resize(entries.size());
    for (std::size_t index = 0; index < entries.size(); ++index) {
      const BlockStatus& status = entries[index].status;
      blocks[index].key.bytes = entries[index].key;
      blocks[index].slot = status.slot;
      blocks[index].ready = status.ref_cnt != kNotReady;
      blocks[index].readers = static_cast<std::uint32_t>(std::max(status.ref_cnt, 0));
    }
  }

  static void observe_ghosts(const std::vector<OffloadKey>& ghosts, KeyList& keys) {
    keys.assign(ghosts.begin(), ghosts.end());
  }

  std::string name_;
  Side side_;
  ConnectorSetup setup_;
  bool transfers_may_fail_ = false;
  std::optional<SchedulerType> scheduler_;
  std::optional<Workers> workers_;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  AggregatedOutput aggregated_;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
  PolicyLists lists_;
};

}  // namespace kvfence
