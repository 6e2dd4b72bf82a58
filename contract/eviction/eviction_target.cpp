#include "contract/eviction/eviction_target.h"

#include "contract/core/describe.h"

namespace kvfence {

Parsed<CachePolicyConfig> make_cache_policy_config(const eviction::Config& config,
                                                   std::string_view file, Position position) {
  if (config.capacity == 0) return errors_at(file, position)("capacity=0", "at least one block");
  CachePolicyConfig result;
  result.policy = config.policy;
  result.capacity = config.capacity;
  result.arc_refuses_with_idle_t1 =
      config.arc_refuses_with_idle_t1.value_or(rules_of(config.profile).arc_refuses_with_idle_t1);
  return result;
}

const Target& EvictionTarget::description() { return described<EvictionTarget>(); }

}  // namespace kvfence
