#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "contract/connectors/kv_connector.h"
#include "contract/scheduler/scheduler_target.h"
#include "optimized/pool/planted_bugs.h"
#include "optimized/scheduler/scheduler.h"
#include "properties/scheduler/checks.h"
#include "properties/scheduler/driver.h"
#include "reference/scheduler/scheduler.h"
#include "scenarios/targets/sides_of.h"

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

/// A mistake of the scheduler; or, though the table leaves it to other targets, of its KV-cache
/// manager or its pool.
using SchedulerBug = std::variant<optimized::PlantedSchedulerBug, optimized::PlantedKVCacheBug,
                                  optimized::PlantedBug>;

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::Scheduler>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::Scheduler>(std::move(name));
  }
  static std::unique_ptr<Implementation> planted(std::string name, SchedulerBug bug) {
    return std::visit(
        [&](auto typed) -> std::unique_ptr<Implementation> {
          return make_driver<optimized::PlantedScheduler>(std::move(name), typed);
        },
        bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedSchedulerBugs;
  static std::optional<SchedulerBug> planted_bug_from_name(std::string_view name) {
    if (const auto bug = optimized::planted_scheduler_bug_from_name(name)) return *bug;
    if (const auto bug = optimized::planted_kv_cache_bug_from_name(name)) return *bug;
    if (const auto bug = optimized::planted_bug_from_name(name)) return *bug;
    return std::nullopt;
  }
};

}  // namespace

const TargetSides& scheduler_sides() {
  static const TargetSides kSides = sides_of<Parts>(scheduler_checks());
  return kSides;
}

}  // namespace kvfence
