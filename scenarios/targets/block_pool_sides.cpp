#include <string>
#include <string_view>
#include <utility>

#include "optimized/pool/block_pool.h"
#include "planted/optimized/pool/block_pool.h"
#include "properties/pool/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/check/references.h"
#include "scenarios/targets/sides_of.h"

namespace kvfence {
namespace {

struct BlockPoolParts {
  static constexpr auto reference = make_block_pool_reference;
  static auto optimized(std::string name) {
    return make_block_pool_driver<optimized::BlockPool>(std::move(name));
  }
  static auto planted(std::string name) {
    return make_block_pool_driver<planted::optimized::BlockPool>(std::move(name));
  }
  static constexpr std::string_view kPlantedRoom = "pool";
};

}  // namespace

const TargetSides& block_pool_sides() {
  static const TargetSides kSides = sides_of<BlockPoolParts>(block_pool_checks());
  return kSides;
}

}  // namespace kvfence
