#include "properties/engine/driver.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "properties/core/driver.h"
#include "properties/engine/engines.h"
#include "properties/engine/shown_requests.h"

namespace kvfence {
namespace engine {
namespace {

class EngineDriver final : public DriverOf<EngineTarget> {
 public:
  EngineDriver(std::string name, EngineParts parts)
      : name_(std::move(name)), engines_(std::move(parts)), setup_(engines_.setup()) {}

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    return engines_.start(config, setup);
  }

  void answer(const Command& command, const World& world, Observe observe) override {
    world_ = &world;
    try {
      observed().error = std::visit([&](const auto& typed) { return dispatch(typed); }, command);
    } catch (const EngineEnded& ended) {
      end_engine(ended.code);
    }
    if (has_ended(observed())) engines_.restart();
    observe_all(observe);
  }

  void add_to(StateHash& hash) const override { hash.add(engines_); }

 private:
  using Kind = ConnectorKind;

  /// As upstream does when it raises: the command's answers so far are lost.
  void end_engine(ErrorCode code) {
    empty(observed());
    observed().error = ErrorCode::kNone;
    observed().engine_ended.emplace() = to_text(code);
  }

  // ---- Parts of the engines ----

  Engine& engine_of(EngineRole role) { return engines_.of(role); }
  files::Facet& files() { return engines_.files(); }
  nixl::Facet& nixl() { return engines_.nixl(); }
  static const KVConnectorMetadata& metadata_of(const PlannedStep& step) {
    KVFENCE_CHECK(step.output.kv_connector_metadata, "such a connector always has metadata");
    return *step.output.kv_connector_metadata;
  }
  /// Null: there is none, or none at that place.
  ScriptedConnector* scripted(Engine& engine, std::uint32_t child) {
    KVConnector* connector = engine.scheduler->connector();
    if (engines_.is_multi()) {
      connector = setup_.has_child(child, Kind::kScripted) ? connector->child(child) : nullptr;
    } else if (!setup_.is_scripted || child > 0) {
      return nullptr;
    }
    return static_cast<ScriptedConnector*>(connector);
  }

  // ---- Commands ----

  template <class C>
  ErrorCode dispatch(const C& command) {
    EngineRole role = EngineRole::kProducer;
    if constexpr (requires { command.engine; }) role = command.engine;
    if constexpr (std::is_same_v<C, AddRequest>) return run(command);  // it checks the name first
    if (!engines_.has(role)) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(role);
    EngineObservation& shown = observed().of(role);
    if constexpr (requires { engine.offloading.run(command, engine, *world_); }) {
      return setup_.offloading ? engine.offloading.run(command, engine, *world_)
                               : ErrorCode::kNotInConfig;
    } else if constexpr (requires { engine.simple.run(command, engine); }) {
      return setup_.simple ? engine.simple.run(command, engine) : ErrorCode::kNotInConfig;
    } else if constexpr (requires { files().run(command); }) {
      return setup_.files ? files().run(command) : ErrorCode::kNotInConfig;
    } else if constexpr (requires { nixl().run(command); }) {
      return setup_.nixl ? nixl().run(command) : ErrorCode::kNotInConfig;
    } else if constexpr (requires { engine.device.run(command, engine, shown); }) {
      return setup_.device ? engine.device.run(command, engine, shown) : ErrorCode::kNotInConfig;
    } else {
      return run(command);
    }
  }

  ErrorCode run(const offloading::LogStats& command) {
    if (!setup_.offloading || setup_.device) return ErrorCode::kNotInConfig;
    return engine_of(command.engine).offloading.run(command, observed().of(command.engine));
  }

  ErrorCode run(const nixl::AdvanceClock& command) {
    if (!setup_.nixl) return ErrorCode::kNotInConfig;
    return nixl().run(command, engine_of(EngineRole::kProducer), engine_of(EngineRole::kConsumer));
  }

  bool is_new(const std::string& name) const {
    const auto entry = world_->find(name);
    return entry && entry->is_new;
  }

  ErrorCode add(Engine& engine, const NewRequest& request) {
    RequestIndex index = 0;
    const ErrorCode error = engine.scheduler->add_request(request, index);
    if (error != ErrorCode::kNone) return error;
    engine.observer.add(index, request.id);
    if (setup_.device) engine.device.add(request.id, request.spec);
    return error;
  }

  template <class Command>
  bool may_look_up(const Command& command) const {
    return command.skip_reading_prefix_cache || setup_.may_read_gpu_cache();
  }

  const std::vector<KVCacheSpec>& groups() const { return setup_.scheduler().kv_cache.groups; }

  ErrorCode run(const AddRequest& command) {
    if (!is_new(command.id)) return ErrorCode::kAlreadyDeclared;
    const bool is_consumer = command.engine == EngineRole::kConsumer;
    if (!engines_.has(command.engine)) return ErrorCode::kNotInConfig;
    if (command.do_remote_decode && (!setup_.nixl || is_consumer)) return ErrorCode::kNotInConfig;
    // Files are named after tokens only: a request with a salt would get the KV of another one.
    if (setup_.files && (command.cache_salt || command.lora_name)) return ErrorCode::kNotInConfig;
    if (!may_look_up(command)) return ErrorCode::kNotInConfig;
    // Its window moves with the next token.
    if (command.do_remote_decode && has_window(groups()) && command.max_tokens != 1) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request{command, command.id, command.spec(), {}};
    request.kv_transfer_params.max_offload_tokens = command.max_offload_tokens;
    request.kv_transfer_params.do_remote_decode = command.do_remote_decode;
    Engine& engine = engine_of(command.engine);
    const ErrorCode error = add(engine, request);
    if (error != ErrorCode::kNone) return error;
    if (auto* const connector = scripted(engine, command.child)) {
      connector->set_script(command.id, command);
    }
    return error;
  }

  ErrorCode run(const HandOver& command) {
    if (!setup_.nixl || !may_look_up(command)) return ErrorCode::kNotInConfig;
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    if (!is_new(command.id)) return ErrorCode::kAlreadyDeclared;
    const KVTransferParams* const prefill = nixl().finished_prefill(command.request);
    if (!prefill) return ErrorCode::kNotFinished;
    const RequestSpec& spec = world_->requests().find(command.request)->spec();
    const ErrorCode error =
        add(engine_of(EngineRole::kConsumer), {command, command.id, spec, *prefill});
    if (error != ErrorCode::kNone) return error;
    // The first reader's notice would end the read of a second one.
    if (!reports_failed_reads(groups())) nixl().forget_prefill(command.request);
    return error;
  }

  /// Appended to those in flight; reuses the storage of one that came back.
  static PlannedStep& new_step(Engine& engine) {
    if (engine.spare.empty()) return engine.in_flight.emplace_back();
    engine.in_flight.splice(engine.in_flight.end(), engine.spare, engine.spare.begin());
    engine.in_flight.back().clear();
    return engine.in_flight.back();
  }

  ErrorCode run(const Schedule& command) {
    Engine& engine = engine_of(command.engine);
    PlannedStep& step = new_step(engine);
    const ErrorCode error = engine.scheduler->schedule(step.output);
    if (error != ErrorCode::kNone) {
      engine.spare.splice(engine.spare.end(), engine.in_flight, std::prev(engine.in_flight.end()));
      return error;
    }
    EngineObservation& shown = observed().of(command.engine);
    engine.observer.observe_output(*engine.scheduler, step.output, shown);
    if (!setup_.has_ranks()) return ErrorCode::kNone;
    engine.observer.names_of(step.output.finished, step.finished);
    if (setup_.device) on_device::Facet::plan(shown, step);
    if (setup_.has_workers()) observe_plan(engine, step);
    if (setup_.files) plan_computed(engine, shown, step);
    return ErrorCode::kNone;
  }

  void observe_plan(Engine& engine, const PlannedStep& step) {
    EngineObservation& shown = observed().of(engine.role);
    const KVConnectorMetadata& metadata = metadata_of(step);
    if (setup_.offloading) engine.offloading.observe_plan(metadata, engine, shown);
    if (setup_.simple) engine.simple.observe_plan(metadata, shown);
    if (setup_.files) files().observe_plan(metadata, shown);
    if (setup_.nixl) nixl().observe_plan(metadata, engine.role, observed());
  }

  /// The tokens of the step that are known when it is planned.
  static void plan_computed(const Engine& engine, const EngineObservation& shown,
                            PlannedStep& step) {
    for (std::size_t k = 0; k < step.output.scheduled.size(); ++k) {
      const SchedulerOutput::Scheduled& scheduled = step.output.scheduled[k];
      files::Computed& planned = step.computed.emplace_back();
      const auto first =
          num_computed_before(*shown.new_reqs, *shown.cached_reqs, (*shown.scheduled)[k].request);
      KVFENCE_CHECK(first, "a scheduled request that is neither new nor cached");
      planned.first_token = *first;
      const RequestView view = engine.scheduler->view(scheduled.request);
      const std::span<const TokenId> tokens = view.request.all_token_ids();
      const std::uint32_t num_known = scheduled.num_tokens - scheduled.num_spec_tokens;
      KVFENCE_CHECK(planned.first_token + num_known <= tokens.size(),
                    "a step with tokens that are not there");
      const auto own = tokens.subspan(planned.first_token, num_known);
      const auto drafts = step.output.spec_token_ids[k];
      planned.tokens.assign(own.begin(), own.end());
      planned.tokens.insert(planned.tokens.end(), drafts.begin(), drafts.end());
      engine.scheduler->get_block_ids(scheduled.request, planned.table);
    }
  }

  ErrorCode run(const Update& command) {
    if (setup_.device) return update_on_device(command);
    if (!all_known(command)) return ErrorCode::kUnknownRequest;
    Engine& engine = engine_of(command.engine);
    if (setup_.has_workers() && has_report(command)) return ErrorCode::kNotInConfig;
    if (engine.in_flight.empty()) return ErrorCode::kNoStepInFlight;
    PlannedStep& step = engine.in_flight.front();
    if (!engine.observer.sample(command, setup_.files.has_value(), step.output,
                                runner_output_.sampled_token_ids)) {
      return ErrorCode::kWrongTokenCount;
    }
    if (!setup_.has_workers()) return update_as_commanded(command, engine);
    if (!samples_fit(step.output)) return ErrorCode::kWrongTokenCount;
    const ErrorCode reported = engine.multi.take_reports(command, setup_, engine);
    if (reported != ErrorCode::kNone) return reported;
    // From here on the step cannot be refused: the workers' effects stay.
    run_on_all_ranks(engine, step);
    if (setup_.files) {
      files().observe_report(observed().of(engine.role));
      if (files().has_failed()) return ErrorCode::kNone;
    }
    // The synchronous connectors' workers have nothing to report.
    if (setup_.assembly != Assembly::kSynchronous) observe_report(engine, step.report);
    if (setup_.offloading) {
      offloading::Facet::observe_report(step.report, observed().of(engine.role));
    }
    return take_in(engine, step);
  }

  bool all_known(const Update& command) const {
    const auto is_known = [&](const Sample& sample) {
      return world_->find(sample.request).has_value();
    };
    return std::ranges::all_of(command.samples, is_known) &&
           std::ranges::all_of(command.reports,
                               [&](const multi::ChildReport& report) {
                                 return SchedulerObserver::all_known(*world_, report.sending) &&
                                        SchedulerObserver::all_known(*world_, report.recving);
                               }) &&
           SchedulerObserver::all_known(*world_, command.finished_recving) &&
           SchedulerObserver::all_known(*world_, command.finished_sending);
  }

  static bool has_report(const Update& command) {
    return !command.finished_recving.empty() || !command.finished_sending.empty() ||
           !command.invalid_blocks.empty();
  }

  bool samples_fit(const SchedulerOutput& output) const {
    for (std::size_t k = 0; k < output.scheduled.size(); ++k) {
      const SchedulerOutput::Scheduled& scheduled = output.scheduled[k];
      const std::size_t num_sampled = runner_output_.sampled_token_ids[k].size();
      const std::size_t most = scheduled.samples ? 1 + scheduled.num_spec_tokens : 0;
      if (num_sampled > most || (scheduled.samples && num_sampled == 0)) return false;
      if (!setup_.files || num_sampled < 2) continue;
      // The step has computed an accepted draft as that token.
      const auto drafts = output.spec_token_ids[k].first(num_sampled - 1);
      const auto sampled = runner_output_.sampled_token_ids[k].first(num_sampled - 1);
      if (!std::ranges::equal(drafts, sampled)) return false;
    }
    return true;
  }

  /// Without workers the command has the report.
  ErrorCode update_as_commanded(const Update& command, Engine& engine) {
    KVConnectorOutput report;
    report.finished_recving =
        SchedulerObserver::indices_of(*engine.scheduler, *world_, command.finished_recving);
    report.finished_sending =
        SchedulerObserver::indices_of(*engine.scheduler, *world_, command.finished_sending);
    report.invalid_block_ids = command.invalid_blocks;
    return take_in(engine, engine.in_flight.front(), report);
  }

  /// The content of a report before a worker overwrites it.
  static const KVConnectorWorkerOutput& report_of_others() {
    static const std::vector<TransferOperations> stats = {{"of others", {{1, 1e-6}}}};
    static const KVConnectorWorkerOutput report = {
        .finished_sending = {"another"},
        .finished_recving = {"another"},
        .invalid_block_ids = {kNullBlockId},
        .completed_jobs = {{}},
        .stats = stats,
        .stats_of_children = {{name_of(Kind::kOffloading), stats}}};
    return report;
  }

  /// The first file that fails ends the run.
  void run_on_all_ranks(Engine& engine, PlannedStep& step) {
    if (setup_.files) files().report().clear();
    const KVConnectorMetadata& metadata = metadata_of(step);
    worker_outputs_.resize(engine.ranks.size());
    for (std::size_t number = 0; number < engine.ranks.size(); ++number) {
      EngineRank& rank = engine.ranks[number];
      rank.worker->handle_preemptions(metadata);
      rank.worker->bind_connector_metadata(metadata);
      rank.worker->start_load_kv();
      if (setup_.files && files().has_failed()) return;
      if (step.output.total_num_scheduled_tokens > 0) {
        if (setup_.files && !run_layers(step, rank)) return;
        rank.worker->wait_for_save();
      }
      worker_outputs_[number] = report_of_others();
      rank.worker->get_finished(step.finished, worker_outputs_[number]);
      rank.worker->clear_connector_metadata();
    }
    aggregate(engine, worker_outputs_, step);
  }

  /// False: a file failed.
  bool run_layers(const PlannedStep& step, EngineRank& rank) {
    for (std::uint32_t index = 0; index < rank.kv_cache->num_layers(); ++index) {
      const std::uint32_t layer = rank.kv_cache->first_layer() + index;
      rank.worker->wait_for_layer_load(layer);
      files::Facet::compute(step.computed, layer, *rank.kv_cache);
      rank.worker->save_kv_layer(layer);
      if (files().has_failed()) return false;
    }
    return true;
  }

  void aggregate(Engine& engine, const std::vector<KVConnectorWorkerOutput>& outputs,
                 PlannedStep& step) {
    engine.aggregator->aggregate(outputs, step.report);
    if (engines_.is_multi()) engine.multi.check_report(step.report, engine);
    SchedulerObserver::sort_by_declaration(step.report.finished_recving, *world_);
    SchedulerObserver::sort_by_declaration(step.report.finished_sending, *world_);
  }

  ErrorCode take_in(Engine& engine, const PlannedStep& step) {
    const ErrorCode error = take_in(
        engine, step, SchedulerObserver::report_of(*engine.scheduler, *world_, step.report));
    if (error == ErrorCode::kNone && setup_.offloading) {
      engine.offloading.send_stats(step.report, name_of(Kind::kOffloading));
    }
    return error;
  }

  /// Completes the oldest step with runner_output_.
  ErrorCode take_in(Engine& engine, const PlannedStep& step, const KVConnectorOutput& report) {
    runner_output_.kv_connector_output = report.empty() ? nullptr : &report;
    const ErrorCode error =
        engine.scheduler->update_from_output(step.output, runner_output_, outputs_);
    // Upstream has assertions where the scheduler refuses a report; the children's joint report can
    // fail them.
    if (engines_.is_multi() && error != ErrorCode::kNone) throw EngineEnded{error};
    if (error != ErrorCode::kNone) return error;
    engine.spare.splice(engine.spare.end(), engine.in_flight, engine.in_flight.begin());
    engine.observer.observe_outputs(outputs_, observed().of(engine.role));
    if (setup_.nixl && engine.role == EngineRole::kProducer) {
      nixl().take_finished_prefills(engine, observed());
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const UpdateDraftTokenIds& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    // The window would move when drafts are accepted.
    if (setup_.nixl && command.engine == EngineRole::kProducer && has_window(groups())) {
      return ErrorCode::kNotInConfig;
    }
    Scheduler& scheduler = *engine_of(command.engine).scheduler;
    return scheduler.update_draft_token_ids(
        SchedulerObserver::index_of(scheduler, *world_, command.request), command.tokens);
  }

  ErrorCode run(const GrammarCompiled& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    Scheduler& scheduler = *engine_of(EngineRole::kProducer).scheduler;
    scheduler.grammar_compiled(SchedulerObserver::index_of(scheduler, *world_, command.request));
    return ErrorCode::kNone;
  }

  bool can_end_with(RequestStatus status) const {
    if (!setup_.nixl) return is_finished(status);
    return status == RequestStatus::kFinishedAborted || status == RequestStatus::kFinishedError;
  }

  ErrorCode run(const FinishRequests& command) {
    if (!SchedulerObserver::all_known(*world_, command.requests)) return ErrorCode::kUnknownRequest;
    if (!can_end_with(command.status)) return ErrorCode::kBadRange;
    Scheduler& scheduler = *engine_of(command.engine).scheduler;
    scheduler.finish_requests(SchedulerObserver::indices_of(scheduler, *world_, command.requests),
                              command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const FinishAllRequests& command) {
    if (!can_end_with(command.status)) return ErrorCode::kBadRange;
    engine_of(command.engine).scheduler->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const SetPauseState& command) {
    engine_of(command.engine).scheduler->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const ResetPrefixCache& command) {
    if (setup_.has_workers() && command.connector_fails) return ErrorCode::kNotInConfig;
    if (command.reset_running_requests && setup_.offloading) return ErrorCode::kNotInConfig;
    if (setup_.offloading && command.reset_connector &&
        engine_of(command.engine).offloading.has_tiers()) {
      return ErrorCode::kNotInConfig;
    }
    const ErrorCode error = script_reset(command);
    if (error != ErrorCode::kNone) return error;
    observed().of(command.engine).success.emplace() =
        engine_of(command.engine)
            .scheduler->reset_prefix_cache(command.reset_running_requests, command.reset_connector);
    return ErrorCode::kNone;
  }

  /// How the scripted connector, or the scripted children, will answer.
  ErrorCode script_reset(const ResetPrefixCache& command) {
    using Reset = ScriptedConnector::Reset;
    const auto is_scripted = [&](std::uint32_t child) {
      return setup_.has_child(child, Kind::kScripted);
    };
    const std::vector<std::uint32_t>& failing = command.failing_children;
    const std::vector<std::uint32_t>& silent = command.silent_children;
    if (!std::ranges::all_of(failing, is_scripted) || !std::ranges::all_of(silent, is_scripted)) {
      return ErrorCode::kNotInConfig;
    }
    Engine& engine = engine_of(command.engine);
    if (setup_.is_scripted) {
      scripted(engine, 0)->set_reset(command.connector_fails ? Reset::kFails : Reset::kDone);
    }
    for (std::uint32_t child = 0; child < setup_.children.size(); ++child) {
      if (!is_scripted(child)) continue;
      const auto is_in = [child](const std::vector<std::uint32_t>& places) {
        return contains(places, child);
      };
      scripted(engine, child)
          ->set_reset(is_in(failing)  ? Reset::kFails
                      : is_in(silent) ? Reset::kSaysNothing
                                      : Reset::kDone);
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const ScriptConnector& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    ScriptedConnector* const connector = scripted(engine_of(command.engine), command.child);
    if (!connector) return ErrorCode::kNotInConfig;
    connector->set_script(command.request, command);
    return ErrorCode::kNone;
  }

  // ---- Commands of devices ----

  ErrorCode run(const Poll& command) {
    if (!setup_.device) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    PlannedStep* step = nullptr;
    const ErrorCode error = engine.device.poll(command, engine, observed().of(engine.role), step);
    if (!step || !setup_.has_workers()) return error;
    aggregate(engine, step->worker_outputs, *step);
    observe_report(engine, step->report);
    return ErrorCode::kNone;
  }

  ErrorCode update_on_device(const Update& command) {
    const bool samples =
        command.token != Update().token || command.accepted > 0 || !command.samples.empty();
    if (samples || has_report(command)) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    if (engine.in_flight.empty() || !engine.in_flight.front().is_polled) {
      return ErrorCode::kNoStepInFlight;
    }
    const PlannedStep& step = engine.in_flight.front();
    on_device::Facet::take_sampled(engine, runner_output_.sampled_token_ids);
    const ErrorCode error = take_in(engine, step);
    if (error == ErrorCode::kNone) engine.device.end_step();
    return error;
  }

  ErrorCode run(const Drain& command) {
    if (!setup_.device) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    on_device::Facet::begin_drain(engine);
    engine.scheduler->finish_all_requests(RequestStatus::kFinishedAborted);
    ErrorCode error = ErrorCode::kNone;
    for (std::uint32_t step = 0; step < kNumDrainSteps; ++step) {
      // Refused while too many steps are in flight: they have to come back first.
      static_cast<void>(run(Schedule{engine.role}));
      while (!engine.in_flight.empty() && error == ErrorCode::kNone) {
        static_cast<void>(dispatch(Execute{engine.role}));
        for (EngineRank& rank : engine.ranks) rank.device_copies->run_all();
        static_cast<void>(run(Poll{engine.role}));
        Update update;
        update.engine = engine.role;
        error = run(update);
      }
      if (error != ErrorCode::kNone || is_at_rest(engine)) break;
    }
    on_device::Facet::end_drain(engine);
    // The command does not answer what its steps answered.
    empty(observed());
    return error;
  }

  static bool is_at_rest(const Engine& engine) {
    return !on_device::Facet::is_copying(engine) &&
           engine.scheduler->block_counts().referenced == 1 &&
           !engine.scheduler->has_finished_requests();
  }

  // ---- Observations ----

  void observe_report(const Engine& engine, const AggregatedOutput& report) {
    observed().finished_recving.emplace() = report.finished_recving;
    observed().finished_sending.emplace() = report.finished_sending;
    observed().invalid_blocks.emplace() = report.invalid_block_ids;
    observed().completed_jobs.emplace() = report.completed_jobs;
    if (engines_.is_multi()) multi::Facet::observe_report(report, observed().of(engine.role));
  }

  void observe_all(Observe observe) {
    const bool has_state = observe == Observe::kState;
    for (Engine& engine : engines_.all()) {
      EngineObservation& shown = observed().of(engine.role);
      if (setup_.is_scripted || engines_.is_multi()) observe_connector_calls(engine, shown);
      engine.observer.observe(*engine.scheduler, observe, shown);
      if (setup_.device) engine.device.observe(engine, has_state, shown);
      if (setup_.offloading) engine.offloading.observe(engine, has_state, shown);
      if (setup_.simple) engine.simple.observe(engine, has_state, shown);
      if (setup_.files) files().observe(engine, has_state, shown);
      if (engines_.is_multi()) engine.multi.observe(engine, has_state, shown);
    }
    if (setup_.nixl) nixl().observe(has_state, observed());
  }

  /// The first command that is not refused shows the scripted children's calls at the start: a
  /// refusal changes nothing.
  void observe_connector_calls(Engine& engine, EngineObservation& shown) {
    if (engines_.is_multi() && observed().error != ErrorCode::kNone) return;
    std::vector<ConnectorCall>& calls = shown.connector_calls.emplace();
    calls.clear();
    if (engines_.is_multi()) {
      calls.swap(engine.multi.scripted()->calls);
    } else {
      scripted(engine, 0)->take_calls(calls);
    }
    if (calls.empty()) shown.connector_calls.reset();
  }

  std::string name_;
  Engines engines_;
  const EngineSetup& setup_;      ///< theirs
  const World* world_ = nullptr;  ///< of the command that runs

  ::kvfence::ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
};

}  // namespace
}  // namespace engine

std::unique_ptr<Implementation> make_engine_driver(std::string name, EngineParts parts) {
  return std::make_unique<engine::EngineDriver>(std::move(name), std::move(parts));
}

}  // namespace kvfence
