#include "reference/kv_cache/cross_attention_manager.h"

#include "contract/core/check.h"

namespace kvfence::reference {

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
// CrossAttentionManager.find_longest_cache_hit
BlocksByGroup CrossAttentionManager::find_longest_cache_hit(const BlockPool&, const Lookup&) const {
  KVFENCE_CHECK(false, "a lookup in cross attention");
  return {};
}

// Neither hits nor external tokens reach the encoder's blocks.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
// CrossAttentionManager.allocate_new_computed_blocks
std::optional<SingleTypeKVCacheManager::ComputedBlocksPlan>
CrossAttentionManager::plan_computed_blocks(const Allocation&) const {
  return std::nullopt;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_num_blocks_to_allocate,
// allocate_new_blocks
std::size_t CrossAttentionManager::num_required_blocks(const Allocation& allocation) const {
  return cdiv(allocation.num_encoder_tokens, block_size_);
}

}  // namespace kvfence::reference
