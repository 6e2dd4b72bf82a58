#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

/// Cross attention: the encoder's tokens of a request, taken once, never shared and never cached.
/// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py CrossAttentionManager.
class CrossAttentionManager final
    : public Cloning<CrossAttentionManager, SingleTypeKVCacheManager> {
 public:
  using Cloning::Cloning;

  /// Never called: there is no cross attention with caching.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // CrossAttentionManager.find_longest_cache_hit
  BlocksByGroup find_longest_cache_hit(const BlockPool&, const Lookup&) const override {
    KVFENCE_CHECK(false, "a lookup in cross attention");
    return {};
  }

 protected:
  // Neither hits nor external tokens reach the encoder's blocks.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // CrossAttentionManager.allocate_new_computed_blocks
  std::optional<ComputedBlocksPlan> plan_computed_blocks(const Allocation&) const override {
    return std::nullopt;
  }

  // Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_num_blocks_to_allocate,
  // allocate_new_blocks
  std::size_t num_required_blocks(const Allocation& allocation) const override {
    return cdiv(allocation.num_encoder_tokens, block_size_);
  }
};

}  // namespace

std::unique_ptr<SingleTypeKVCacheManager> make_cross_attention_manager(
    const KVCacheManagerConfig& config, GroupId group) {
  return std::make_unique<CrossAttentionManager>(config, group);
}

}  // namespace kvfence::reference
