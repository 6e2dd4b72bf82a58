#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "contract/kv_connector.h"
#include "contract/simple_offload_target.h"
#include "optimized/kv_output_aggregator.h"
#include "optimized/planted_simple_offload_bugs.h"
#include "optimized/scheduler.h"
#include "optimized/simple_cpu_offload_scheduler.h"
#include "optimized/simple_cpu_offload_worker.h"
#include "properties/simple_offload_driver.h"
#include "reference/kv_output_aggregator.h"
#include "reference/scheduler.h"
#include "reference/simple_cpu_offload.h"
#include "reference/simple_cpu_offload_worker.h"
#include "scenarios/define_implementations.h"
#include "scenarios/engine_side.h"

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

}  // namespace

template <>
struct Parts<SimpleOffloadTarget> {
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

template struct Implementations<SimpleOffloadTarget>;

}  // namespace kvfence
