#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "contract/eviction/eviction_target.h"
#include "optimized/eviction/cache_policy.h"
#include "planted/optimized/eviction/cache_policy.h"
#include "properties/targets/checks.h"
#include "properties/eviction/driver.h"
#include "reference/eviction/cache_policy.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Policy>
auto make_driver(std::string name) {
  auto make_policy = [](const CachePolicyConfig& config) { return Policy(config); };
  return std::make_unique<EvictionDriver<Policy, decltype(make_policy)>>(std::move(name),
                                                                         make_policy);
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::CachePolicy>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::CachePolicy>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_driver<planted::optimized::CachePolicy>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "eviction";
};

}  // namespace

const TargetSides& eviction_sides() {
  static const TargetSides kSides = sides_of<Parts>(eviction_checks());
  return kSides;
}

}  // namespace kvfence
