#pragma once

/// Cross attention: the encoder's tokens of a request, taken once, shared with nobody and never
/// cached. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py CrossAttentionManager.

#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {

class CrossAttentionManager : public SingleTypeKVCacheManager {
 public:
  using SingleTypeKVCacheManager::SingleTypeKVCacheManager;

  /// Never called: there is no cross attention with caching.
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override;

 protected:
  std::optional<ComputedBlocksPlan> plan_computed_blocks(
      const Allocation& allocation) const override;
  std::size_t num_required_blocks(const Allocation& allocation) const override;
};

}  // namespace kvfence::reference
