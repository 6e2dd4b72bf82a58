#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/synchronous/synchronous_connector_target.h"
#include "optimized/connectors/synchronous/planted_synchronous_connector_bugs.h"
#include "optimized/connectors/synchronous/synchronous_connector.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/connectors/synchronous/checks.h"
#include "properties/connectors/synchronous/driver.h"
#include "reference/connectors/synchronous/shared_storage.h"
#include "reference/connectors/synchronous/synchronous_connector.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct ReferenceSide {
  using Scheduler = reference::Scheduler;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  std::unique_ptr<SharedStorage> make_storage(const SynchronousConnectorSpec&) const {
    return reference::make_shared_storage();
  }
  auto make_connector(const SynchronousConnectorSpec& spec, SharedStorage& storage) const {
    return reference::make_synchronous_connector_scheduler(spec, storage);
  }
  auto make_worker(const SynchronousConnectorSpec& spec, std::uint32_t,
                   SharedStorage& storage) const {
    return reference::make_synchronous_connector_worker(spec, storage);
  }
};

struct OptimizedSide {
  using Scheduler = optimized::Scheduler;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector));
  }
  std::unique_ptr<SharedStorage> make_storage(const SynchronousConnectorSpec&) const {
    return optimized::make_shared_storage();
  }
  auto make_connector(const SynchronousConnectorSpec& spec, SharedStorage& storage) const {
    return optimized::make_synchronous_connector_scheduler(spec, storage);
  }
  auto make_worker(const SynchronousConnectorSpec& spec, std::uint32_t,
                   SharedStorage& storage) const {
    return optimized::make_synchronous_connector_worker(spec, storage);
  }
};

/// The bug is in one of the connector's halves or in the storage. The scheduler has none, but bears
/// what a broken connector answers.
struct PlantedSide {
  using Scheduler = optimized::PlantedScheduler;

  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector), optimized::PlantedInstrumentation());
  }
  std::unique_ptr<SharedStorage> make_storage(const SynchronousConnectorSpec&) const {
    return optimized::make_planted_shared_storage(instrumentation());
  }
  auto make_connector(const SynchronousConnectorSpec& spec, SharedStorage& storage) const {
    return optimized::make_planted_synchronous_connector_scheduler(spec, storage,
                                                                   instrumentation());
  }
  auto make_worker(const SynchronousConnectorSpec& spec, std::uint32_t,
                   SharedStorage& storage) const {
    return optimized::make_planted_synchronous_connector_worker(spec, storage, instrumentation());
  }
  optimized::PlantedInstrumentation instrumentation() const {
    return optimized::PlantedInstrumentation(bug);
  }

  optimized::PlantedSynchronousConnectorBug bug = optimized::PlantedSynchronousConnectorBug::kNone;
};

struct Parts {
  static auto reference(std::string name) {
    return std::make_unique<SynchronousConnectorDriver<ReferenceSide>>(std::move(name),
                                                                       ReferenceSide{});
  }
  static auto optimized(std::string name) {
    return std::make_unique<SynchronousConnectorDriver<OptimizedSide>>(std::move(name),
                                                                       OptimizedSide{});
  }
  static auto planted(std::string name, optimized::PlantedSynchronousConnectorBug bug) {
    return std::make_unique<SynchronousConnectorDriver<PlantedSide>>(std::move(name),
                                                                     PlantedSide{bug});
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedSynchronousConnectorBugs;
  static constexpr auto& planted_bug_from_name =
      optimized::planted_synchronous_connector_bug_from_name;
};

}  // namespace

const TargetSides& synchronous_connector_sides() {
  static const TargetSides kSides = sides_of<Parts>(synchronous_connector_checks());
  return kSides;
}

}  // namespace kvfence
