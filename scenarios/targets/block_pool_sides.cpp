#include <memory>
#include <string>
#include <utility>

#include "contract/pool/block_pool_target.h"
#include "optimized/pool/block_pool.h"
#include "optimized/pool/planted_bugs.h"
#include "properties/pool/checks.h"
#include "properties/pool/driver.h"
#include "reference/pool/block_pool.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Pool, class... Bug>
auto make_driver(std::string name, Bug... bug) {
  auto make_pool = [bug...](const BlockPoolConfig& config) { return Pool(config, bug...); };
  return std::make_unique<BlockPoolDriver<Pool, decltype(make_pool)>>(std::move(name), make_pool);
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::BlockPool>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::BlockPool>(std::move(name));
  }
  static auto planted(std::string name, optimized::PlantedBug bug) {
    return make_driver<optimized::PlantedBlockPool>(std::move(name), bug);
  }

  static constexpr auto& kPlantedBugs = optimized::kPlantedBugs;
  static constexpr auto& planted_bug_from_name = optimized::planted_bug_from_name;
};

}  // namespace

const TargetSides& block_pool_sides() {
  static const TargetSides kSides = sides_of<Parts>(block_pool_checks());
  return kSides;
}

}  // namespace kvfence
