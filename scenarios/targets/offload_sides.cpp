#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "contract/offload/offload_target.h"
#include "optimized/offload/offloading_manager.h"
#include "planted/optimized/offload/offloading_manager.h"
#include "properties/targets/checks.h"
#include "properties/offload/driver.h"
#include "reference/offload/offloading_manager.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Manager>
auto make_driver(std::string name) {
  auto make_manager = [](const OffloadingManagerConfig& config) { return Manager(config); };
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
  static auto planted(std::string name) {
    return make_driver<planted::optimized::OffloadingManager>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "offload";
};

}  // namespace

const TargetSides& offload_sides() {
  static const TargetSides kSides = sides_of<Parts>(offload_checks());
  return kSides;
}

}  // namespace kvfence
