#include <memory>
#include <string>
#include <utility>

#include "contract/connectors/kv_connector.h"
#include "contract/scheduler/scheduler_target.h"
#include "optimized/pool/planted_bugs.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/scheduler/driver.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/define_implementations.h"

namespace kvfence {
namespace {

template <class SchedulerType, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_scheduler = [bug...](const SchedulerConfig& config, KVConnectorHandle connector) {
    return SchedulerType(config, std::move(connector), bug...);
  };
  return std::make_unique<SchedulerDriver<SchedulerType, decltype(make_scheduler)>>(std::move(name),
                                                                                    make_scheduler);
}

}  // namespace

template <>
struct Parts<SchedulerTarget> {
  static auto reference(std::string name) {
    return make_driver<reference::Scheduler>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::Scheduler>(std::move(name));
  }
  static auto planted(std::string name, optimized::PlantedSchedulerBug bug) {
    return make_driver<optimized::PlantedScheduler>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedSchedulerBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_scheduler_bug_from_name;
};

template struct Implementations<SchedulerTarget>;

}  // namespace kvfence
