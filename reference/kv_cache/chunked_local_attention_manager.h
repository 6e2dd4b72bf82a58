#pragma once

/// Chunked local attention: a token reads its own chunk of attention_chunk_size tokens; blocks of
/// earlier chunks are given back. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/single_type_kv_cache_manager.py ChunkedLocalAttentionManager.

#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {

class ChunkedLocalAttentionManager : public SingleTypeKVCacheManager {
 public:
  ChunkedLocalAttentionManager(const KVCacheManagerConfig& config, GroupId group);

  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override;

 protected:
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override;
  std::optional<std::size_t> max_admission_blocks_per_request() const override;

 private:
  std::size_t max_model_len_;           ///< tokens
  std::size_t max_num_batched_tokens_;  ///< tokens
};

}  // namespace kvfence::reference
