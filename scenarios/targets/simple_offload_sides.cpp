#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "contract/connectors/kv_connector.h"
#include "contract/connectors/simple/simple_offload_target.h"
#include "optimized/connectors/kv_output_aggregator.h"
#include "optimized/connectors/simple/planted_simple_offload_bugs.h"
#include "optimized/connectors/simple/simple_cpu_offload_scheduler.h"
#include "optimized/connectors/simple/simple_cpu_offload_worker.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/connectors/simple/checks.h"
#include "properties/connectors/simple/driver.h"
#include "reference/connectors/kv_output_aggregator.h"
#include "reference/connectors/simple/simple_cpu_offload.h"
#include "reference/connectors/simple/simple_cpu_offload_worker.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/engine_side.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct ReferenceSide : EngineSide<reference::Scheduler, reference::KVOutputAggregator> {
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return reference::make_simple_cpu_offload_scheduler(setup.spec);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return reference::make_simple_cpu_offload_worker(setup.spec);
  }
};

struct OptimizedSide : EngineSide<optimized::Scheduler, optimized::KVOutputAggregator> {
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return optimized::make_simple_cpu_offload_scheduler(setup.spec);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return optimized::make_simple_cpu_offload_worker(setup.spec);
  }
};

/// The bug is in one of the connector's halves. The scheduler has none, but bears what a broken
/// connector does to its pool.
struct PlantedSide : EngineSide<optimized::PlantedScheduler, optimized::KVOutputAggregator> {
  Scheduler make_scheduler(const SchedulerConfig& config, KVConnectorHandle connector) const {
    return Scheduler(config, std::move(connector), optimized::PlantedInstrumentation());
  }
  auto make_connector(const SimpleOffloadSetup& setup) const {
    return optimized::make_planted_simple_cpu_offload_scheduler(setup.spec, bug);
  }
  auto make_worker(const SimpleOffloadSetup& setup, std::uint32_t) const {
    return optimized::make_planted_simple_cpu_offload_worker(setup.spec, bug);
  }

  optimized::PlantedSimpleOffloadBug bug = optimized::PlantedSimpleOffloadBug::kNone;
};

struct Parts {
  static auto reference(std::string name) {
    return std::make_unique<SimpleOffloadDriver<ReferenceSide>>(std::move(name), ReferenceSide{});
  }
  static auto optimized(std::string name) {
    return std::make_unique<SimpleOffloadDriver<OptimizedSide>>(std::move(name), OptimizedSide{});
  }
  static auto planted(std::string name, optimized::PlantedSimpleOffloadBug bug) {
    return std::make_unique<SimpleOffloadDriver<PlantedSide>>(std::move(name),
                                                              PlantedSide{{}, bug});
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedSimpleOffloadBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_simple_offload_bug_from_name;
};

}  // namespace

const TargetSides& simple_offload_sides() {
  static const TargetSides kSides = sides_of<Parts>(simple_offload_checks());
  return kSides;
}

}  // namespace kvfence
