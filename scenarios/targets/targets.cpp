#include "scenarios/targets/targets.h"

namespace kvfence {

const std::vector<const TargetSides*>& all_targets() {
  static const std::vector<const TargetSides*> kTargets = {
      &block_pool_sides(),      &kv_cache_sides(),       &scheduler_sides(),
      &eviction_sides(),        &offload_sides(),        &tiering_sides(),
      &connector_sides(),       &simple_offload_sides(), &synchronous_connector_sides(),
      &multi_connector_sides(), &disaggregated_sides(),  &worker_sides(),
      &engine_sides(),
  };
  return kTargets;
}

const TargetSides* find_target(std::string_view name) {
  for (const TargetSides* sides : all_targets()) {
    if (sides->target().name == name) return sides;
  }
  return nullptr;
}

}  // namespace kvfence
