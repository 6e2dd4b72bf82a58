#include <memory>
#include <string>
#include <utility>

#include "contract/offload/offload_target.h"
#include "optimized/offload/offloading_manager.h"
#include "optimized/offload/planted_offloading_bugs.h"
#include "properties/offload/checks.h"
#include "properties/offload/driver.h"
#include "reference/offload/offloading_manager.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Manager, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_manager = [bug...](const OffloadingManagerConfig& config) {
    return Manager(config, bug...);
  };
  return std::make_unique<OffloadDriver<Manager, decltype(make_manager)>>(std::move(name),
                                                                          make_manager);
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::OffloadingManager>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::OffloadingManager>(std::move(name));
  }
  static auto planted(std::string name, optimized::PlantedOffloadingBug bug) {
    return make_driver<optimized::PlantedOffloadingManager>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedOffloadingBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_offloading_bug_from_name;
};

}  // namespace

const TargetSides& offload_sides() {
  static const TargetSides kSides = sides_of<Parts>(offload_checks());
  return kSides;
}

}  // namespace kvfence
