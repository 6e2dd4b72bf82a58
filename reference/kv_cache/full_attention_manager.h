#pragma once

/// Full attention: every token of the request stays. With a sink, some blocks of the pool belong to
/// the group for good. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
/// FullAttentionManager, SinkFullAttentionManager.

#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {

class FullAttentionManager : public SingleTypeKVCacheManager {
 public:
  using SingleTypeKVCacheManager::SingleTypeKVCacheManager;

  std::uint32_t get_num_common_prefix_blocks(const BlockPool& pool,
                                             RequestIndex request) const override;
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override;
};

class SinkFullAttentionManager : public FullAttentionManager {
 public:
  /// Requires: sink_len / block_size blocks are free.
  SinkFullAttentionManager(const KVCacheManagerConfig& config, GroupId group, BlockPool& pool);
};

}  // namespace kvfence::reference
