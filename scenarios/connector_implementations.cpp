#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "contract/check.h"
#include "contract/connector_target.h"
#include "contract/kv_connector_registry.h"
#include "contract/offloading_connector.h"
#include "optimized/kv_output_aggregator.h"
#include "optimized/offloading_connector.h"
#include "optimized/planted_connector_bugs.h"
#include "optimized/scheduler.h"
#include "properties/connector_driver.h"
#include "reference/kv_output_aggregator.h"
#include "reference/scheduler.h"
#include "scenarios/built_in_connectors.h"
#include "scenarios/define_implementations.h"
#include "scenarios/engine_side.h"

namespace kvfence {
namespace {

/// A side whose connectors stand in a registry.
template <class Scheduler, class Aggregator>
class RegisteredSide : public EngineSide<Scheduler, Aggregator> {
 public:
  explicit RegisteredSide(KVConnectorRegistry connectors) : connectors_(std::move(connectors)) {}

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

 private:
  KVConnectorClass class_of(const ConnectorSetup& setup) {
    Parsed<KVConnectorClass> connector = connectors_.get(setup.kv_connector);
    KVFENCE_CHECK(connector, "every side has the connectors that a configuration can name");
    return std::move(*connector);
  }

  KVConnectorRegistry connectors_;
};

using ReferenceSide = RegisteredSide<reference::Scheduler, reference::KVOutputAggregator>;
using OptimizedSide = RegisteredSide<optimized::Scheduler, optimized::KVOutputAggregator>;

/// The bug is in one of the connector's halves or in the aggregator; the scheduler has none.
struct PlantedSide : EngineSide<optimized::Scheduler, optimized::PlantedKVOutputAggregator> {
  auto make_connector(const ConnectorSetup& setup) const {
    return optimized::make_planted_offloading_connector_scheduler(setup.spec, bug, setup.tiers);
  }
  auto make_worker(const ConnectorSetup& setup, std::uint32_t) const {
    return optimized::make_planted_offloading_connector_worker(setup.spec, bug);
  }
  Aggregator make_aggregator(std::uint32_t num_workers) const {
    return Aggregator(num_workers, bug);
  }

  optimized::PlantedConnectorBug bug = optimized::PlantedConnectorBug::kNone;
};

}  // namespace

template <>
struct Parts<ConnectorTarget> {
  static auto reference(std::string name) {
    return std::make_unique<ConnectorDriver<ReferenceSide>>(
        std::move(name), ReferenceSide(built_in_connectors_reference()));
  }
  static auto optimized(std::string name) {
    return std::make_unique<ConnectorDriver<OptimizedSide>>(
        std::move(name), OptimizedSide(built_in_connectors_optimized()));
  }
  static auto planted(std::string name, optimized::PlantedConnectorBug bug) {
    return std::make_unique<ConnectorDriver<PlantedSide>>(std::move(name), PlantedSide{{}, bug});
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedConnectorBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_connector_bug_from_name;
};

template struct Implementations<ConnectorTarget>;

Parsed<std::unique_ptr<Implementation<ConnectorTarget>>> make_connector_from_library(
    const std::string& path) {
  KVConnectorRegistry connectors;
  for (const std::string& name : built_in_connectors_optimized().names()) {
    (void)connectors.register_library(name, path);
    // A library that cannot be opened is an error here, not in the middle of a run.
    if (const auto found = connectors.get(name); !found) return found.error();
  }
  std::unique_ptr<Implementation<ConnectorTarget>> driver =
      std::make_unique<ConnectorDriver<OptimizedSide>>("connector of " + path,
                                                       OptimizedSide(std::move(connectors)));
  return driver;
}

}  // namespace kvfence
