#pragma once

/// Puts a scheduler with a synchronous connector, the workers' halves of all ranks, their KV caches
/// and the storage around them behind the interface that a lockstep drives.
///
/// `update` runs the oldest step on each rank, in the order of the ranks: start_load_kv; if the
/// step has tokens, for each layer, the model computes it, then save_kv_layer. The first file that
/// fails ends that: what comes back is what was done so far, and a new engine over the same
/// storage. Else the scheduler gets what was sampled.
///
/// Besides the scheduler's own codes and those that the commands name, and looked for before them:
///   kAlreadyDeclared  add_request: the name was used before
///   kNotInConfig      add_request: several groups, without skip_reading_prefix_cache
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: the status is not a finished one
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step, or
///                     does not give one token where the step samples, and none where it does not

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

#include "contract/connectors/synchronous/synchronous_connector.h"
#include "contract/connectors/synchronous/synchronous_connector_target.h"
#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "properties/core/driver.h"
#include "properties/scheduler/observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug: a
/// SynchronousConnectorFactory (contract/connectors/synchronous/synchronous_connector.h), and
///   Side::Scheduler
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
template <class Side>
requires Scheduler<typename Side::Scheduler> && SynchronousConnectorFactory<Side>
class SynchronousConnectorDriver final : public DriverOf<SynchronousConnectorTarget> {
 public:
  SynchronousConnectorDriver(std::string name, Side side)
      : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config&, const Setup& setup) override {
    setup_ = setup;
    forget_engine();
    storage_ = side_.make_storage(spec());
    if (!storage_) return ImplementationFailure{"there is no storage"};
    num_engine_starts_ = 0;
    return start_engine();
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    if (observation_.failed.has_value() && !observation_.failed->empty()) {
      forget_engine();
      KVFENCE_CHECK(!start_engine(), "an engine that started once starts again");
    }
    observer_.observe(*scheduler_, observe, observation_);
    observation_.num_engine_starts = num_engine_starts_;
    if (observe == Observe::kState) {
      observe_connector_state();
    } else {
      forget_connector_state();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using SchedulerType = typename Side::Scheduler;
  using Observer = SchedulerObserver<SchedulerType>;

  /// A stage of the pipeline: its half of the connector, and its KV cache.
  struct Rank {
    std::unique_ptr<SynchronousConnectorWorker> worker;
    ScriptedKVCache kv_cache;
  };

  /// What the model computes for one request in a step.
  struct Run {
    std::uint32_t first_token = 0;
    std::vector<TokenId> tokens;
    BlocksByGroup table;
  };

  /// A planned step. The indices in it stay those of its requests until it came back.
  struct PlannedStep {
    SchedulerOutput output;
    std::vector<Run> runs;  ///< in the order of output.scheduled
  };

  const SynchronousConnectorSpec& spec() const { return setup_.spec; }

  // ---- The engine, which can end ----

  /// Copies of a connector see the storage that they were made with.
  void forget_engine() {
    in_flight_.clear();
    scheduler_.reset();
    ranks_.clear();
    observer_.reset();
  }

  std::optional<ImplementationFailure> start_engine() {
    auto connector = side_.make_connector(spec(), *storage_);
    if (!connector) {
      return ImplementationFailure{"the scheduler's half is no synchronous connector"};
    }
    scheduler_.emplace(
        side_.make_scheduler(setup_.scheduler, KVConnectorHandle(std::move(connector))));
    for (std::uint32_t rank = 0; rank < spec().num_workers; ++rank) {
      auto worker = side_.make_worker(spec(), rank, *storage_);
      if (!worker) return ImplementationFailure{"there is no worker's half"};
      ranks_.push_back({std::move(worker),
                        ScriptedKVCache(rank * spec().num_layers, spec().num_layers,
                                        spec().kv_cache.pool.num_gpu_blocks, spec().block_size())});
    }
    ++num_engine_starts_;
    return std::nullopt;
  }

  SynchronousConnectorScheduler& connector() {
    return static_cast<SynchronousConnectorScheduler&>(*scheduler_->connector());
  }

  static const SynchronousConnectorMetadata& metadata_of(const SchedulerOutput& output) {
    KVFENCE_CHECK(output.kv_connector_metadata, "a synchronous connector always has metadata");
    return static_cast<const SynchronousConnectorMetadata&>(*output.kv_connector_metadata);
  }

  void forget_answer() {
    Observer::forget_answer(observation_);
    observation_.transfers.reset();
    observation_.fills.reset();
    observation_.loaded.reset();
    observation_.saved.reset();
    observation_.filled.reset();
    observation_.failed.reset();
  }

  void forget_connector_state() {
    observation_.filled_requests.reset();
    observation_.folders.reset();
    observation_.files.reset();
    observation_.symbols.reset();
  }

  // ---- Commands: the engine's ----

  ErrorCode run(const synchronous_connector::AddRequest& command, const World& world) {
    const scheduler::World::Entry* entry = world.find(command.id);
    if (!entry || !entry->is_new) return ErrorCode::kAlreadyDeclared;
    if (spec().kv_cache.groups.size() > 1 && !command.skip_reading_prefix_cache) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, std::nullopt, {}};
    request.max_tokens = command.max_tokens;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    RequestIndex index = 0;
    const ErrorCode error = scheduler_->add_request(request, index);
    if (error == ErrorCode::kNone) observer_.add(index, command.id);
    return error;
  }

  ErrorCode run(const synchronous_connector::Schedule&, const World&) {
    PlannedStep& step = in_flight_.emplace_back();
    const ErrorCode error = scheduler_->schedule(step.output);
    if (error != ErrorCode::kNone) {
      in_flight_.pop_back();
      return error;
    }
    plan_runs(step);
    observer_.observe_output(*scheduler_, step.output, observation_);
    observe_metadata(metadata_of(step.output));
    return ErrorCode::kNone;
  }

  void plan_runs(PlannedStep& step) {
    for (const SchedulerOutput::Scheduled& scheduled : step.output.scheduled) {
      Run& planned = step.runs.emplace_back();
      planned.first_token = num_computed_tokens(step.output, scheduled.request);
      const RequestView view = scheduler_->view(scheduled.request);
      const std::span<const TokenId> tokens = view.request.all_token_ids();
      KVFENCE_CHECK(planned.first_token + scheduled.num_tokens <= tokens.size(),
                    "a step with tokens that are not there");
      const auto own = tokens.subspan(planned.first_token, scheduled.num_tokens);
      planned.tokens.assign(own.begin(), own.end());
      scheduler_->kv_cache_manager().get_block_ids(scheduled.request, planned.table);
    }
  }

  /// Of a request of the step, before it.
  static std::uint32_t num_computed_tokens(const SchedulerOutput& output, RequestIndex request) {
    for (const SchedulerOutput::New& data : output.scheduled_new_reqs) {
      if (data.request == request) return data.num_computed_tokens;
    }
    for (const SchedulerOutput::Cached& data : output.scheduled_cached_reqs) {
      if (data.request == request) return data.num_computed_tokens;
    }
    KVFENCE_CHECK(false, "a scheduled request that is neither new nor cached");
    return 0;
  }

  ErrorCode run(const synchronous_connector::Update& command, const World& world) {
    for (const scheduler::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    if (in_flight_.empty()) return ErrorCode::kNoStepInFlight;
    const PlannedStep& step = in_flight_.front();
    if (!observer_.sample(command.samples, command.token, /*num_accepted=*/0, step.output,
                          runner_output_.sampled_token_ids) ||
        !samples_fit(step.output)) {
      return ErrorCode::kWrongTokenCount;
    }
    run_on_ranks(step);
    observe_report();
    if (report_.failed) return ErrorCode::kNone;
    const ErrorCode error = scheduler_->update_from_output(step.output, runner_output_, outputs_);
    if (error != ErrorCode::kNone) return error;
    in_flight_.pop_front();
    observer_.observe_outputs(outputs_, observation_);
    return ErrorCode::kNone;
  }

  /// Nothing refuses the step any more: what the workers do to files stays done.
  bool samples_fit(const SchedulerOutput& output) const {
    for (std::size_t k = 0; k < output.scheduled.size(); ++k) {
      const std::size_t num_sampled = output.scheduled[k].samples ? 1 : 0;
      if (runner_output_.sampled_token_ids[k].size() != num_sampled) return false;
    }
    return true;
  }

  void run_on_ranks(const PlannedStep& step) {
    const SynchronousConnectorMetadata& metadata = metadata_of(step.output);
    report_.clear();
    for (Rank& rank : ranks_) {
      rank.worker->start_load_kv(metadata, rank.kv_cache, report_);
      if (report_.failed) return;
      if (step.output.total_num_scheduled_tokens == 0) continue;
      for (std::uint32_t i = 0; i < rank.kv_cache.num_layers(); ++i) {
        const std::uint32_t layer = rank.kv_cache.first_layer() + i;
        compute(step, layer, rank.kv_cache);
        rank.worker->save_kv_layer(metadata, layer, rank.kv_cache, report_);
        if (report_.failed) return;
      }
    }
  }

  void compute(const PlannedStep& step, std::uint32_t layer, ScriptedKVCache& kv_cache) const {
    for (const Run& planned : step.runs) {
      for (std::size_t group = 0; group < planned.table.size(); ++group) {
        kv_cache.compute(layer, planned.table[group], planned.first_token, planned.tokens);
      }
    }
  }

  ErrorCode run(const synchronous_connector::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    std::vector<RequestIndex> indices;
    for (const std::string& name : command.requests) {
      indices.push_back(Observer::index_of(*scheduler_, world, name));
    }
    scheduler_->finish_requests(indices, command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const synchronous_connector::FinishAllRequests& command, const World&) {
    if (!is_finished(command.status)) return ErrorCode::kBadRange;
    scheduler_->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const synchronous_connector::SetPauseState& command, const World&) {
    scheduler_->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const synchronous_connector::ResetPrefixCache& command, const World&) {
    observation_.success.emplace() = scheduler_->reset_prefix_cache(
        /*reset_running_requests=*/false, command.reset_connector);
    return ErrorCode::kNone;
  }

  // ---- Commands: the world's ----

  bool keeps_files() const { return spec().kind == SynchronousConnectorKind::kExample; }
  bool has_layer(std::uint32_t layer) const {
    return keeps_files() && layer < spec().num_all_layers();
  }
  static ErrorCode error_unless(bool was_there) {
    return was_there ? ErrorCode::kNone : ErrorCode::kUnknownKey;
  }

  ErrorCode run(const synchronous_connector::WriteEntry& command, const World&) {
    if (!keeps_files() || command.num_files > spec().num_all_layers()) {
      return ErrorCode::kNotInConfig;
    }
    if (command.tokens.size() % spec().block_size() != 0) return ErrorCode::kBadRange;
    const std::string folder = folder_name(command.tokens);
    storage_->make_folder(folder);
    for (std::uint32_t layer = 0; layer < command.num_files; ++layer) {
      std::vector<KVSymbol> symbols;
      for (std::size_t end = 1; end <= command.tokens.size(); ++end) {
        symbols.push_back(symbol_of(layer, std::span(command.tokens).first(end)));
      }
      storage_->put_file(folder, layer, symbols);
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const synchronous_connector::RemoveEntry& command, const World&) {
    if (!keeps_files()) return ErrorCode::kNotInConfig;
    return error_unless(storage_->remove_folder(folder_name(command.tokens)));
  }

  ErrorCode run(const synchronous_connector::RemoveFile& command, const World&) {
    if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
    return error_unless(storage_->remove_file(folder_name(command.tokens), command.layer));
  }

  ErrorCode run(const synchronous_connector::TruncateFile& command, const World&) {
    if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
    return error_unless(storage_->truncate_file(folder_name(command.tokens), command.layer));
  }

  ErrorCode run(const synchronous_connector::FailNext& command, const World&) {
    if (!has_layer(command.layer)) return ErrorCode::kNotInConfig;
    storage_->fail_next(command.layer, command.operation);
    return ErrorCode::kNone;
  }

  // ---- Observations ----

  std::string name_of(RequestIndex request) const {
    std::vector<std::string> names;
    observer_.names_of({request}, names);
    return names.front();
  }

  void observe_metadata(const SynchronousConnectorMetadata& metadata) {
    std::vector<synchronous_connector::Transfer>& transfers = observation_.transfers.emplace();
    transfers.resize(metadata.transfers.size());
    for (std::size_t k = 0; k < transfers.size(); ++k) {
      const SynchronousConnectorMetadata::Transfer& told = metadata.transfers[k];
      transfers[k].request = name_of(told.request);
      transfers[k].store = told.is_store;
      transfers[k].folder = told.folder;
      transfers[k].num_tokens = told.num_tokens;
      transfers[k].blocks = told.blocks;
    }
    std::vector<synchronous_connector::Fill>& fills = observation_.fills.emplace();
    fills.resize(metadata.fills.size());
    for (std::size_t k = 0; k < fills.size(); ++k) {
      const SynchronousConnectorMetadata::Fill& told = metadata.fills[k];
      fills[k].request = name_of(told.request);
      fills[k].num_tokens = told.num_tokens;
      fills[k].blocks.assign(told.blocks.begin(), told.blocks.end());
    }
  }

  void observe_report() {
    observe_files(report_.loaded, observation_.loaded.emplace());
    observe_files(report_.saved, observation_.saved.emplace());
    std::vector<synchronous_connector::FilledBlocks>& filled = observation_.filled.emplace();
    filled.resize(report_.filled.size());
    for (std::size_t k = 0; k < filled.size(); ++k) {
      filled[k].request = name_of(report_.filled[k].request);
      filled[k].layer = report_.filled[k].layer;
      filled[k].blocks = report_.filled[k].blocks;
    }
    std::vector<synchronous_connector::FailedFile>& failed = observation_.failed.emplace();
    failed.clear();
    if (report_.failed) {
      failed.push_back({name_of(report_.failed->request), report_.failed->is_store,
                        report_.failed->layer, report_.failed->folder});
    }
  }

  void observe_files(const std::vector<SynchronousWorkerReport::File>& reported,
                     std::vector<synchronous_connector::FileCopy>& files) const {
    files.resize(reported.size());
    for (std::size_t k = 0; k < files.size(); ++k) {
      files[k].request = name_of(reported[k].request);
      files[k].layer = reported[k].layer;
      files[k].folder = reported[k].folder;
      files[k].blocks = reported[k].blocks;
      files[k].symbols = reported[k].symbols;
    }
  }

  void observe_connector_state() {
    connector().filled_requests(filled_requests_);
    observer_.names_of(filled_requests_, observation_.filled_requests.emplace());
    storage_->folders(observation_.folders.emplace());
    storage_->files(stored_files_);
    std::vector<synchronous_connector::File>& files = observation_.files.emplace();
    files.resize(stored_files_.size());
    for (std::size_t k = 0; k < files.size(); ++k) {
      files[k].folder = stored_files_[k].folder;
      files[k].layer = stored_files_[k].layer;
      files[k].whole = stored_files_[k].whole;
      files[k].symbols = stored_files_[k].symbols;
    }
    kv_cache::BlockLists& symbols = observation_.symbols.emplace();
    symbols.resize(spec().num_all_layers());
    for (const Rank& rank : ranks_) {
      for (std::uint32_t i = 0; i < rank.kv_cache.num_layers(); ++i) {
        const std::uint32_t layer = rank.kv_cache.first_layer() + i;
        const std::span<const KVSymbol> held = rank.kv_cache.layer(layer);
        symbols[layer].assign(held.begin(), held.end());
      }
    }
  }

  std::string name_;
  Side side_;
  SynchronousConnectorSetup setup_;
  std::unique_ptr<SharedStorage> storage_;  ///< outlives every engine
  std::optional<SchedulerType> scheduler_;
  std::vector<Rank> ranks_;
  std::uint32_t num_engine_starts_ = 0;
  Observer observer_;
  std::deque<PlannedStep> in_flight_;  ///< oldest first
  SynchronousWorkerReport report_;     ///< of all ranks, one behind the other
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  Observation observation_;
  std::vector<RequestIndex> filled_requests_;
  std::vector<StoredFile> stored_files_;
};

}  // namespace kvfence
