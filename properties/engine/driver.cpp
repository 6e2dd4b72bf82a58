#include "properties/engine/driver.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "contract/scripted/scripted_connector.h"
#include "properties/core/driver.h"
#include "properties/engine/engine_parts.h"
#include "properties/engine/files/facet.h"
#include "properties/engine/nixl/facet.h"
#include "properties/engine/observer.h"
#include "properties/engine/offloading/facet.h"
#include "properties/engine/on_device/facet.h"
#include "properties/engine/on_device/remote_reads.h"
#include "properties/engine/planned_step.h"
#include "properties/engine/rank.h"
#include "properties/engine/shown_requests.h"
#include "properties/engine/simple/facet.h"

namespace kvfence {
namespace {

class EngineDriver final : public DriverOf<EngineTarget> {
 public:
  EngineDriver(std::string name, EngineParts parts)
      : name_(std::move(name)), parts_(std::move(parts)) {}
  ~EngineDriver() override { forget_engines(); }

  std::string name() const override { return name_; }

  std::optional<ImplementationFailure> start(const Config& config, const Setup& setup) override {
    // Forwards of a device run with the old configuration, at the latest in its destructor. Tiers
    // are destroyed before their slots. A connector's copies use the storage that they were made
    // with.
    forget_engines();
    for (Around& around : around_) around.scripted->calls.clear();
    setup_ = setup;
    if (auto refused = refuse_other_kinds()) return refused;
    for (const EngineRole role : kEngineRoles) {
      std::optional<ConnectorSetup>& offloading = setup_.of(role).offloading;
      if (offloading) {
        around(role).offloading.start(config, *offloading, numbers_of(Kind::kOffloading),
                                      parts_.make_tier_files);
      }
      if (setup_.simple) around(role).simple.start(numbers_of(Kind::kSimple));
    }
    if (setup_.files && !files_.start(*setup_.files, parts_.make_storage(*setup_.files))) {
      return ImplementationFailure{"there is no storage"};
    }
    if (setup_.nixl) nixl_.start(config, setup_.device ? &remote_reads_ : nullptr);
    start_device();
    return start_engines();
  }

  void answer(const Command& command, const World& world, Observe observe) override {
    world_ = &world;
    try {
      observed().error = std::visit([&](const auto& typed) { return dispatch(typed); }, command);
    } catch (const EngineEnded& ended) {
      end_engine(ended.code);
    }
    if (engine::has_ended(observed())) restart_engines();
    observe_all(observe);
  }

  void add_to(StateHash& hash) const override {
    hash.add_kept(files_, nixl_, remote_reads_, received_, around_);
    hash.add(engines_);
  }

 private:
  using Kind = engine::ConnectorKind;

  /// The environment of an engine's connectors. It outlives the engine.
  struct Around {
    // Outlives the ranks: their destructors may still run forwards.
    engine::on_device::Facet device;
    engine::offloading::Facet offloading;
    engine::simple::Facet simple;
    std::shared_ptr<ScriptedChildren> scripted = std::make_shared<ScriptedChildren>();

    void add_to(StateHash& hash) const {
      hash.add_all(device, offloading);
      // Calls that no answer has shown yet are those of the start, which the configuration decides.
      hash.add(scripted->calls.size());
    }
  };

  struct Engine {
    EngineRole role = EngineRole::kProducer;
    std::unique_ptr<Scheduler> scheduler;
    SchedulerObserver observer;
    std::vector<EngineRank> ranks;
    std::unique_ptr<KVOutputAggregator> aggregator;
    std::list<PlannedStep> in_flight;  ///< oldest first
    std::list<PlannedStep> spare;      ///< steps that came back, for reuse

    void add_to(StateHash& hash) const {
      hash.add_kept(observer);
      hash.add_all(scheduler, ranks, in_flight);
      if (!ranks.empty()) hash.add(aggregator);
    }
  };

  // ---- Start and end of engines ----

  /// Ignores failures of shutdown: the halves are destroyed next.
  void forget_engines() {
    for (Engine& engine : engines_) {
      for (const EngineRank& rank : engine.ranks) {
        if (rank.worker) static_cast<void>(rank.worker->shutdown());
      }
      KVConnector* const connector = engine.scheduler ? engine.scheduler->connector() : nullptr;
      if (connector) static_cast<void>(connector->shutdown());
      engine.ranks.clear();
    }
    engines_.clear();
  }

  /// As upstream does when it raises: the command's answers so far are lost.
  void end_engine(ErrorCode code) {
    empty(observed());
    observed().error = ErrorCode::kNone;
    observed().engine_ended.emplace() = to_text(code);
  }

  std::optional<ImplementationFailure> start_engines() {
    for (Around& around : around_) around.scripted->reports.clear();
    received_.clear();
    for (std::size_t number = 0; number < setup_.schedulers.size(); ++number) {
      Engine& engine = engines_.emplace_back();
      engine.role = static_cast<EngineRole>(number);
      if (setup_.has_ranks() && !add_ranks(engine, setup_.num_ranks[number])) {
        return ImplementationFailure{"there is no worker's half"};
      }
      KVConnectorHandle connector(make_connector(engine.role));
      if (setup_.has_connector() && !connector) {
        return ImplementationFailure{"the scheduler's half is no connector of that kind"};
      }
      const bool has_groups = setup_.schedulers[number].kv_cache.groups.size() > 1;
      if (connector && has_groups && !connector->supports_hma()) {
        return without_hma();
      }
      engine.scheduler = parts_.make_scheduler(setup_.schedulers[number], std::move(connector));
      if (!setup_.has_workers()) continue;
      engine.aggregator = parts_.make_aggregator(setup_.num_ranks[number]);
      HandshakesByRank handshakes;
      for (EngineRank& rank : engine.ranks) {
        handshakes.push_back(rank.worker->get_handshake_metadata());
      }
      engine.scheduler->connector()->set_xfer_handshake_metadata(handshakes);
    }
    for (Engine& engine : engines_) {
      if (!setup_.offloading) continue;
      around(engine.role)
          .offloading.watch(engine.ranks,
                            parts_.make_stat_loggers(setup_.of(engine.role).offloading->metrics));
    }
    if (setup_.files) files_.count_engine_start();
    if (setup_.device && setup_.nixl) {
      remote_reads_.start(engine_of(EngineRole::kProducer).ranks,
                          engine_of(EngineRole::kConsumer).ranks, setup_.device->block_size);
    }
    return std::nullopt;
  }

  void start_device() {
    for (const EngineRole role : kEngineRoles) around(role).device.start(setup_, role);
  }

  void restart_engines() {
    forget_engines();
    if (setup_.nixl) nixl_.restart();
    start_device();
    KVFENCE_CHECK(!start_engines(), "an engine that started once starts again");
  }

  // ---- Connectors: one, or the children of a MultiConnector ----

  bool is_multi() const { return !setup_.children.empty(); }

  /// Of the only connector. Requires: workers, and no MultiConnector.
  Kind kind() const {
    if (setup_.offloading) return Kind::kOffloading;
    if (setup_.simple) return Kind::kSimple;
    return setup_.files ? Kind::kFiles : Kind::kNixl;
  }

  TransferNumbers numbers_of(Kind kind) const {
    if (!is_multi()) return {};
    const std::vector<engine::ChildSetup>& all = setup_.children;
    const auto place = std::ranges::find(all, kind, &engine::ChildSetup::kind) - all.begin();
    return {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(all.size())};
  }

  std::unique_ptr<KVConnector> make_connector(EngineRole role) {
    if (setup_.is_scripted) return std::make_unique<ScriptedConnector>();
    if (!setup_.has_connector()) return nullptr;
    if (!is_multi()) return make_connector(kind(), role);
    std::vector<KVConnectorHandle> children;
    for (const engine::ChildSetup& setup : setup_.children) {
      std::unique_ptr<KVConnector> child;
      if (setup.kind == Kind::kScripted) {
        child = std::make_unique<ScriptedConnector>(static_cast<std::uint32_t>(children.size()),
                                                    traits_of(setup), around(role).scripted);
      } else {
        child = make_connector(setup.kind, role);
      }
      if (!child) return nullptr;
      children.emplace_back(std::move(child));
    }
    return parts_.make_multi(setup_.scheduler().kv_cache.pool.rules, std::move(children));
  }

  static ImplementationFailure unsupported(const std::string& found, const std::string& expected) {
    return {"found " + found + ", expected " + expected, ImplementationFailure::Kind::kUnsupported};
  }

  /// A library need not support several groups of layers. kvfence's own sides must: refusing would
  /// draw another configuration and hide the difference.
  ImplementationFailure without_hma() const {
    ImplementationFailure failure = unsupported("a connector with supports_hma() false",
                                                "true, since there are several groups of layers");
    if (parts_.judged_kinds.empty()) failure.kind = ImplementationFailure::Kind::kFailed;
    return failure;
  }

  /// Refuses an engine that would have no connector of the library under test. The other children
  /// of a MultiConnector are kvfence's.
  std::optional<ImplementationFailure> refuse_other_kinds() {
    const std::vector<std::string>& judged = parts_.judged_kinds;
    if (judged.empty() || is_multi()) return std::nullopt;
    const std::string own = setup_.has_workers() ? name_of(kind()) : "";
    if (contains(judged, own)) return std::nullopt;
    return unsupported("a connector of kind " + joined(judged),
                       (own.empty() ? "none" : "one of kind " + own) + " for assembly " +
                           std::string(to_text(setup_.assembly)));
  }

  static ScriptedTraits traits_of(const engine::ChildSetup& child) {
    const engine::ScriptedRecord& record = child.scripted;
    return {record.hma, record.cross_layers, record.handshake, record.shutdown_fails};
  }

  /// Null if its class shows less than is compared.
  template <class Shown>
  static std::unique_ptr<KVConnector> that_shows(std::unique_ptr<KVConnector> made) {
    return dynamic_cast<const Shown*>(made.get()) ? std::move(made) : nullptr;
  }

  /// Null where there is none.
  std::unique_ptr<KVConnector> make_connector(Kind kind, EngineRole role) {
    switch (kind) {
      case Kind::kOffloading:
        return that_shows<OffloadingConnectorScheduler>(
            parts_.make_offloading(*setup_.of(role).offloading));
      case Kind::kSimple:
        return that_shows<SimpleCPUOffloadScheduler>(parts_.make_simple(*setup_.of(role).simple));
      case Kind::kFiles:
        return parts_.make_files_connector(*setup_.of(role).files, files_.storage());
      case Kind::kNixl:
      case Kind::kScripted:
        break;
    }
    if (role == EngineRole::kProducer) return parts_.make_producer(*setup_.nixl);
    return parts_.make_consumer(*setup_.nixl);
  }

  /// Registers the KV caches too. False: there is no half.
  bool add_ranks(Engine& engine, std::uint32_t num_ranks) {
    for (std::uint32_t number = 0; number < num_ranks; ++number) {
      if (!add_rank(engine, number)) return false;
    }
    const std::vector<KVCacheSpec>& groups = setup_.scheduler().kv_cache.groups;
    const bool can_cross_layers =
        groups.size() == 1 && groups.front().kind != KVCacheSpecKind::kMamba;
    for (EngineRank& rank : engine.ranks) {
      if (!rank.worker) continue;
      if (can_cross_layers && rank.worker->prefer_cross_layer_blocks()) {
        rank.worker->register_cross_layers_kv_cache(rank.transfer_engine());
      } else {
        rank.worker->register_kv_caches(rank.transfer_engine());
      }
    }
    return true;
  }

  /// False: there is no half.
  bool add_rank(Engine& engine, std::uint32_t number) {
    EngineRank& rank = engine.ranks.emplace_back();
    if (setup_.files) {
      const SynchronousConnectorSpec& spec = *setup_.of(engine.role).files;
      rank.kv_cache =
          std::make_unique<ScriptedKVCache>(number * spec.num_layers, spec.num_layers,
                                            spec.kv_cache.pool.num_gpu_blocks, spec.block_size());
    }
    if (!is_multi()) {
      if (setup_.has_workers()) {
        rank.worker = make_worker(kind(), engine.role, number, rank);
      }
    } else {
      std::vector<MultiConnectorChildWorker> children;
      for (const engine::ChildSetup& child : setup_.children) {
        if (child.kind == Kind::kScripted) {
          const auto place = static_cast<std::uint32_t>(children.size());
          children.push_back({child.scripted.connector_class,
                              KVConnectorWorkerHandle(std::make_unique<ScriptedConnectorWorker>(
                                  place, number, traits_of(child), around(engine.role).scripted))});
          continue;
        }
        children.push_back({name_of(child.kind), KVConnectorWorkerHandle(make_worker(
                                                     child.kind, engine.role, number, rank))});
        if (!children.back().worker) return false;
      }
      rank.worker = parts_.make_multi_worker(std::move(children));
    }
    if (setup_.device) {
      rank.device = parts_.make_device(setup_, engine.role);
      rank.device_copies.emplace(number, setup_, *rank.device);
    }
    return rank.worker != nullptr || !setup_.has_workers();
  }

  static std::string name_of(Kind kind) {
    constexpr std::array<const char*, engine::kNumConnectorKinds> kNames = {
        "offloading", "simple", "files", "nixl", "scripted"};
    return kNames[static_cast<std::size_t>(kind)];
  }

  /// rank: has its KV cache.
  std::unique_ptr<KVConnectorWorker> make_worker(Kind kind, EngineRole role, std::uint32_t number,
                                                 const EngineRank& rank) {
    switch (kind) {
      case Kind::kOffloading:
        return parts_.make_offloading_worker(*setup_.of(role).offloading, number);
      case Kind::kSimple:
        return parts_.make_simple_worker(*setup_.of(role).simple);
      case Kind::kFiles:
        return parts_.make_files_worker(*setup_.of(role).files, files_.storage(), *rank.kv_cache,
                                        files_.report());
      case Kind::kNixl:
      case Kind::kScripted:
        break;
    }
    const auto& make =
        role == EngineRole::kProducer ? parts_.make_producer_worker : parts_.make_consumer_worker;
    return make(*setup_.nixl, number, nixl_.transport());
  }

  Engine& engine_of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  Around& around(EngineRole role) { return around_[static_cast<std::size_t>(role)]; }
  Engine& first() { return engines_.front(); }
  bool has_engine(EngineRole role) const {
    return static_cast<std::size_t>(role) < engines_.size();
  }

  /// Null: there is none, or none at that place.
  ScriptedConnector* scripted(Engine& engine, std::uint32_t child) {
    KVConnector* connector = engine.scheduler->connector();
    if (is_multi()) {
      connector = setup_.has_child(child, Kind::kScripted) ? connector->child(child) : nullptr;
    } else if (!setup_.is_scripted || child > 0) {
      return nullptr;
    }
    return static_cast<ScriptedConnector*>(connector);
  }
  static MultiConnectorScheduler& multi_of(Engine& engine) {
    return static_cast<MultiConnectorScheduler&>(*engine.scheduler->connector());
  }
  static const MultiConnectorWorker& multi_of(const EngineRank& rank) {
    return static_cast<const MultiConnectorWorker&>(*rank.worker);
  }
  OffloadingConnectorScheduler& offloading_of(Engine& engine) {
    return connector_of<OffloadingConnectorScheduler>(engine, Kind::kOffloading);
  }
  template <class Connector>
  Connector& connector_of(Engine& engine, Kind kind) {
    KVConnector* connector = engine.scheduler->connector();
    if (is_multi()) connector = connector->child(numbers_of(kind).child);
    return static_cast<Connector&>(*connector);
  }
  static const KVConnectorMetadata& metadata_of(const PlannedStep& step) {
    KVFENCE_CHECK(step.output.kv_connector_metadata, "such a connector always has metadata");
    return *step.output.kv_connector_metadata;
  }
  template <class Metadata>
  const Metadata& metadata_of(const PlannedStep& step, Kind kind) const {
    const KVConnectorMetadata* metadata = &metadata_of(step);
    if (is_multi()) metadata = metadata->child(numbers_of(kind).child);
    return static_cast<const Metadata&>(*metadata);
  }

  // ---- Commands ----

  template <class C>
  Engine& engine_asked(const C& command) {
    if constexpr (requires { command.engine; }) {
      return engine_of(command.engine);
    } else {
      return first();
    }
  }

  template <class C>
  ErrorCode dispatch(const C& command) {
    if constexpr (requires { command.engine; }) {
      if (!std::is_same_v<C, engine::AddRequest> && !has_engine(command.engine)) {
        return ErrorCode::kNotInConfig;
      }
    }
    if constexpr (requires(engine::offloading::Facet & facet,
                           const engine::offloading::Facet::Around& around) {
                    facet.run(command, around);
                  }) {
      if (!setup_.offloading) return ErrorCode::kNotInConfig;
      Engine& engine = engine_asked(command);
      return around(engine.role)
          .offloading.run(command, {offloading_of(engine), engine.ranks, *world_});
    } else if constexpr (requires(engine::files::Facet & facet) { facet.run(command); }) {
      return setup_.files ? files_.run(command) : ErrorCode::kNotInConfig;
    } else if constexpr (requires(engine::nixl::Facet & facet) { facet.run(command); }) {
      return setup_.nixl ? nixl_.run(command) : ErrorCode::kNotInConfig;
    } else if constexpr (requires(engine::on_device::Facet & facet,
                                  const engine::on_device::Facet::Around& around,
                                  Observation& shown) { facet.run(command, around, shown); }) {
      if (!setup_.device) return ErrorCode::kNotInConfig;
      Engine& engine = engine_of(command.engine);
      return device_of(engine).run(command, on_device(engine), observed().of(engine.role));
    } else {
      return run(command);
    }
  }

  ErrorCode run(const engine::simple::AdvanceCopy& command) {
    if (!setup_.simple) return ErrorCode::kNotInConfig;
    return around(command.engine).simple.run(command, engine_of(command.engine).ranks);
  }

  ErrorCode run(const engine::offloading::LogStats& command) {
    if (!setup_.offloading || setup_.device) return ErrorCode::kNotInConfig;
    return around(command.engine).offloading.run(command, observed().of(command.engine));
  }

  ErrorCode run(const engine::nixl::AdvanceClock& command) {
    if (!setup_.nixl) return ErrorCode::kNotInConfig;
    return nixl_.run(
        command, connector_of<DisaggregatedProducer>(engine_of(EngineRole::kProducer), Kind::kNixl),
        connector_of<DisaggregatedConsumer>(engine_of(EngineRole::kConsumer), Kind::kNixl));
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
    if (setup_.device) device_of(engine).add(request.id, request.spec);
    return error;
  }

  template <class Command>
  bool may_look_up(const Command& command) const {
    return command.skip_reading_prefix_cache || setup_.may_read_gpu_cache();
  }

  const std::vector<KVCacheSpec>& groups() const { return setup_.scheduler().kv_cache.groups; }

  ErrorCode run(const engine::AddRequest& command) {
    if (!is_new(command.id)) return ErrorCode::kAlreadyDeclared;
    const bool is_consumer = command.engine == EngineRole::kConsumer;
    if (!has_engine(command.engine)) return ErrorCode::kNotInConfig;
    if (command.do_remote_decode && (!setup_.nixl || is_consumer)) return ErrorCode::kNotInConfig;
    // Files are named after tokens only: a request with a salt would get the KV of another one.
    if (setup_.files && (command.cache_salt || command.lora_name)) return ErrorCode::kNotInConfig;
    if (!may_look_up(command)) return ErrorCode::kNotInConfig;
    // Its window moves with the next token.
    if (command.do_remote_decode && has_window(groups()) && command.max_tokens != 1) {
      return ErrorCode::kNotInConfig;
    }
    NewRequest request;
    request.id = command.id;
    request.spec = {command.tokens, std::nullopt, command.cache_salt, {}};
    if (command.lora_name) request.spec.lora = LoraRequest{*command.lora_name, command.lora_id};
    request.max_tokens = command.max_tokens;
    request.min_tokens = command.min_tokens;
    request.eos_token_id = command.eos_token;
    request.stop_token_ids = command.stop_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.needs_grammar = command.grammar;
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

  ErrorCode run(const engine::HandOver& command) {
    if (!setup_.nixl || !may_look_up(command)) return ErrorCode::kNotInConfig;
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    if (!is_new(command.id)) return ErrorCode::kAlreadyDeclared;
    const KVTransferParams* const prefill = nixl_.finished_prefill(command.request);
    if (!prefill) return ErrorCode::kNotFinished;
    NewRequest request;
    request.id = command.id;
    request.spec = world_->requests().find(command.request)->spec();
    request.max_tokens = command.max_tokens;
    request.priority = command.priority;
    request.arrival_time = command.arrival_time;
    request.skip_reading_prefix_cache = command.skip_reading_prefix_cache;
    request.kv_transfer_params = *prefill;
    const ErrorCode error = add(engine_of(EngineRole::kConsumer), request);
    if (error != ErrorCode::kNone) return error;
    // The first reader's notice would end the read of a second one.
    if (!reports_failed_reads(groups())) nixl_.forget_prefill(command.request);
    return error;
  }

  /// Appended to those in flight; reuses the storage of one that came back.
  static PlannedStep& new_step(Engine& engine) {
    if (engine.spare.empty()) return engine.in_flight.emplace_back();
    engine.in_flight.splice(engine.in_flight.end(), engine.spare, engine.spare.begin());
    engine.in_flight.back().clear();
    return engine.in_flight.back();
  }

  ErrorCode run(const engine::Schedule& command) {
    Engine& engine = engine_of(command.engine);
    PlannedStep& step = new_step(engine);
    const ErrorCode error = engine.scheduler->schedule(step.output);
    if (error != ErrorCode::kNone) {
      engine.spare.splice(engine.spare.end(), engine.in_flight, std::prev(engine.in_flight.end()));
      return error;
    }
    engine::EngineObservation& shown = observed().of(command.engine);
    engine.observer.observe_output(*engine.scheduler, step.output, shown);
    if (!setup_.has_ranks()) return ErrorCode::kNone;
    engine.observer.names_of(step.output.finished, step.finished);
    if (setup_.device) engine::on_device::Facet::plan(shown, step);
    if (setup_.has_workers()) observe_plan(engine, step);
    if (setup_.files) plan_computed(engine, shown, step);
    return ErrorCode::kNone;
  }

  void observe_plan(Engine& engine, const PlannedStep& step) {
    engine::EngineObservation& shown = observed().of(engine.role);
    if (setup_.offloading) {
      around(engine.role)
          .offloading.observe_plan(
              metadata_of<OffloadingConnectorMetadata>(step, Kind::kOffloading),
              offloading_of(engine), shown);
    }
    if (setup_.simple) {
      engine::simple::Facet::observe_plan(
          metadata_of<SimpleCPUOffloadMetadata>(step, Kind::kSimple), shown);
    }
    if (setup_.files) {
      engine::files::Facet::observe_plan(
          metadata_of<SynchronousConnectorMetadata>(step, Kind::kFiles), shown);
    }
    if (setup_.nixl && engine.role == EngineRole::kProducer) {
      engine::nixl::Facet::observe_plan(metadata_of<ProducerMetadata>(step, Kind::kNixl),
                                        observed());
    } else if (setup_.nixl) {
      engine::nixl::Facet::observe_plan(metadata_of<ConsumerMetadata>(step, Kind::kNixl),
                                        observed());
    }
  }

  /// The tokens of the step that are known when it is planned.
  static void plan_computed(const Engine& engine, const engine::EngineObservation& shown,
                            PlannedStep& step) {
    for (std::size_t k = 0; k < step.output.scheduled.size(); ++k) {
      const SchedulerOutput::Scheduled& scheduled = step.output.scheduled[k];
      engine::files::Computed& planned = step.computed.emplace_back();
      const auto first = engine::num_computed_before(*shown.new_reqs, *shown.cached_reqs,
                                                     (*shown.scheduled)[k].request);
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

  ErrorCode run(const engine::Update& command) {
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
    const ErrorCode reported = take_reports(command, engine);
    if (reported != ErrorCode::kNone) return reported;
    // From here on the step cannot be refused: the workers' effects stay.
    run_on_all_ranks(engine, step);
    if (setup_.files) {
      files_.observe_report(observed().of(engine.role));
      if (files_.has_failed()) return ErrorCode::kNone;
    }
    // The synchronous connectors' workers have nothing to report.
    if (setup_.assembly != engine::Assembly::kSynchronous) observe_report(engine, step.report);
    if (setup_.offloading) {
      engine::offloading::Facet::observe_report(step.report, observed().of(engine.role));
    }
    return take_in(engine, step);
  }

  bool all_known(const engine::Update& command) const {
    const auto is_known = [&](const engine::Sample& sample) {
      return world_->find(sample.request).has_value();
    };
    return std::ranges::all_of(command.samples, is_known) &&
           std::ranges::all_of(command.reports,
                               [&](const engine::multi::ChildReport& report) {
                                 return SchedulerObserver::all_known(*world_, report.sending) &&
                                        SchedulerObserver::all_known(*world_, report.recving);
                               }) &&
           SchedulerObserver::all_known(*world_, command.finished_recving) &&
           SchedulerObserver::all_known(*world_, command.finished_sending);
  }

  /// What the scripted children's workers are to report of the step.
  ErrorCode take_reports(const engine::Update& command, Engine& engine) {
    auto& reports = around(engine.role).scripted->reports;
    reports.clear();
    for (const engine::multi::ChildReport& each : command.reports) {
      const bool is_there =
          setup_.has_child(each.child, Kind::kScripted) && each.rank < engine.ranks.size();
      if (!is_there) return ErrorCode::kNotInConfig;
      if (std::ranges::any_of(each.jobs,
                              [](JobId job) { return job >= engine::multi::kNumChildJobsMax; })) {
        return ErrorCode::kBadRange;
      }
      if (!reports.try_emplace({each.child, each.rank}, each).second) {
        return ErrorCode::kListedTwice;
      }
    }
    check_received(command, engine);
    return ErrorCode::kNone;
  }

  /// Upstream counts reports without checking who loads: it continues with half-loaded blocks, and
  /// its assertions fail later.
  void check_received(const engine::Update& command, Engine& engine) {
    for (const engine::multi::ChildReport& each : command.reports) {
      const std::set<std::string> names(each.recving.begin(), each.recving.end());
      for (const std::string& name : names) {
        const bool loads = multi_of(engine).loading_child(name) == each.child;
        if (!loads || !received_.insert({name, each.rank}).second) {
          throw EngineEnded{ErrorCode::kNotLoading};
        }
      }
    }
  }

  static void check_sent(Engine& engine, const AggregatedOutput& report) {
    const std::vector<std::string>& received = report.finished_recving;
    for (const std::string& name : report.finished_sending) {
      const bool ends_now = contains(received, name);
      if (!ends_now && multi_of(engine).loading_child(name))
        throw EngineEnded{ErrorCode::kNotFinished};
    }
  }

  static bool has_report(const engine::Update& command) {
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
  ErrorCode update_as_commanded(const engine::Update& command, Engine& engine) {
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
    if (setup_.files) files_.report().clear();
    const KVConnectorMetadata& metadata = metadata_of(step);
    worker_outputs_.resize(engine.ranks.size());
    for (std::size_t number = 0; number < engine.ranks.size(); ++number) {
      EngineRank& rank = engine.ranks[number];
      rank.worker->handle_preemptions(metadata);
      rank.worker->bind_connector_metadata(metadata);
      rank.worker->start_load_kv();
      if (setup_.files && files_.has_failed()) return;
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
      engine::files::Facet::compute(step.computed, layer, *rank.kv_cache);
      rank.worker->save_kv_layer(layer);
      if (files_.has_failed()) return false;
    }
    return true;
  }

  void aggregate(Engine& engine, const std::vector<KVConnectorWorkerOutput>& outputs,
                 PlannedStep& step) {
    engine.aggregator->aggregate(outputs, step.report);
    if (is_multi()) {
      for (const std::string& name : step.report.finished_recving) {
        std::erase_if(received_, [&](const auto& each) { return each.first == name; });
      }
      check_sent(engine, step.report);
    }
    SchedulerObserver::sort_by_declaration(step.report.finished_recving, *world_);
    SchedulerObserver::sort_by_declaration(step.report.finished_sending, *world_);
  }

  ErrorCode take_in(Engine& engine, const PlannedStep& step) {
    const ErrorCode error = take_in(
        engine, step, SchedulerObserver::report_of(*engine.scheduler, *world_, step.report));
    if (error == ErrorCode::kNone && setup_.offloading) {
      around(engine.role).offloading.send_stats(step.report, name_of(Kind::kOffloading));
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
    if (is_multi() && error != ErrorCode::kNone) throw EngineEnded{error};
    if (error != ErrorCode::kNone) return error;
    engine.spare.splice(engine.spare.end(), engine.in_flight, engine.in_flight.begin());
    engine.observer.observe_outputs(outputs_, observed().of(engine.role));
    if (setup_.nixl && engine.role == EngineRole::kProducer) {
      nixl_.take_finished_prefills(connector_of<DisaggregatedProducer>(engine, Kind::kNixl),
                                   observed());
    }
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::UpdateDraftTokenIds& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    // The window would move when drafts are accepted.
    if (setup_.nixl && command.engine == EngineRole::kProducer && has_window(groups())) {
      return ErrorCode::kNotInConfig;
    }
    Scheduler& scheduler = *engine_of(command.engine).scheduler;
    return scheduler.update_draft_token_ids(
        SchedulerObserver::index_of(scheduler, *world_, command.request), command.tokens);
  }

  ErrorCode run(const engine::GrammarCompiled& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    Scheduler& scheduler = *first().scheduler;
    scheduler.grammar_compiled(SchedulerObserver::index_of(scheduler, *world_, command.request));
    return ErrorCode::kNone;
  }

  bool can_end_with(RequestStatus status) const {
    if (!setup_.nixl) return is_finished(status);
    return status == RequestStatus::kFinishedAborted || status == RequestStatus::kFinishedError;
  }

  ErrorCode run(const engine::FinishRequests& command) {
    if (!SchedulerObserver::all_known(*world_, command.requests)) return ErrorCode::kUnknownRequest;
    if (!can_end_with(command.status)) return ErrorCode::kBadRange;
    Scheduler& scheduler = *engine_of(command.engine).scheduler;
    scheduler.finish_requests(SchedulerObserver::indices_of(scheduler, *world_, command.requests),
                              command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::FinishAllRequests& command) {
    if (!can_end_with(command.status)) return ErrorCode::kBadRange;
    engine_of(command.engine).scheduler->finish_all_requests(command.status);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::SetPauseState& command) {
    engine_of(command.engine).scheduler->set_pause_state(command.state);
    return ErrorCode::kNone;
  }

  ErrorCode run(const engine::ResetPrefixCache& command) {
    if (setup_.has_workers() && command.connector_fails) return ErrorCode::kNotInConfig;
    if (command.reset_running_requests && setup_.offloading) return ErrorCode::kNotInConfig;
    if (setup_.offloading && command.reset_connector &&
        around(command.engine).offloading.has_tiers()) {
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
  ErrorCode script_reset(const engine::ResetPrefixCache& command) {
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

  ErrorCode run(const engine::ScriptConnector& command) {
    if (!world_->find(command.request)) return ErrorCode::kUnknownRequest;
    ScriptedConnector* const connector = scripted(engine_of(command.engine), command.child);
    if (!connector) return ErrorCode::kNotInConfig;
    connector->set_script(command.request, command);
    return ErrorCode::kNone;
  }

  // ---- Commands of devices ----

  engine::on_device::Facet::Around on_device(Engine& engine) {
    return {engine.in_flight, engine.ranks};
  }

  engine::on_device::Facet& device_of(const Engine& engine) { return around(engine.role).device; }

  ErrorCode run(const engine::Poll& command) {
    if (!setup_.device) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    PlannedStep* step = nullptr;
    const ErrorCode error =
        device_of(engine).poll(command, on_device(engine), observed().of(engine.role), step);
    if (!step || !setup_.has_workers()) return error;
    aggregate(engine, step->worker_outputs, *step);
    observe_report(engine, step->report);
    return ErrorCode::kNone;
  }

  ErrorCode update_on_device(const engine::Update& command) {
    const bool samples =
        command.token != engine::Update().token || command.accepted > 0 || !command.samples.empty();
    if (samples || has_report(command)) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    if (engine.in_flight.empty() || !engine.in_flight.front().is_polled) {
      return ErrorCode::kNoStepInFlight;
    }
    const PlannedStep& step = engine.in_flight.front();
    engine::on_device::Facet::take_sampled(step, engine.ranks, runner_output_.sampled_token_ids);
    const ErrorCode error = take_in(engine, step);
    if (error == ErrorCode::kNone) device_of(engine).end_step();
    return error;
  }

  ErrorCode run(const engine::Drain& command) {
    if (!setup_.device) return ErrorCode::kNotInConfig;
    Engine& engine = engine_of(command.engine);
    engine::on_device::Facet::begin_drain(engine.ranks);
    engine.scheduler->finish_all_requests(RequestStatus::kFinishedAborted);
    ErrorCode error = ErrorCode::kNone;
    for (std::uint32_t step = 0; step < engine::kNumDrainSteps; ++step) {
      // Refused while too many steps are in flight: they have to come back first.
      static_cast<void>(run(engine::Schedule{engine.role}));
      while (!engine.in_flight.empty() && error == ErrorCode::kNone) {
        static_cast<void>(dispatch(engine::Execute{engine.role}));
        for (EngineRank& rank : engine.ranks) rank.device_copies->run_all();
        static_cast<void>(run(engine::Poll{engine.role}));
        engine::Update update;
        update.engine = engine.role;
        error = run(update);
      }
      if (error != ErrorCode::kNone || is_at_rest(engine)) break;
    }
    engine::on_device::Facet::end_drain(engine.ranks);
    // The command does not answer what its steps answered.
    empty(observed());
    return error;
  }

  static bool is_at_rest(const Engine& engine) {
    return !engine::on_device::Facet::is_copying(engine.ranks) &&
           engine.scheduler->block_counts().referenced == 1 &&
           !engine.scheduler->has_finished_requests();
  }

  // ---- Observations ----

  void observe_report(const Engine& engine, const AggregatedOutput& report) {
    observed().finished_recving.emplace() = report.finished_recving;
    observed().finished_sending.emplace() = report.finished_sending;
    observed().invalid_blocks.emplace() = report.invalid_block_ids;
    observed().completed_jobs.emplace() = report.completed_jobs;
    if (is_multi()) observe_stats_of_children(report, observed().of(engine.role));
  }

  static void observe_stats_of_children(const AggregatedOutput& report,
                                        engine::multi::Observed& shown_by_engine) {
    std::vector<engine::multi::ClassStats>& stats = shown_by_engine.stats_of_children.emplace();
    stats.clear();
    for (const TransferOperationsOfClass& of_class : report.stats_of_children) {
      for (const TransferOperations& operations : of_class.stats) {
        engine::multi::ClassStats& shown = stats.emplace_back();
        shown.connector_class = of_class.connector_class;
        shown.type = operations.transfer_type;
        for (const OffloadingOperationMetrics& op : operations.ops) {
          shown.sizes.push_back(op.op_size);
        }
      }
    }
  }

  void observe_all(Observe observe) {
    const bool has_state = observe == Observe::kState;
    for (Engine& engine : engines_) {
      engine::EngineObservation& shown = observed().of(engine.role);
      if (setup_.is_scripted || is_multi()) observe_connector_calls(engine, shown);
      engine.observer.observe(*engine.scheduler, observe, shown);
      if (!setup_.device) continue;
      device_of(engine).observe(engine.ranks, engine.in_flight.size(), has_state, shown);
    }
    if (!setup_.has_workers()) return;
    for (Engine& engine : engines_) {
      observe_connectors(engine, has_state, observed().of(engine.role));
    }
    if (setup_.files) {
      files_.observe_numbers(observed());
      if (has_state) files_.observe_storage(observed());
    }
    if (setup_.nixl) {
      nixl_.observe_numbers(observed());
      if (has_state) nixl_.observe_state(observed());
    }
  }

  void observe_connectors(Engine& engine, bool has_state, engine::EngineObservation& shown) {
    if (setup_.offloading) {
      engine::offloading::Facet& facet = around(engine.role).offloading;
      auto& connector = offloading_of(engine);
      facet.observe_numbers(connector, shown);
      if (has_state) facet.observe_state(connector, engine.ranks, shown);
    }
    if (setup_.simple) {
      const auto& connector = connector_of<SimpleCPUOffloadScheduler>(engine, Kind::kSimple);
      engine::simple::Facet::observe_numbers(connector, shown);
      if (has_state) {
        around(engine.role).simple.observe_state(connector, engine.ranks, engine.observer, shown);
      }
    }
    if (setup_.files) {
      const auto& connector = connector_of<SynchronousConnectorScheduler>(engine, Kind::kFiles);
      if (has_state) files_.observe_state(connector, engine.ranks, engine.observer, shown);
    }
    if (is_multi()) observe_multi(engine, has_state, shown);
  }

  void observe_multi(Engine& engine, bool has_state, engine::multi::Observed& shown) {
    MultiConnectorScheduler& multi = multi_of(engine);
    std::vector<ClientParams>& params = shown.client_params.emplace();
    params.clear();
    multi.take_all_client_params(params);
    if (params.empty()) shown.client_params.reset();
    std::vector<ChosenConnector>& chosen = shown.chosen.emplace();
    multi.chosen(chosen);
    shown.num_chosen.emplace() = static_cast<std::uint32_t>(chosen.size());
    std::vector<engine::multi::Extra>& extra = shown.extra_saves.emplace();
    extra.clear();
    multi.extra_async_saves(extra_saves_);
    append_extra(std::nullopt, extra);
    for (std::uint32_t rank = 0; rank < engine.ranks.size(); ++rank) {
      multi_of(engine.ranks[rank]).extra_async_saves(extra_saves_);
      append_extra(rank, extra);
    }
    shown.num_extra_saves.emplace() = static_cast<std::uint32_t>(extra.size());
    if (!has_state) {
      shown.extra_saves.reset();
      shown.chosen.reset();
      return;
    }
    std::ranges::sort(chosen, {}, &ChosenConnector::request);
  }

  void append_extra(std::optional<std::uint32_t> rank, std::vector<engine::multi::Extra>& all) {
    std::ranges::sort(extra_saves_, {}, &ExtraAsyncSaves::request);
    for (const ExtraAsyncSaves& each : extra_saves_) all.push_back({each, rank});
  }

  /// The first command that is not refused shows the scripted children's calls at the start: a
  /// refusal changes nothing.
  void observe_connector_calls(Engine& engine, engine::EngineObservation& shown) {
    if (is_multi() && observed().error != ErrorCode::kNone) return;
    std::vector<ConnectorCall>& calls = shown.connector_calls.emplace();
    calls.clear();
    if (is_multi()) {
      calls.swap(around(engine.role).scripted->calls);
    } else {
      scripted(engine, 0)->take_calls(calls);
    }
    if (calls.empty()) shown.connector_calls.reset();
  }

  std::string name_;
  EngineParts parts_;
  EngineSetup setup_;
  const World* world_ = nullptr;  ///< of the command that runs

  std::array<Around, kEngineRoles.size()> around_;  ///< by EngineRole
  engine::files::Facet files_;                      ///< both engines share its storage
  engine::on_device::RemoteReads remote_reads_;
  engine::nixl::Facet nixl_;
  std::deque<Engine> engines_;  ///< by EngineRole

  ::kvfence::ModelRunnerOutput runner_output_;
  EngineCoreOutputs outputs_;
  std::vector<KVConnectorWorkerOutput> worker_outputs_;
  std::set<std::pair<std::string, std::uint32_t>> received_;  ///< loads under way: request, rank
  std::vector<ExtraAsyncSaves> extra_saves_;
};

}  // namespace

std::unique_ptr<Implementation> make_engine_driver(std::string name, EngineParts parts) {
  return std::make_unique<EngineDriver>(std::move(name), std::move(parts));
}

}  // namespace kvfence
