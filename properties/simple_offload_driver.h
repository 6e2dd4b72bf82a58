#pragma once

/// Puts a scheduler with a simple CPU offload connector, the workers' halves of all ranks and their
/// copy engines behind the interface that a lockstep drives.
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
///                     advance_copy: neither part nor finished
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step

#include <algorithm>
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
#include "contract/implementation.h"
#include "contract/kv_connector_worker.h"
#include "contract/kv_output_aggregator.h"
#include "contract/scheduler.h"
#include "contract/scripted_transfer_engine.h"
#include "contract/simple_cpu_offload.h"
#include "contract/simple_offload_target.h"
#include "properties/scheduler_observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug:
///   Side::Scheduler, Side::Aggregator
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
///   make_connector(const SimpleOffloadSetup&) -> std::unique_ptr<SimpleCPUOffloadScheduler>
///   make_worker(const SimpleOffloadSetup&, rank) -> std::unique_ptr<KVConnectorWorker>
///   make_aggregator(num_workers)
/// Null, which a connector from elsewhere may give, is a failure of the implementation.
template <class Side>
requires Scheduler<typename Side::Scheduler> && KVOutputAggregator<typename Side::Aggregator>
class SimpleOffloadDriver final : public Implementation<SimpleOffloadTarget> {
 public:
  SimpleOffloadDriver(std::string name, Side side)
      : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> reset(const Config& config) override {
    const Parsed<SimpleOffloadSetup> parsed = make_simple_offload_setup(config);
    KVFENCE_CHECK(parsed, "reset with a configuration that was not validated");
    setup_ = *parsed;
    auto connector = side_.make_connector(setup_);
    if (!connector)
      return ImplementationFailure{"the scheduler's half is no simple CPU offload connector"};
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
    observe_connector_numbers();
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
    observation_.load_event.reset();
    observation_.load_gpu_blocks.reset();
    observation_.load_cpu_blocks.reset();
    observation_.load_requests.reset();
    observation_.store_event.reset();
    observation_.store_gpu_blocks.reset();
    observation_.store_cpu_blocks.reset();
    observation_.need_flush.reset();
    observation_.finished_recving.reset();
    observation_.completed_stores.reset();
  }

  void forget_state() {
    Observer::forget_state(observation_);
    observation_.copies.reset();
    observation_.pins.reset();
    observation_.cpu_free_queue.reset();
    observation_.cpu_ref_cnts.reset();
    observation_.cpu_keys.reset();
  }

  SimpleCPUOffloadScheduler& connector() {
    return static_cast<SimpleCPUOffloadScheduler&>(*scheduler_->connector());
  }

  static const SimpleCPUOffloadMetadata& metadata_of(const SchedulerOutput& output) {
    KVFENCE_CHECK(output.kv_connector_metadata,
                  "a simple CPU offload connector always has metadata");
    return static_cast<const SimpleCPUOffloadMetadata&>(*output.kv_connector_metadata);
  }

  // ---- Commands ----

  ErrorCode run(const simple_offload::AddRequest& command, const World& world) {
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
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error == ErrorCode::kNone) observer_.add(index, command.id);
    return error;
  }

  ErrorCode run(const simple_offload::Schedule&, const World&) {
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

  ErrorCode run(const simple_offload::Update& command, const World& world) {
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
    const SimpleCPUOffloadMetadata& metadata = metadata_of(step.output);
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
    report.completed_jobs = aggregated.completed_jobs;
    return report;
  }

  ErrorCode run(const simple_offload::AdvanceCopy& command, const World&) {
    if (command.progress != TransferProgress::kPart &&
        command.progress != TransferProgress::kFinished) {
      return ErrorCode::kBadRange;
    }
    if (command.rank >= workers_->ranks.size()) return ErrorCode::kNotInConfig;
    ScriptedTransferEngine& engine = workers_->ranks[command.rank].engine;
    for (const ScriptedTransferEngine::Transfer& transfer : engine.transfers()) {
      if (transfer.job.spec.is_store != command.store) continue;
      if (transfer.progress == TransferProgress::kFinished) continue;
      engine.advance(transfer.job.job, command.progress);
      return ErrorCode::kNone;
    }
    return ErrorCode::kUnknownJob;
  }

  ErrorCode run(const simple_offload::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    std::vector<RequestIndex> indices;
    for (const std::string& name : command.requests) {
      indices.push_back(Observer::index_of(*scheduler_, world, name));
    }
    scheduler_->finish_requests(indices, command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const simple_offload::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const simple_offload::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const simple_offload::ResetPrefixCache& command, const World&) {
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

  // ---- Observations ----

  void observe_metadata(const SimpleCPUOffloadMetadata& metadata) {
    if (metadata.load_event) observation_.load_event.emplace() = *metadata.load_event;
    observation_.load_gpu_blocks.emplace() = metadata.load_gpu_blocks;
    observation_.load_cpu_blocks.emplace() = metadata.load_cpu_blocks;
    observation_.load_requests.emplace() = metadata.load_requests;
    if (metadata.store_event) observation_.store_event.emplace() = *metadata.store_event;
    observation_.store_gpu_blocks.emplace() = metadata.store_gpu_blocks;
    observation_.store_cpu_blocks.emplace() = metadata.store_cpu_blocks;
    observation_.need_flush.emplace() = metadata.need_flush;
  }

  void observe_report() {
    observation_.finished_recving.emplace() = aggregated_.finished_recving;
    std::vector<simple_offload::CompletedStore>& completed =
        observation_.completed_stores.emplace();
    completed.resize(aggregated_.completed_jobs.size());
    for (std::size_t index = 0; index < completed.size(); ++index) {
      completed[index].event = aggregated_.completed_jobs[index].job;
      completed[index].num_workers = aggregated_.completed_jobs[index].num_workers;
    }
  }

  void observe_connector_numbers() {
    const BlockCounts counts = connector().cpu_block_counts();
    observation_.num_empty_cpu_blocks = counts.empty;
    observation_.num_cached_cpu_blocks = counts.cached;
    observation_.num_referenced_cpu_blocks = counts.referenced;
    observation_.has_pending_stores = connector().has_pending_stores();
    observation_.lazy_cursor.reset();
    const std::optional<BlockId> cursor = connector().lazy_cursor();
    if (cursor) observation_.lazy_cursor.emplace() = *cursor;
  }

  void observe_connector_state() {
    std::vector<simple_offload::Copy>& copies = observation_.copies.emplace();
    copies.clear();
    for (std::size_t rank = 0; rank < workers_->ranks.size(); ++rank) {
      for (const ScriptedTransferEngine::Transfer& each :
           workers_->ranks[rank].engine.transfers()) {
        simple_offload::Copy& copy = copies.emplace_back();
        copy.rank = static_cast<std::uint32_t>(rank);
        copy.store = each.job.spec.is_store;
        copy.event = event_of(each.job.job);
        copy.progress = each.progress;
      }
    }
    connector().pinned_hits(hits_);
    std::vector<RequestIndex> pinning(hits_.size());
    std::transform(hits_.begin(), hits_.end(), pinning.begin(),
                   [](const PinnedHit& hit) { return hit.request; });
    observer_.names_of(pinning, names_);
    std::vector<simple_offload::Pin>& pins = observation_.pins.emplace();
    pins.resize(hits_.size());
    for (std::size_t index = 0; index < pins.size(); ++index) {
      pins[index].request = names_[index];
      pins[index].cpu_blocks = hits_[index].cpu_blocks;
    }
    connector().cpu_pool(cpu_pool_);
    observation_.cpu_free_queue.emplace() = cpu_pool_.free_queue;
    observation_.cpu_ref_cnts.emplace() = cpu_pool_.ref_cnts;
    observation_.cpu_keys.emplace().assign(cpu_pool_.keys.begin(), cpu_pool_.keys.end());
  }

  std::string name_;
  Side side_;
  SimpleOffloadSetup setup_;
  std::optional<SchedulerType> scheduler_;
  std::optional<Workers> workers_;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  AggregatedOutput aggregated_;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
  std::vector<PinnedHit> hits_;
  std::vector<std::string> names_;
  CpuPoolState cpu_pool_;
};

}  // namespace kvfence
