#include <string>
#include <string_view>
#include <utility>

#include "optimized/kv_cache/kv_cache_manager.h"
#include "planted/optimized/kv_cache/kv_cache_manager.h"
#include "properties/kv_cache/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct KVCacheParts {
  static constexpr auto reference = make_kv_cache_reference;
  static auto optimized(std::string name) {
    return make_kv_cache_driver<optimized::KVCacheManager>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_kv_cache_driver<planted::optimized::KVCacheManager>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "kv_cache";
};

}  // namespace

const TargetSides& kv_cache_sides() {
  static const TargetSides kSides = sides_of<KVCacheParts>(kv_cache_checks());
  return kSides;
}

}  // namespace kvfence
