#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& block_pool_checks() {
  return checks_of<BlockPoolTarget, block_pool::generators, block_pool::rules, block_pool::goals>();
}

}  // namespace kvfence
