#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "contract/pool/block_pool_target.h"
#include "optimized/pool/block_pool.h"
#include "planted/optimized/pool/block_pool.h"
#include "properties/targets/checks.h"
#include "properties/pool/driver.h"
#include "reference/pool/block_pool.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

template <class Pool>
auto make_driver(std::string name) {
  auto make_pool = [](const BlockPoolConfig& config) { return Pool(config); };
  return std::make_unique<BlockPoolDriver<Pool, decltype(make_pool)>>(std::move(name), make_pool);
}

struct Parts {
  static auto reference(std::string name) {
    return make_driver<reference::BlockPool>(std::move(name));
  }
  static auto optimized(std::string name) {
    return make_driver<optimized::BlockPool>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_driver<planted::optimized::BlockPool>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "pool";
};

}  // namespace

const TargetSides& block_pool_sides() {
  static const TargetSides kSides = sides_of<Parts>(block_pool_checks());
  return kSides;
}

}  // namespace kvfence
