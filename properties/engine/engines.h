#pragma once

/// The engines of a setup: one, or a pair. Builds, starts and ends them, with their connectors,
/// their ranks and what surrounds these. properties/engine/driver.cpp runs commands on them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/flat_lists.h"
#include "contract/core/implementation.h"
#include "contract/core/state_digest.h"
#include "contract/engine/engine_setup.h"
#include "contract/engine/engine_target.h"
#include "contract/scheduler/scheduler.h"
#include "properties/engine/engine_parts.h"
#include "properties/engine/files/facet.h"
#include "properties/engine/multi/facet.h"
#include "properties/engine/nixl/facet.h"
#include "properties/engine/observer.h"
#include "properties/engine/offloading/facet.h"
#include "properties/engine/on_device/facet.h"
#include "properties/engine/on_device/remote_reads.h"
#include "properties/engine/rank.h"
#include "properties/engine/simple/facet.h"

namespace kvfence {

/// What a rank's forward returns to its step.
struct Sampled {
  FlatLists<TokenId> tokens;  ///< by part
  bool is_there = false;
};

/// A step that was planned and has not come back.
struct PlannedStep {
  SchedulerOutput output;

  // With workers. Keeps the names of finished requests, since their indices may be reused.
  std::vector<std::string> finished;
  AggregatedOutput report;

  std::vector<engine::files::Computed> computed;  ///< in the order of output.scheduled; with files

  // On devices.
  std::vector<engine::ScheduledRequest> scheduled;
  std::vector<engine::ScheduledNew> new_reqs;
  std::vector<engine::ScheduledCached> cached_reqs;
  std::vector<KVConnectorWorkerOutput> worker_outputs;  ///< by rank, of those that were polled
  bool is_polled = false;                               ///< by all ranks
  std::vector<std::shared_ptr<Sampled>> sampled;        ///< by rank; empty: a step without tokens

  /// For the next step, which reuses the storage.
  void clear() {
    finished.clear();
    computed.clear();
    worker_outputs.clear();
    is_polled = false;
    sampled.clear();
  }
  /// The report is valid only after the poll.
  void add_to(StateHash& hash) const {
    hash.add_all(output, finished, computed, worker_outputs, is_polled, sampled);
    if (is_polled) hash.add(report);
  }
};

namespace engine {

/// An engine. Its facets find their connectors' halves in it.
struct Engine {
  EngineRole role = EngineRole::kProducer;

  // These stay when the engine ends and starts again.
  on_device::Facet device;  ///< outlives the ranks: their destructors may still run forwards
  offloading::Facet offloading;
  simple::Facet simple;
  multi::Facet multi;

  std::unique_ptr<Scheduler> scheduler;
  SchedulerObserver observer;
  std::vector<EngineRank> ranks;
  std::unique_ptr<KVOutputAggregator> aggregator;
  std::list<PlannedStep> in_flight;  ///< oldest first
  std::list<PlannedStep> spare;      ///< steps that came back, for reuse

  KVConnector& connector() const { return *scheduler->connector(); }
  bool has_scripted_copies(std::uint32_t rank) const {
    return rank < ranks.size() && !ranks[rank].device;
  }

  void add_to(StateHash& hash) const {
    hash.add_kept(device, offloading, multi, observer);
    hash.add_all(scheduler, ranks, in_flight);
    if (!ranks.empty()) hash.add(aggregator);
  }
};

/// The name under which a MultiConnector has it as a child.
std::string name_of(ConnectorKind kind);

class Engines {
 public:
  explicit Engines(EngineParts parts) : parts_(std::move(parts)) {}
  ~Engines() { end(); }

  /// Ends those before.
  std::optional<ImplementationFailure> start(const Config& config, const EngineSetup& setup);
  /// Ends the engines, and starts them over the same storage.
  void restart();

  const EngineSetup& setup() const { return setup_; }
  bool is_multi() const { return !setup_.children.empty(); }
  std::deque<Engine>& all() { return engines_; }
  bool has(EngineRole role) const { return static_cast<std::size_t>(role) < engines_.size(); }
  Engine& of(EngineRole role) { return engines_[static_cast<std::size_t>(role)]; }
  files::Facet& files() { return files_; }
  nixl::Facet& nixl() { return nixl_; }

  void add_to(StateHash& hash) const {
    hash.add_kept(files_, nixl_, remote_reads_);
    hash.add(engines_);
  }

 private:
  using Failure = std::optional<ImplementationFailure>;

  ConnectorKind kind() const;
  ConnectorPlace place_of(ConnectorKind kind) const;
  Failure refuse_other_kinds() const;
  ImplementationFailure without_hma() const;

  Failure start_all();
  Failure start(Engine& engine);
  void end();

  std::unique_ptr<KVConnector> make_connector(const Engine& engine);
  std::unique_ptr<KVConnector> make_connector(ConnectorKind kind, EngineRole role);
  bool add_rank(Engine& engine, std::uint32_t number);
  void register_kv_caches(Engine& engine) const;
  std::unique_ptr<KVConnectorWorker> make_worker(const Engine& engine, std::uint32_t number);
  std::unique_ptr<KVConnectorWorker> make_worker(ConnectorKind kind, const Engine& engine,
                                                 std::uint32_t number);

  EngineParts parts_;
  EngineSetup setup_;
  files::Facet files_;  ///< both engines share its storage
  on_device::RemoteReads remote_reads_;
  nixl::Facet nixl_;
  std::deque<Engine> engines_;  ///< by EngineRole
};

}  // namespace engine
}  // namespace kvfence
