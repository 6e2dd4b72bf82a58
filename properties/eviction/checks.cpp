#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& eviction_checks() {
  return checks_of<EvictionTarget, eviction::generators, eviction::rules, eviction::goals>();
}

}  // namespace kvfence
