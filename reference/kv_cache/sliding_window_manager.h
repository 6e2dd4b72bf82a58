#pragma once

/// Sliding window: the next token reads itself and the sliding_window - 1 tokens before it; blocks
/// before that are given back. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/single_type_kv_cache_manager.py SlidingWindowManager.

#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {

class SlidingWindowManager : public SingleTypeKVCacheManager {
 public:
  SlidingWindowManager(const KVCacheManagerConfig& config, GroupId group);

  void free(BlockPool& pool, RequestIndex request) override;
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override;

 protected:
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override;
  std::optional<std::size_t> max_admission_blocks_per_request() const override;
  std::optional<std::vector<std::uint8_t>> reachable_block_mask(
      std::size_t start_block, std::size_t end_block, std::size_t num_prompt_tokens) const override;

 private:
  /// Blocks in a row that a hit needs, the one that is dropped for eagle included.
  std::size_t contiguous_blocks_for_hit(bool drops_eagle_block) const;

  std::size_t scheduler_block_size_;    ///< tokens
  std::size_t max_model_len_;           ///< tokens
  std::size_t max_num_batched_tokens_;  ///< tokens
  std::optional<std::uint32_t> retention_interval_;
};

}  // namespace kvfence::reference
