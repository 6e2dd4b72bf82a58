#include <memory>
#include <string>
#include <utility>

#include "contract/eviction/eviction_target.h"
#include "optimized/eviction/cache_policy.h"
#include "optimized/offload/planted_offloading_bugs.h"
#include "properties/eviction/checks.h"
#include "properties/eviction/driver.h"
#include "reference/eviction/cache_policy.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Policy, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_policy = [bug...](const CachePolicyConfig& config) { return Policy(config, bug...); };
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
  static auto planted(std::string name, optimized::PlantedCachePolicyBug bug) {
    return make_driver<optimized::PlantedCachePolicy>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedCachePolicyBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_cache_policy_bug_from_name;
};

}  // namespace

const TargetSides& eviction_sides() {
  static const TargetSides kSides = sides_of<Parts>(eviction_checks());
  return kSides;
}

}  // namespace kvfence
