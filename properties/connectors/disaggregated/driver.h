#pragma once

/// Puts a producer and a consumer engine, with the router, the transport and the clock between
/// them, behind the interface that a lockstep drives.
///
/// `update` runs the oldest step of that engine on each of its ranks, in the order of the ranks:
/// start_load_kv, get_finished; then the scheduler gets what was sampled and the ranks' report. If
/// the scheduler refuses that, nothing has run.
///
/// Besides the scheduler's own codes and those that the commands name, and looked for before them:
///   kAlreadyDeclared  add_request, hand_over: the name was used before
///   kUnknownRequest   a name that was never added
///   kBadRange         finish_requests, finish_all_requests: a status that is not finished_aborted
///                     or finished_error
///   kNoStepInFlight   update: nothing was planned
///   kWrongTokenCount  update: samples names a request twice, or one that is not in the step
/// A request of the other engine is as one that is gone.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/disaggregated/disaggregated_connector.h"
#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/check.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_transport.h"
#include "properties/core/driver.h"
#include "properties/scheduler/observer.h"

namespace kvfence {

/// `Side` makes the parts, which is the place where a planted variant gets its bug:
///   Side::Scheduler, Side::Aggregator
///   make_scheduler(const SchedulerConfig&, KVConnectorHandle)
///   make_producer(const DisaggregatedSpec&) -> std::unique_ptr<DisaggregatedProducer>
///   make_consumer(const DisaggregatedSpec&) -> std::unique_ptr<DisaggregatedConsumer>
///   make_producer_worker(const DisaggregatedSpec&, rank) -> std::unique_ptr<DisaggregatedWorker>
///   make_consumer_worker(const DisaggregatedSpec&, rank) -> std::unique_ptr<DisaggregatedWorker>
///   make_aggregator(num_workers)
template <class Side>
requires Scheduler<typename Side::Scheduler> && KVOutputAggregator<typename Side::Aggregator>
class DisaggregatedDriver final : public DriverOf<DisaggregatedTarget> {
 public:
  DisaggregatedDriver(std::string name, Side side)
      : name_(std::move(name)), side_(std::move(side)) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    transport_may_fail_ = config.transport_may_fail;
    for (const EngineRole role : kEngineRoles) {
      Engine& engine = engine_of(role);
      engine.scheduler.emplace(side_.make_scheduler(
          setup.schedulers[static_cast<std::size_t>(role)], make_half(role, setup.spec)));
      engine.workers.emplace(make_workers(role, setup.spec));
      engine.observer.reset();
      engine.in_flight.clear();
    }
    transport_ = {};
    finished_prefills_.clear();
    return std::nullopt;
  }

  void submit_typed(const Command& command, const World& world, Observe observe) override {
    forget_answer();
    observation_.error =
        std::visit([&](const auto& alternative) { return run(alternative, world); }, command);
    observation_.now = transport_.now();
    for (const EngineRole role : kEngineRoles) {
      Engine& engine = engine_of(role);
      engine.observer.observe(*engine.scheduler, observe, observation_.of(role));
    }
    if (observe == Observe::kState) {
      observe_transport();
    } else {
      observation_.reads.reset();
      observation_.notices.reset();
    }
  }

  void collect_typed(Observation& observation) override { observation = std::move(observation_); }

 private:
  using SchedulerType = typename Side::Scheduler;
  using Observer = SchedulerObserver<SchedulerType>;

  /// What a refused update leaves as it was, with the transport.
  struct Workers {
    std::vector<DisaggregatedWorkerHandle> ranks;
    typename Side::Aggregator aggregator;
  };

  struct Engine {
    std::optional<SchedulerType> scheduler;
    std::optional<Workers> workers;
    Observer observer;
    std::deque<SchedulerOutput> in_flight;  ///< oldest first
  };

  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }

  DisaggregatedProducer& producer() {
    return static_cast<DisaggregatedProducer&>(
        *engine_of(EngineRole::kProducer).scheduler->connector());
  }
  DisaggregatedConsumer& consumer() {
    return static_cast<DisaggregatedConsumer&>(
        *engine_of(EngineRole::kConsumer).scheduler->connector());
  }

  KVConnectorHandle make_half(EngineRole role, const DisaggregatedSpec& spec) {
    if (role == EngineRole::kProducer) return KVConnectorHandle(side_.make_producer(spec));
    return KVConnectorHandle(side_.make_consumer(spec));
  }

  Workers make_workers(EngineRole role, const DisaggregatedSpec& spec) {
    const bool produces = role == EngineRole::kProducer;
    const std::uint32_t world_size = produces ? spec.producer_world_size : spec.consumer_world_size;
    Workers workers{{}, side_.make_aggregator(world_size)};
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
      workers.ranks.emplace_back(produces ? side_.make_producer_worker(spec, rank)
                                          : side_.make_consumer_worker(spec, rank));
    }
    return workers;
  }

  void forget_answer() {
    for (const EngineRole role : kEngineRoles) Observer::forget_answer(observation_.of(role));
    observation_.reqs_in_batch.reset();
    observation_.reqs_not_processed.reset();
    observation_.reqs_to_send.reset();
    observation_.reqs_to_recv.reset();
    observation_.heartbeats.reset();
    observation_.finished_sending.reset();
    observation_.finished_recving.reset();
    observation_.invalid_blocks.reset();
    observation_.finished_prefills.reset();
  }

  // ---- Commands of an engine ----

  ErrorCode add(EngineRole role, const NewRequest& request) {
    Engine& engine = engine_of(role);
    RequestIndex index = 0;
    const ErrorCode error = engine.scheduler->add_request(request, index);
    if (error == ErrorCode::kNone) engine.observer.add(index, request.id);
    return error;
  }

  static bool is_new(const World& world, const std::string& name) {
    const scheduler::World::Entry* entry = world.find(name);
    return entry && entry->is_new;
  }

  ErrorCode run(const disaggregated::AddRequest& command, const World& world) {
    if (!is_new(world, command.id)) return ErrorCode::kAlreadyDeclared;
    if (command.do_remote_decode && command.engine == EngineRole::kConsumer) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    request.max_tokens = command.max_tokens;
    request.stop_token_ids = command.stop_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.kv_transfer_params.do_remote_decode = command.do_remote_decode;
    return add(command.engine, request);
  }

  ErrorCode run(const disaggregated::HandOver& command, const World& world) {
    if (!world.find(command.request)) return ErrorCode::kUnknownRequest;
    if (!is_new(world, command.id)) return ErrorCode::kAlreadyDeclared;
    const auto finished = finished_prefills_.find(command.request);
    if (finished == finished_prefills_.end()) return ErrorCode::kNotFinished;
    NewRequest request;
    request.id = command.id;
    request.spec = world.requests().find(command.request)->spec();
    request.max_tokens = command.max_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.kv_transfer_params = finished->second;
    return add(EngineRole::kConsumer, request);
  }

  ErrorCode run(const disaggregated::Schedule& command, const World&) {
    Engine& engine = engine_of(command.engine);
    SchedulerOutput& output = engine.in_flight.emplace_back();
    const ErrorCode error = engine.scheduler->schedule(output);
    if (error != ErrorCode::kNone) {
      engine.in_flight.pop_back();
      return error;
    }
    engine.observer.observe_output(*engine.scheduler, output, observation_.of(command.engine));
    KVFENCE_CHECK(output.kv_connector_metadata, "both halves always have metadata");
    if (command.engine == EngineRole::kProducer) {
      observe_metadata(static_cast<const ProducerMetadata&>(*output.kv_connector_metadata));
    } else {
      observe_metadata(static_cast<const ConsumerMetadata&>(*output.kv_connector_metadata));
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const disaggregated::Update& command, const World& world) {
    for (const scheduler::Sample& sample : command.samples) {
      if (!world.find(sample.request)) return ErrorCode::kUnknownRequest;
    }
    Engine& engine = engine_of(command.engine);
    if (engine.in_flight.empty()) return ErrorCode::kNoStepInFlight;
    const SchedulerOutput& step = engine.in_flight.front();
    if (!engine.observer.sample(command.samples, command.token, /*num_accepted=*/0, step,
                                runner_output_.sampled_token_ids)) {
      return ErrorCode::kWrongTokenCount;
    }
    Workers workers_before = *engine.workers;
    ScriptedTransport transport_before = transport_;
    run_on_all_ranks(*step.kv_connector_metadata, *engine.workers);
    Observer::sort_by_declaration(aggregated_.finished_recving, world);
    Observer::sort_by_declaration(aggregated_.finished_sending, world);
    const KVConnectorOutput report = Observer::report_of(*engine.scheduler, world, aggregated_);
    runner_output_.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error = engine.scheduler->update_from_output(step, runner_output_, outputs_);
    if (error != ErrorCode::kNone) {
      std::swap(*engine.workers, workers_before);
      std::swap(transport_, transport_before);
      return error;
    }
    engine.in_flight.pop_front();
    engine.observer.observe_outputs(outputs_, observation_.of(command.engine));
    observe_report();
    if (command.engine == EngineRole::kProducer) take_finished_prefills();
    return ErrorCode::kNone;
  }

  void run_on_all_ranks(const KVConnectorMetadata& metadata, Workers& workers) {
    worker_outputs_.resize(workers.ranks.size());
    for (std::size_t rank = 0; rank < worker_outputs_.size(); ++rank) {
      workers.ranks[rank]->start_load_kv(metadata, transport_);
      workers.ranks[rank]->get_finished(transport_, worker_outputs_[rank]);
    }
    workers.aggregator.aggregate(std::span<const KVConnectorWorkerOutput>(worker_outputs_),
                                 aggregated_);
  }

  /// A finished request tells its router with its last output.
  void take_finished_prefills() {
    remote_prefills_.clear();
    producer().take_remote_prefills(remote_prefills_);
    std::vector<disaggregated::FinishedPrefill>& list = observation_.finished_prefills.emplace();
    list.resize(remote_prefills_.size());
    for (std::size_t index = 0; index < list.size(); ++index) {
      const RemotePrefill& told = remote_prefills_[index];
      list[index].request = told.request;
      list[index].blocks = told.params.remote_block_ids.front();
      finished_prefills_[told.request] = told.params;
    }
  }

  static bool ends_from_outside(RequestStatus status) {
    return status == RequestStatus::kFinishedAborted || status == RequestStatus::kFinishedError;
  }

  ErrorCode run(const disaggregated::FinishRequests& command, const World& world) {
    if (!Observer::all_known(world, command.requests)) return ErrorCode::kUnknownRequest;
    if (!ends_from_outside(command.status)) return ErrorCode::kBadRange;
    SchedulerType& scheduler = *engine_of(command.engine).scheduler;
    scheduler.finish_requests(Observer::indices_of(scheduler, world, command.requests),
                              command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const disaggregated::FinishAllRequests& command, const World&) {
    if (!ends_from_outside(command.status)) return ErrorCode::kBadRange;
    engine_of(command.engine).scheduler->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const disaggregated::SetPauseState& command, const World&) {
    engine_of(command.engine).scheduler->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const disaggregated::ResetPrefixCache& command, const World&) {
    observation_.of(command.engine).success.emplace() =
        engine_of(command.engine)
            .scheduler->reset_prefix_cache(/*reset_running_requests=*/false,
                                           command.reset_connector);
    return ErrorCode::kNone;
  }

  // ---- Commands of the transport and the clock ----

  static ErrorCode known(bool is_known) {
    return is_known ? ErrorCode::kNone : ErrorCode::kUnknownJob;
  }

  ErrorCode run(const disaggregated::AdvanceRead& command, const World&) {
    if (command.progress == TransferProgress::kSubmitted) return ErrorCode::kBadRange;
    if (command.progress == TransferProgress::kFailed && !transport_may_fail_) {
      return ErrorCode::kNotInConfig;
    }
    return known(transport_.advance(command.read, command.progress));
  }

  ErrorCode run(const disaggregated::DeliverNotice& command, const World&) {
    return known(transport_.deliver(command.notice));
  }

  ErrorCode run(const disaggregated::LoseNotice& command, const World&) {
    if (!transport_may_fail_) return ErrorCode::kNotInConfig;
    return known(transport_.lose(command.notice));
  }

  ErrorCode run(const disaggregated::RepeatNotice& command, const World&) {
    if (!transport_may_fail_) return ErrorCode::kNotInConfig;
    return known(transport_.repeat(command.notice));
  }

  ErrorCode run(const disaggregated::AdvanceClock& command, const World&) {
    if (!transport_.advance_clock(command.seconds)) return ErrorCode::kBadRange;
    producer().tell_time(transport_.now());
    consumer().tell_time(transport_.now());
    return ErrorCode::kNone;
  }

  // ---- Observations ----

  void observe_metadata(const ProducerMetadata& metadata) {
    observation_.reqs_in_batch.emplace() = metadata.reqs_in_batch;
    observation_.reqs_not_processed.emplace() = metadata.reqs_not_processed;
    std::vector<disaggregated::Send>& sends = observation_.reqs_to_send.emplace();
    sends.resize(metadata.reqs_to_send.size());
    for (std::size_t index = 0; index < sends.size(); ++index) {
      sends[index].request = metadata.reqs_to_send[index].request;
      sends[index].expires = metadata.reqs_to_send[index].expires;
    }
  }

  void observe_metadata(const ConsumerMetadata& metadata) {
    std::vector<disaggregated::Receive>& receives = observation_.reqs_to_recv.emplace();
    receives.resize(metadata.reqs_to_recv.size());
    for (std::size_t index = 0; index < receives.size(); ++index) {
      receives[index].request = metadata.reqs_to_recv[index].request;
      receives[index].remote_request = metadata.reqs_to_recv[index].remote_request;
      receives[index].local_blocks = metadata.reqs_to_recv[index].local_blocks;
      receives[index].remote_blocks = metadata.reqs_to_recv[index].remote_blocks;
    }
    observation_.heartbeats.emplace() = metadata.heartbeats;
  }

  void observe_report() {
    observation_.finished_recving.emplace() = aggregated_.finished_recving;
    observation_.finished_sending.emplace() = aggregated_.finished_sending;
    observation_.invalid_blocks.emplace() = aggregated_.invalid_block_ids;
  }

  void observe_transport() {
    std::vector<disaggregated::ReadState>& reads = observation_.reads.emplace();
    reads.resize(transport_.reads().size());
    for (std::size_t index = 0; index < reads.size(); ++index) {
      const ScriptedTransport::Read& read = transport_.reads()[index];
      reads[index].read = read.read;
      reads[index].rank = read.spec.rank;
      reads[index].remote_rank = read.spec.remote_rank;
      reads[index].request = read.spec.request;
      reads[index].remote_request = read.spec.remote_request;
      reads[index].local_blocks = read.spec.local_blocks;
      reads[index].remote_blocks = read.spec.remote_blocks;
      reads[index].progress = read.progress;
    }
    std::vector<disaggregated::NoticeState>& notices = observation_.notices.emplace();
    notices.resize(transport_.notices().size());
    for (std::size_t index = 0; index < notices.size(); ++index) {
      const ScriptedTransport::SentNotice& sent = transport_.notices()[index];
      notices[index].notice = sent.number;
      notices[index].rank = sent.notice.rank;
      notices[index].remote_rank = sent.notice.remote_rank;
      notices[index].heartbeat = sent.notice.is_heartbeat;
      notices[index].requests = sent.notice.requests;
      notices[index].delivered = sent.is_delivered;
    }
  }

  std::string name_;
  Side side_;
  bool transport_may_fail_ = false;
  std::array<Engine, 2> engines_;  ///< by EngineRole
  ScriptedTransport transport_;
  std::map<std::string, KVTransferParams> finished_prefills_;  ///< the router's, by request
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  AggregatedOutput aggregated_;
  ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  std::vector<RemotePrefill> remote_prefills_;
  Observation observation_;
};

}  // namespace kvfence
