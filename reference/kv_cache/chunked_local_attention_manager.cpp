#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

/// Chunked local attention: a token reads its own chunk of attention_chunk_size tokens; blocks of
/// earlier chunks are given back. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/single_type_kv_cache_manager.py ChunkedLocalAttentionManager.
class ChunkedLocalAttentionManager final
    : public Cloning<ChunkedLocalAttentionManager, SingleTypeKVCacheManager> {
 public:
  using Cloning::Cloning;

  // Blocks of earlier chunks count as hit without a lookup; then consecutive blocks of the chunk.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // ChunkedLocalAttentionManager.find_longest_cache_hit
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override {
    KVFENCE_CHECK(!lookup.drop_eagle_block, "chunked local attention with eagle");
    const std::size_t num_skipped = get_num_skipped_tokens(lookup.max_length) / block_size_;
    const std::size_t num_blocks_max = lookup.max_length / block_size_;
    BlocksByGroup computed_blocks(lookup.group_ids.size(),
                                  std::vector<BlockId>(num_skipped, kNullBlockId));
    for (std::size_t i = num_skipped; i < num_blocks_max; ++i) {
      const auto cached = get_cached_block(pool, lookup, i);
      if (!cached) break;
      for (std::size_t g = 0; g < cached->size(); ++g) computed_blocks[g].push_back((*cached)[g]);
    }
    return computed_blocks;
  }

 protected:
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // ChunkedLocalAttentionManager.get_num_skipped_tokens
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override {
    return num_computed_tokens / spec_.attention_chunk_size * spec_.attention_chunk_size;
  }

  // Source: vLLM v0.23.0 v1/kv_cache_interface.py
  // ChunkedLocalAttentionSpec.max_admission_blocks_per_request
  std::optional<std::size_t> max_admission_blocks_per_request() const override {
    const std::size_t num_tokens = std::min<std::size_t>(
        spec_.attention_chunk_size + std::size_t{config_.max_num_batched_tokens},
        config_.max_model_len);
    return cdiv(num_tokens, block_size_);
  }
};

}  // namespace

std::unique_ptr<SingleTypeKVCacheManager> make_chunked_local_attention_manager(
    const KVCacheManagerConfig& config, GroupId group) {
  return std::make_unique<ChunkedLocalAttentionManager>(config, group);
}

}  // namespace kvfence::reference
