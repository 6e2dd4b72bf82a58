#include <memory>
#include <string>
#include <utility>

#include "contract/kv_cache/kv_cache_target.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "optimized/pool/planted_bugs.h"
#include "properties/kv_cache/checks.h"
#include "properties/kv_cache/driver.h"
#include "reference/kv_cache/kv_cache_manager.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Manager, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_manager = [bug...](const KVCacheManagerConfig& config) {
    return Manager(config, bug...);
  };
  return std::make_unique<KVCacheDriver<Manager, decltype(make_manager)>>(std::move(name),
                                                                          make_manager);
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::KVCacheManager>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::KVCacheManager>(std::move(name));
  }
  static auto planted(std::string name, optimized::PlantedKVCacheBug bug) {
    return make_driver<optimized::PlantedKVCacheManager>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedKVCacheBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_kv_cache_bug_from_name;
};

}  // namespace

const TargetSides& kv_cache_sides() {
  static const TargetSides kSides = sides_of<Parts>(kv_cache_checks());
  return kSides;
}

}  // namespace kvfence
