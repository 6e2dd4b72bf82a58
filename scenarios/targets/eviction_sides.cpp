#include <string>
#include <string_view>
#include <utility>

#include "optimized/eviction/cache_policy.h"
#include "planted/optimized/eviction/cache_policy.h"
#include "properties/eviction/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct EvictionParts {
  static constexpr auto reference = make_eviction_reference;
  static auto optimized(std::string name) {
    return make_eviction_driver<optimized::CachePolicy>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_eviction_driver<planted::optimized::CachePolicy>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "eviction";
};

}  // namespace

const TargetSides& eviction_sides() {
  static const TargetSides kSides = sides_of<EvictionParts>(eviction_checks());
  return kSides;
}

}  // namespace kvfence
