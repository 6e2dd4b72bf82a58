#include "properties/targets/checks.h"

#include "properties/targets/never_together.h"
#include "properties/targets/rooms.h"

namespace kvfence {

const Checks& block_pool_checks() {
  static const Checks kChecks = checks_of<BlockPoolTarget, block_pool::draw_config,
                                          block_pool::make_generator, block_pool::make_rules>(
      block_pool::invariants(), block_pool::goals(), never_together("block_pool"));
  return kChecks;
}

const Checks& kv_cache_checks() {
  static const Checks kChecks = checks_of<KVCacheTarget, kv_cache::draw_config,
                                          kv_cache::make_generator, kv_cache::make_rules>(
      kv_cache::invariants(), kv_cache::goals(), never_together("kv_cache"));
  return kChecks;
}

const Checks& eviction_checks() {
  static const Checks kChecks = checks_of<EvictionTarget, eviction::draw_config,
                                          eviction::make_generator, eviction::make_rules>(
      eviction::invariants(), eviction::goals(), never_together("eviction"));
  return kChecks;
}

const Checks& offload_checks() {
  static const Checks kChecks =
      checks_of<OffloadTarget, offload::draw_config, offload::make_generator, offload::make_rules>(
          offload::invariants(), offload::goals(), never_together("offload"));
  return kChecks;
}

const Checks& tiering_checks() {
  static const Checks kChecks =
      checks_of<TieringTarget, tiering::draw_config, tiering::make_generator, tiering::make_rules>(
          tiering::invariants(), tiering::goals(), never_together("tiering"));
  return kChecks;
}

const Checks& worker_checks() {
  static const Checks kChecks =
      checks_of<WorkerTarget, worker::draw_config, worker::make_generator, worker::make_rules>(
          worker::invariants(), worker::goals(), never_together("worker"));
  return kChecks;
}

}  // namespace kvfence
