#include "properties/engine/engines.h"

#include <algorithm>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/core/check.h"
#include "contract/core/joined.h"
#include "contract/core/lists.h"
#include "contract/scripted/scripted_kv_cache.h"

namespace kvfence::engine {
namespace {

using Kind = ConnectorKind;

ImplementationFailure unsupported(const std::string& found, const std::string& expected) {
  return {"found " + found + ", expected " + expected, ImplementationFailure::Kind::kUnsupported};
}

/// Null if its class shows less than is compared.
template <class Shown>
std::unique_ptr<KVConnector> that_shows(std::unique_ptr<KVConnector> made) {
  return dynamic_cast<const Shown*>(made.get()) ? std::move(made) : nullptr;
}

}  // namespace

std::string name_of(ConnectorKind kind) {
  constexpr std::array<const char*, kNumConnectorKinds> kNames = {"offloading", "simple", "files",
                                                                  "nixl", "scripted"};
  return kNames[static_cast<std::size_t>(kind)];
}

// ---- Which connectors there are ----

/// Of the only connector. Requires: workers, and no MultiConnector.
ConnectorKind Engines::kind() const {
  if (setup_.offloading) return Kind::kOffloading;
  if (setup_.simple) return Kind::kSimple;
  return setup_.files ? Kind::kFiles : Kind::kNixl;
}

ConnectorPlace Engines::place_of(ConnectorKind kind) const {
  if (!is_multi()) return {};
  const std::vector<ChildSetup>& all = setup_.children;
  const auto place = std::ranges::find(all, kind, &ChildSetup::kind) - all.begin();
  return {static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(all.size())};
}

/// Refuses an engine that would have no connector of the library under test. The other children of
/// a MultiConnector are kvfence's.
std::optional<ImplementationFailure> Engines::refuse_other_kinds() const {
  const std::vector<std::string>& judged = parts_.judged_kinds;
  if (judged.empty() || is_multi()) return std::nullopt;
  const std::string own = setup_.has_workers() ? name_of(kind()) : "";
  if (contains(judged, own)) return std::nullopt;
  return unsupported("a connector of kind " + joined(judged),
                     (own.empty() ? "none" : "one of kind " + own) + " for assembly " +
                         std::string(to_text(setup_.assembly)));
}

/// A library need not support several groups of layers. kvfence's own sides must: refusing would
/// draw another configuration and hide the difference.
ImplementationFailure Engines::without_hma() const {
  ImplementationFailure failure = unsupported("a connector with supports_hma() false",
                                              "true, since there are several groups of layers");
  if (parts_.judged_kinds.empty()) failure.kind = ImplementationFailure::Kind::kFailed;
  return failure;
}

// ---- Start and end ----

std::optional<ImplementationFailure> Engines::start(const Config& config,
                                                    const EngineSetup& setup) {
  // Forwards of a device run with the old configuration, at the latest in its destructor. Tiers are
  // destroyed before their slots. A connector's copies use the storage that they were made with.
  end();
  engines_.clear();
  setup_ = setup;
  if (auto refused = refuse_other_kinds()) return refused;
  engines_.resize(setup_.schedulers.size());
  for (std::size_t number = 0; number < engines_.size(); ++number) {
    Engine& engine = engines_[number];
    engine.role = static_cast<EngineRole>(number);
    if (setup_.simple) engine.simple.start(place_of(Kind::kSimple));
    std::optional<ConnectorSetup>& offloading = setup_.of(engine.role).offloading;
    if (!offloading) continue;
    engine.offloading.start(config, *offloading, place_of(Kind::kOffloading),
                            parts_.make_tier_files);
  }
  if (setup_.files &&
      !files_.start(*setup_.files, place_of(Kind::kFiles), parts_.make_storage(*setup_.files))) {
    return ImplementationFailure{"there is no storage"};
  }
  if (setup_.nixl) {
    nixl_.start(config, place_of(Kind::kNixl), setup_.device ? &remote_reads_ : nullptr);
  }
  return start_all();
}

void Engines::restart() {
  end();
  if (setup_.nixl) nixl_.restart();
  KVFENCE_CHECK(!start_all(), "an engine that started once starts again");
}

std::optional<ImplementationFailure> Engines::start_all() {
  for (Engine& engine : engines_) {
    engine.device.start(setup_, engine.role);
    engine.multi.restart();
    if (auto failure = start(engine)) return failure;
  }
  if (setup_.files) files_.count_engine_start();
  if (setup_.device && setup_.nixl) {
    remote_reads_.start(of(EngineRole::kProducer).ranks, of(EngineRole::kConsumer).ranks,
                        setup_.device->block_size);
  }
  return std::nullopt;
}

std::optional<ImplementationFailure> Engines::start(Engine& engine) {
  const auto number = static_cast<std::size_t>(engine.role);
  for (std::uint32_t rank = 0; setup_.has_ranks() && rank < setup_.num_ranks[number]; ++rank) {
    if (!add_rank(engine, rank)) return ImplementationFailure{"there is no worker's half"};
  }
  register_kv_caches(engine);
  KVConnectorHandle connector(make_connector(engine));
  if (setup_.has_connector() && !connector) {
    return ImplementationFailure{"the scheduler's half is no connector of that kind"};
  }
  const SchedulerConfig& scheduler = setup_.schedulers[number];
  const bool has_groups = scheduler.kv_cache.groups.size() > 1;
  if (connector && has_groups && !connector->supports_hma()) return without_hma();
  engine.scheduler = parts_.make_scheduler(scheduler, std::move(connector));
  if (setup_.has_workers()) {
    engine.aggregator = parts_.make_aggregator(setup_.num_ranks[number]);
    HandshakesByRank handshakes;
    for (EngineRank& rank : engine.ranks) {
      handshakes.push_back(rank.worker->get_handshake_metadata());
    }
    engine.connector().set_xfer_handshake_metadata(handshakes);
  }
  if (const auto& offloading = setup_.of(engine.role).offloading) {
    engine.offloading.watch(engine.ranks, parts_.make_stat_loggers(offloading->metrics));
  }
  return std::nullopt;
}

/// Ignores failures of shutdown: the halves are destroyed next.
void Engines::end() {
  for (Engine& engine : engines_) {
    for (const EngineRank& rank : engine.ranks) {
      if (rank.worker) static_cast<void>(rank.worker->shutdown());
    }
    KVConnector* const connector = engine.scheduler ? engine.scheduler->connector() : nullptr;
    if (connector) static_cast<void>(connector->shutdown());
    engine.ranks.clear();
    engine.in_flight.clear();
    engine.spare.clear();
    engine.aggregator.reset();
    engine.observer = {};
    engine.scheduler.reset();
  }
}

// ---- The schedulers' halves: of one connector, or of the children of a MultiConnector ----

/// Null where there is none.
std::unique_ptr<KVConnector> Engines::make_connector(const Engine& engine) {
  if (setup_.is_scripted) return std::make_unique<ScriptedConnector>();
  if (!setup_.has_connector()) return nullptr;
  if (!is_multi()) return make_connector(kind(), engine.role);
  std::vector<KVConnectorHandle> children;
  for (const ChildSetup& child : setup_.children) {
    const auto place = static_cast<std::uint32_t>(children.size());
    children.emplace_back(
        child.kind == Kind::kScripted
            ? std::make_unique<ScriptedConnector>(place, child.scripted, engine.multi.scripted())
            : make_connector(child.kind, engine.role));
    if (!children.back()) return nullptr;
  }
  return parts_.make_multi(setup_.scheduler().kv_cache.pool.rules, std::move(children));
}

std::unique_ptr<KVConnector> Engines::make_connector(ConnectorKind kind, EngineRole role) {
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

// ---- Ranks, and the workers' halves ----

/// False: there is no half.
bool Engines::add_rank(Engine& engine, std::uint32_t number) {
  EngineRank& rank = engine.ranks.emplace_back();
  if (setup_.files) {
    const SynchronousConnectorSpec& spec = *setup_.of(engine.role).files;
    rank.kv_cache =
        std::make_unique<ScriptedKVCache>(number * spec.num_layers, spec.num_layers,
                                          spec.kv_cache.pool.num_gpu_blocks, spec.block_size());
  }
  if (setup_.has_workers()) {
    rank.worker = is_multi() ? make_worker(engine, number) : make_worker(kind(), engine, number);
    if (!rank.worker) return false;
  }
  if (setup_.device) {
    rank.device = parts_.make_device(setup_, engine.role);
    rank.device_copies.emplace(number, setup_, *rank.device);
  }
  return true;
}

void Engines::register_kv_caches(Engine& engine) const {
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
}

/// Of a MultiConnector.
std::unique_ptr<KVConnectorWorker> Engines::make_worker(const Engine& engine,
                                                        std::uint32_t number) {
  std::vector<MultiConnectorChildWorker> children;
  for (const ChildSetup& child : setup_.children) {
    const auto place = static_cast<std::uint32_t>(children.size());
    const bool is_scripted = child.kind == Kind::kScripted;
    children.push_back(
        {is_scripted ? child.scripted.connector_class : name_of(child.kind),
         KVConnectorWorkerHandle(is_scripted
                                     ? std::make_unique<ScriptedConnectorWorker>(
                                           place, number, child.scripted, engine.multi.scripted())
                                     : make_worker(child.kind, engine, number))});
    if (!children.back().worker) return nullptr;
  }
  return parts_.make_multi_worker(std::move(children));
}

/// Requires of files: the rank has its KV cache.
std::unique_ptr<KVConnectorWorker> Engines::make_worker(ConnectorKind kind, const Engine& engine,
                                                        std::uint32_t number) {
  const ConnectorParts& parts = setup_.of(engine.role);
  switch (kind) {
    case Kind::kOffloading:
      return parts_.make_offloading_worker(*parts.offloading, number);
    case Kind::kSimple:
      return parts_.make_simple_worker(*parts.simple);
    case Kind::kFiles:
      return parts_.make_files_worker(*parts.files, files_.storage(),
                                      *engine.ranks[number].kv_cache, files_.report());
    case Kind::kNixl:
    case Kind::kScripted:
      break;
  }
  const auto& make = engine.role == EngineRole::kProducer ? parts_.make_producer_worker
                                                          : parts_.make_consumer_worker;
  return make(*setup_.nixl, number, nixl_.transport());
}

}  // namespace kvfence::engine
