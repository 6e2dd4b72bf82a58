#include "properties/targets/checks.h"
#include "properties/core/checks_of.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& kv_cache_checks() {
  return checks_of<KVCacheTarget, kv_cache::generators, kv_cache::rules, kv_cache::goals>();
}

}  // namespace kvfence
