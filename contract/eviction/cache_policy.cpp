#include "contract/eviction/cache_policy.h"

namespace kvfence {

std::string_view to_text(EvictionPolicy policy) {
  return policy == EvictionPolicy::kLRU ? "lru" : "arc";
}

std::optional<EvictionPolicy> eviction_policy_from_text(std::string_view text) {
  for (EvictionPolicy policy : {EvictionPolicy::kLRU, EvictionPolicy::kARC}) {
    if (to_text(policy) == text) return policy;
  }
  return std::nullopt;
}

}  // namespace kvfence
