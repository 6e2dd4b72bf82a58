#include "scenarios/implementations.h"

#include <string>
#include <utility>

#include "contract/check.h"
#include "contract/kv_connector_registry.h"
#include "optimized/block_pool.h"
#include "optimized/cache_policy.h"
#include "optimized/disaggregated_connector.h"
#include "optimized/kv_cache_manager.h"
#include "optimized/kv_output_aggregator.h"
#include "optimized/multi_connector.h"
#include "optimized/multi_connector_worker.h"
#include "optimized/offloading_connector.h"
#include "optimized/offloading_manager.h"
#include "optimized/planted_bugs.h"
#include "optimized/planted_connector_bugs.h"
#include "optimized/planted_disaggregated_bugs.h"
#include "optimized/planted_multi_connector_bugs.h"
#include "optimized/planted_simple_offload_bugs.h"
#include "optimized/scheduler.h"
#include "optimized/simple_cpu_offload_scheduler.h"
#include "optimized/simple_cpu_offload_worker.h"
#include "optimized/tiering_manager.h"
#include "properties/block_pool_driver.h"
#include "properties/connector_driver.h"
#include "properties/disaggregated_driver.h"
#include "properties/eviction_driver.h"
#include "properties/kv_cache_driver.h"
#include "properties/multi_connector_driver.h"
#include "properties/offload_driver.h"
#include "properties/scheduler_driver.h"
#include "properties/simple_offload_driver.h"
#include "properties/tiering_driver.h"
#include "reference/block_pool.h"
#include "reference/cache_policy.h"
#include "reference/disaggregated_connector.h"
#include "reference/disaggregated_worker.h"
#include "reference/kv_cache_manager.h"
#include "reference/kv_output_aggregator.h"
#include "reference/multi_connector.h"
#include "reference/multi_connector_worker.h"
#include "reference/offloading_manager.h"
#include "reference/scheduler.h"
#include "reference/simple_cpu_offload.h"
#include "reference/simple_cpu_offload_worker.h"
#include "reference/tiering_manager.h"
#include "scenarios/built_in_connectors.h"

namespace kvfence {
namespace {

template <class Pool, class MakePool>
std::unique_ptr<Implementation<BlockPoolTarget>> make_driver(std::string name, MakePool make_pool) {
  return std::make_unique<BlockPoolDriver<Pool, MakePool>>(std::move(name), std::move(make_pool));
}

template <class Manager, class MakeManager>
std::unique_ptr<Implementation<KVCacheTarget>> make_kv_cache_driver(std::string name,
                                                                    MakeManager make_manager) {
  return std::make_unique<KVCacheDriver<Manager, MakeManager>>(std::move(name),
                                                               std::move(make_manager));
}

template <class SchedulerType, class MakeScheduler>
std::unique_ptr<Implementation<SchedulerTarget>> make_scheduler_driver(
    std::string name, MakeScheduler make_scheduler) {
  return std::make_unique<SchedulerDriver<SchedulerType, MakeScheduler>>(std::move(name),
                                                                         std::move(make_scheduler));
}

template <class Policy, class MakePolicy>
std::unique_ptr<Implementation<EvictionTarget>> make_eviction_driver(std::string name,
                                                                     MakePolicy make_policy) {
  return std::make_unique<EvictionDriver<Policy, MakePolicy>>(std::move(name),
                                                              std::move(make_policy));
}

template <class Manager, class MakeManager>
std::unique_ptr<Implementation<OffloadTarget>> make_offload_driver(std::string name,
                                                                   MakeManager make_manager) {
  return std::make_unique<OffloadDriver<Manager, MakeManager>>(std::move(name),
                                                               std::move(make_manager));
}

template <class Manager, class MakeManager>
std::unique_ptr<Implementation<TieringTarget>> make_tiering_driver(std::string name,
                                                                   MakeManager make_manager) {
  return std::make_unique<TieringDriver<Manager, MakeManager>>(std::move(name),
                                                               std::move(make_manager));
}

/// A side whose connectors stand in a registry.
template <class SchedulerType, class AggregatorType>
class RegisteredConnectorSide {
 public:
  using Scheduler = SchedulerType;
  using Aggregator = AggregatorType;

  explicit RegisteredConnectorSide(KVConnectorRegistry connectors)
      : connectors_(std::move(connectors)) {}

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  /// Null if it is another kind of connector, which shows less than the target compares.
  std::unique_ptr<OffloadingConnectorScheduler> make_connector(const ConnectorSetup& setup) {
    auto connector = class_of(setup).make_scheduler(setup);
    auto* offloading = dynamic_cast<OffloadingConnectorScheduler*>(connector.get());
    if (offloading) static_cast<void>(connector.release());
    return std::unique_ptr<OffloadingConnectorScheduler>(offloading);
  }
  std::unique_ptr<KVConnectorWorker> make_worker(const ConnectorSetup& setup, std::uint32_t rank) {
    return class_of(setup).make_worker(setup, rank);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }

 private:
  KVConnectorClass class_of(const ConnectorSetup& setup) {
    Parsed<KVConnectorClass> connector = connectors_.get(setup.kv_connector);
    KVFENCE_CHECK(connector, "every side has the connectors that a configuration can name");
    return std::move(*connector);
  }

  KVConnectorRegistry connectors_;
};

using ReferenceConnectorSide =
    RegisteredConnectorSide<reference::Scheduler, reference::KVOutputAggregator>;
using OptimizedConnectorSide =
    RegisteredConnectorSide<optimized::Scheduler, optimized::KVOutputAggregator>;

/// The bug is in one of the connector's halves or in the aggregator; the scheduler has none.
struct PlantedConnectorSide {
  using Scheduler = optimized::Scheduler;
  using Aggregator = optimized::PlantedKVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_connector(const ConnectorSetup& setup) const {
    return optimized::make_planted_offloading_connector_scheduler(setup.spec, bug);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return optimized::make_planted_offloading_connector_worker(setup.spec, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug);
  }

  optimized::PlantedConnectorBug bug = optimized::PlantedConnectorBug::kNone;
};

struct ReferenceSimpleOffloadSide {
  using Scheduler = reference::Scheduler;
  using Aggregator = reference::KVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return reference::make_simple_cpu_offload_scheduler(setup.spec);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return reference::make_simple_cpu_offload_worker(setup.spec);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }
};

struct OptimizedSimpleOffloadSide {
  using Scheduler = optimized::Scheduler;
  using Aggregator = optimized::KVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return optimized::make_simple_cpu_offload_scheduler(setup.spec);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return optimized::make_simple_cpu_offload_worker(setup.spec);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }
};

/// The bug is in one of the connector's halves. The scheduler has none, but bears what a broken
/// connector does to its pool.
struct PlantedSimpleOffloadSide {
  using Scheduler = optimized::PlantedScheduler;
  using Aggregator = optimized::KVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector), optimized::PlantedInstrumentation());
  }
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return optimized::make_planted_simple_cpu_offload_scheduler(setup.spec, bug);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return optimized::make_planted_simple_cpu_offload_worker(setup.spec, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }

  optimized::PlantedSimpleOffloadBug bug = optimized::PlantedSimpleOffloadBug::kNone;
};

struct ReferenceMultiConnectorSide {
  using Scheduler = reference::MultiConnector<ScriptedChild>;
  using Worker = reference::MultiConnectorWorker<ScriptedWorkerChild>;
  using Aggregator = reference::KVOutputAggregator;

  Scheduler make_scheduler(const Rules& rules, std::vector<ScriptedChild> children) const {
    return Scheduler(rules, std::move(children));
  }
  Worker make_worker(std::vector<ScriptedWorkerChild> children) const {
    return Worker(std::move(children));
  }
  Aggregator make_aggregator(std::uint32_t num_ranks) const { return Aggregator(num_ranks); }
};

/// Of optimized halves; the aggregator has no bug.
template <class Instrumentation>
struct OptimizedMultiConnectorSide {
  using Scheduler = optimized::BasicMultiConnector<ScriptedChild, Instrumentation>;
  using Worker = optimized::BasicMultiConnectorWorker<ScriptedWorkerChild, Instrumentation>;
  using Aggregator = optimized::KVOutputAggregator;

  Scheduler make_scheduler(const Rules& rules, std::vector<ScriptedChild> children) const {
    return Scheduler(rules, std::move(children), instrumentation);
  }
  Worker make_worker(std::vector<ScriptedWorkerChild> children) const {
    return Worker(std::move(children), instrumentation);
  }
  Aggregator make_aggregator(std::uint32_t num_ranks) const { return Aggregator(num_ranks); }

  [[no_unique_address]] Instrumentation instrumentation;
};

struct ReferencePairSide {
  using Scheduler = reference::Scheduler;
  using Aggregator = reference::KVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_producer(const DisaggregatedSpec& spec) const {
    return std::make_unique<reference::DisaggregatedProducer>(spec);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return std::make_unique<reference::DisaggregatedConsumer>(spec);
  }
  std::unique_ptr<DisaggregatedWorker> make_producer_worker(const DisaggregatedSpec& spec,
                                                            std::uint32_t rank) const {
    return std::make_unique<reference::DisaggregatedProducerWorker>(spec, rank);
  }
  std::unique_ptr<DisaggregatedWorker> make_consumer_worker(const DisaggregatedSpec& spec,
                                                            std::uint32_t rank) const {
    return std::make_unique<reference::DisaggregatedConsumerWorker>(spec, rank);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }
};

struct OptimizedPairSide {
  using Scheduler = optimized::Scheduler;
  using Aggregator = optimized::KVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_producer(const DisaggregatedSpec& spec) const {
    return optimized::make_disaggregated_producer(spec);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return optimized::make_disaggregated_consumer(spec);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_disaggregated_producer_worker(spec, rank);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_disaggregated_consumer_worker(spec, rank);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const { return Aggregator(num_workers); }
};

/// The bug is in one of the pair's halves or in an aggregator; the schedulers have none.
struct PlantedPairSide {
  using Scheduler = optimized::Scheduler;
  using Aggregator = optimized::PlantedKVOutputAggregator;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  auto make_producer(const DisaggregatedSpec& spec) const {
    return optimized::make_planted_disaggregated_producer(spec, bug);
  }
  auto make_consumer(const DisaggregatedSpec& spec) const {
    return optimized::make_planted_disaggregated_consumer(spec, bug);
  }
  auto make_producer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_planted_disaggregated_producer_worker(spec, rank, bug);
  }
  auto make_consumer_worker(const DisaggregatedSpec& spec, std::uint32_t rank) const {
    return optimized::make_planted_disaggregated_consumer_worker(spec, rank, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug);
  }

  optimized::PlantedDisaggregatedBug bug = optimized::PlantedDisaggregatedBug::kNone;
};

}  // namespace

std::unique_ptr<Implementation<BlockPoolTarget>>
Implementations<BlockPoolTarget>::make_reference() {
  return make_driver<reference::BlockPool>(
      "reference", [](const BlockPoolConfig& config) { return reference::BlockPool(config); });
}

std::unique_ptr<Implementation<BlockPoolTarget>>
Implementations<BlockPoolTarget>::make_optimized() {
  return make_driver<optimized::BlockPool>(
      "optimized", [](const BlockPoolConfig& config) { return optimized::BlockPool(config); });
}

std::unique_ptr<Implementation<BlockPoolTarget>> Implementations<BlockPoolTarget>::make_planted(
    std::string_view bug_name) {
  for (const optimized::PlantedBugInfo& info : optimized::kPlantedBugs) {
    if (info.name != bug_name) continue;
    return make_driver<optimized::PlantedBlockPool>(
        "optimized with " + std::string(bug_name), [bug = info.bug](const BlockPoolConfig& config) {
          return optimized::PlantedBlockPool(config, bug);
        });
  }
  return nullptr;
}

std::vector<PlantedBugInfo> Implementations<BlockPoolTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedBugInfo& info : optimized::kPlantedBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_reference() {
  return make_kv_cache_driver<reference::KVCacheManager>(
      "reference",
      [](const KVCacheManagerConfig& config) { return reference::KVCacheManager(config); });
}

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_optimized() {
  return make_kv_cache_driver<optimized::KVCacheManager>(
      "optimized",
      [](const KVCacheManagerConfig& config) { return optimized::KVCacheManager(config); });
}

std::unique_ptr<Implementation<KVCacheTarget>> Implementations<KVCacheTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_kv_cache_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_kv_cache_driver<optimized::PlantedKVCacheManager>(
      "optimized with " + std::string(bug_name), [bug](const KVCacheManagerConfig& config) {
        return optimized::PlantedKVCacheManager(config, *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<KVCacheTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedKVCacheBugInfo& info : optimized::kPlantedKVCacheBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<SchedulerTarget>>
Implementations<SchedulerTarget>::make_reference() {
  return make_scheduler_driver<reference::Scheduler>(
      "reference", [](const SchedulerConfig& config, KVConnectorHandle connector) {
        return reference::Scheduler(config, std::move(connector));
      });
}

std::unique_ptr<Implementation<SchedulerTarget>>
Implementations<SchedulerTarget>::make_optimized() {
  return make_scheduler_driver<optimized::Scheduler>(
      "optimized", [](const SchedulerConfig& config, KVConnectorHandle connector) {
        return optimized::Scheduler(config, std::move(connector));
      });
}

std::unique_ptr<Implementation<SchedulerTarget>> Implementations<SchedulerTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_scheduler_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_scheduler_driver<optimized::PlantedScheduler>(
      "optimized with " + std::string(bug_name),
      [bug](const SchedulerConfig& config, KVConnectorHandle connector) {
        return optimized::PlantedScheduler(config, std::move(connector), *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<SchedulerTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedSchedulerBugInfo& info : optimized::kPlantedSchedulerBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<EvictionTarget>> Implementations<EvictionTarget>::make_reference() {
  return make_eviction_driver<reference::CachePolicy>(
      "reference", [](const CachePolicyConfig& config) { return reference::CachePolicy(config); });
}

std::unique_ptr<Implementation<EvictionTarget>> Implementations<EvictionTarget>::make_optimized() {
  return make_eviction_driver<optimized::CachePolicy>(
      "optimized", [](const CachePolicyConfig& config) { return optimized::CachePolicy(config); });
}

std::unique_ptr<Implementation<EvictionTarget>> Implementations<EvictionTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_cache_policy_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_eviction_driver<optimized::PlantedCachePolicy>(
      "optimized with " + std::string(bug_name), [bug](const CachePolicyConfig& config) {
        return optimized::PlantedCachePolicy(config, *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<EvictionTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedCachePolicyBugInfo& info : optimized::kPlantedCachePolicyBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<OffloadTarget>> Implementations<OffloadTarget>::make_reference() {
  return make_offload_driver<reference::OffloadingManager>(
      "reference",
      [](const OffloadingManagerConfig& config) { return reference::OffloadingManager(config); });
}

std::unique_ptr<Implementation<OffloadTarget>> Implementations<OffloadTarget>::make_optimized() {
  return make_offload_driver<optimized::OffloadingManager>(
      "optimized",
      [](const OffloadingManagerConfig& config) { return optimized::OffloadingManager(config); });
}

std::unique_ptr<Implementation<OffloadTarget>> Implementations<OffloadTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_offloading_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_offload_driver<optimized::PlantedOffloadingManager>(
      "optimized with " + std::string(bug_name), [bug](const OffloadingManagerConfig& config) {
        return optimized::PlantedOffloadingManager(config, *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<OffloadTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedOffloadingBugInfo& info : optimized::kPlantedOffloadingBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<TieringTarget>> Implementations<TieringTarget>::make_reference() {
  return make_tiering_driver<reference::TieringOffloadingManager>(
      "reference",
      [](const OffloadingManagerConfig& primary, std::vector<SecondaryTierHandle> tiers) {
        return reference::TieringOffloadingManager(primary, std::move(tiers));
      });
}

std::unique_ptr<Implementation<TieringTarget>> Implementations<TieringTarget>::make_optimized() {
  return make_tiering_driver<optimized::TieringOffloadingManager>(
      "optimized",
      [](const OffloadingManagerConfig& primary, std::vector<SecondaryTierHandle> tiers) {
        return optimized::TieringOffloadingManager(primary, std::move(tiers));
      });
}

std::unique_ptr<Implementation<TieringTarget>> Implementations<TieringTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_tiering_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return make_tiering_driver<optimized::PlantedTieringOffloadingManager>(
      "optimized with " + std::string(bug_name),
      [bug](const OffloadingManagerConfig& primary, std::vector<SecondaryTierHandle> tiers) {
        return optimized::PlantedTieringOffloadingManager(primary, std::move(tiers), *bug);
      });
}

std::vector<PlantedBugInfo> Implementations<TieringTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedTieringBugInfo& info : optimized::kPlantedTieringBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<ConnectorTarget>>
Implementations<ConnectorTarget>::make_reference() {
  return std::make_unique<ConnectorDriver<ReferenceConnectorSide>>(
      "reference", ReferenceConnectorSide(built_in_connectors_reference()));
}

std::unique_ptr<Implementation<ConnectorTarget>>
Implementations<ConnectorTarget>::make_optimized() {
  return std::make_unique<ConnectorDriver<OptimizedConnectorSide>>(
      "optimized", OptimizedConnectorSide(built_in_connectors_optimized()));
}

Parsed<std::unique_ptr<Implementation<ConnectorTarget>>>
Implementations<ConnectorTarget>::make_from_library(const std::string& path) {
  KVConnectorRegistry connectors;
  for (const std::string& name : built_in_connectors_optimized().names()) {
    (void)connectors.register_library(name, path);
    // A library that cannot be opened is an error here, not in the middle of a run.
    if (const auto found = connectors.get(name); !found) return found.error();
  }
  std::unique_ptr<Implementation<ConnectorTarget>> driver =
      std::make_unique<ConnectorDriver<OptimizedConnectorSide>>(
          "connector of " + path, OptimizedConnectorSide(std::move(connectors)));
  return driver;
}

std::unique_ptr<Implementation<ConnectorTarget>> Implementations<ConnectorTarget>::make_planted(
    std::string_view bug_name) {
  const auto bug = optimized::planted_connector_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return std::make_unique<ConnectorDriver<PlantedConnectorSide>>(
      "optimized with " + std::string(bug_name), PlantedConnectorSide{*bug});
}

std::vector<PlantedBugInfo> Implementations<ConnectorTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedConnectorBugInfo& info : optimized::kPlantedConnectorBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<SimpleOffloadTarget>>
Implementations<SimpleOffloadTarget>::make_reference() {
  return std::make_unique<SimpleOffloadDriver<ReferenceSimpleOffloadSide>>(
      "reference", ReferenceSimpleOffloadSide());
}

std::unique_ptr<Implementation<SimpleOffloadTarget>>
Implementations<SimpleOffloadTarget>::make_optimized() {
  return std::make_unique<SimpleOffloadDriver<OptimizedSimpleOffloadSide>>(
      "optimized", OptimizedSimpleOffloadSide());
}

std::unique_ptr<Implementation<SimpleOffloadTarget>>
Implementations<SimpleOffloadTarget>::make_planted(std::string_view bug_name) {
  const auto bug = optimized::planted_simple_offload_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return std::make_unique<SimpleOffloadDriver<PlantedSimpleOffloadSide>>(
      "optimized with " + std::string(bug_name), PlantedSimpleOffloadSide{*bug});
}

std::vector<PlantedBugInfo> Implementations<SimpleOffloadTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedSimpleOffloadBugInfo& info : optimized::kPlantedSimpleOffloadBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<MultiConnectorTarget>>
Implementations<MultiConnectorTarget>::make_reference() {
  return std::make_unique<MultiConnectorDriver<ReferenceMultiConnectorSide>>(
      "reference", ReferenceMultiConnectorSide());
}

std::unique_ptr<Implementation<MultiConnectorTarget>>
Implementations<MultiConnectorTarget>::make_optimized() {
  using Side = OptimizedMultiConnectorSide<optimized::NoInstrumentation>;
  return std::make_unique<MultiConnectorDriver<Side>>("optimized", Side());
}

std::unique_ptr<Implementation<MultiConnectorTarget>>
Implementations<MultiConnectorTarget>::make_planted(std::string_view bug_name) {
  using Side = OptimizedMultiConnectorSide<optimized::PlantedInstrumentation>;
  const auto bug = optimized::planted_multi_connector_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return std::make_unique<MultiConnectorDriver<Side>>("optimized with " + std::string(bug_name),
                                                      Side{*bug});
}

std::vector<PlantedBugInfo> Implementations<MultiConnectorTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedMultiConnectorBugInfo& info :
       optimized::kPlantedMultiConnectorBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

std::unique_ptr<Implementation<DisaggregatedTarget>>
Implementations<DisaggregatedTarget>::make_reference() {
  return std::make_unique<DisaggregatedDriver<ReferencePairSide>>("reference", ReferencePairSide());
}

std::unique_ptr<Implementation<DisaggregatedTarget>>
Implementations<DisaggregatedTarget>::make_optimized() {
  return std::make_unique<DisaggregatedDriver<OptimizedPairSide>>("optimized", OptimizedPairSide());
}

std::unique_ptr<Implementation<DisaggregatedTarget>>
Implementations<DisaggregatedTarget>::make_planted(std::string_view bug_name) {
  const auto bug = optimized::planted_disaggregated_bug_from_name(bug_name);
  if (!bug) return nullptr;
  return std::make_unique<DisaggregatedDriver<PlantedPairSide>>(
      "optimized with " + std::string(bug_name), PlantedPairSide{*bug});
}

std::vector<PlantedBugInfo> Implementations<DisaggregatedTarget>::planted_bugs() {
  std::vector<PlantedBugInfo> infos;
  for (const optimized::PlantedDisaggregatedBugInfo& info : optimized::kPlantedDisaggregatedBugs) {
    infos.push_back({info.name, info.doc, info.thread});
  }
  return infos;
}

}  // namespace kvfence
