#include "contract/eviction/eviction_target.h"

#include "contract/core/describe.h"
#include "contract/core/rules.h"

namespace kvfence {

Parsed<CachePolicyConfig> make_cache_policy_config(const eviction::Config& config,
                                                   std::string_view file, Position position) {
  const auto error = errors_at(file, position);
  const auto policy = from_text<EvictionPolicy>(config.policy);
  if (!policy) return error("policy=" + config.policy, "lru or arc");
  if (config.capacity == 0) return error("capacity=0", "at least one block");
  const auto profile = from_text<Profile>(config.profile);
  if (!profile) return error("profile=" + config.profile, "v0.19 or v0.23");
  CachePolicyConfig result;
  result.policy = *policy;
  result.capacity = config.capacity;
  result.arc_refuses_with_idle_t1 =
      config.arc_refuses_with_idle_t1.value_or(rules_of(*profile).arc_refuses_with_idle_t1);
  return result;
}

const Target& EvictionTarget::description() { return described<EvictionTarget>(); }

}  // namespace kvfence
