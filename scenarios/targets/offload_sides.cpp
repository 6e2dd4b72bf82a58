#include <string>
#include <string_view>
#include <utility>

#include "optimized/offload/offloading_manager.h"
#include "planted/optimized/offload/offloading_manager.h"
#include "properties/offload/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct OffloadParts {
  static constexpr auto reference = make_offload_reference;
  static auto optimized(std::string name) {
    return make_offload_driver<optimized::OffloadingManager>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_offload_driver<planted::optimized::OffloadingManager>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "offload";
};

}  // namespace

const TargetSides& offload_sides() {
  static const TargetSides kSides = sides_of<OffloadParts>(offload_checks());
  return kSides;
}

}  // namespace kvfence
