#include "contract/core/status.h"
#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {
namespace {

/// Full attention: every token of the request stays. With a sink, some blocks of the pool belong to
/// the group permanently. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
/// FullAttentionManager, SinkFullAttentionManager.
class FullAttentionManager : public Cloning<FullAttentionManager, SingleTypeKVCacheManager> {
 public:
  using Cloning::Cloning;

  // Leading blocks that every request with a table in this group holds.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // FullAttentionManager.get_num_common_prefix_blocks
  std::uint32_t get_num_common_prefix_blocks(const BlockPool& pool,
                                             RequestIndex request) const override {
    std::uint32_t num_common_blocks = 0;
    for (const BlockId block : blocks(request)) {
      if (pool.ref_cnt(block) != req_to_blocks_.size()) break;
      ++num_common_blocks;
    }
    return num_common_blocks;
  }

  // From the start up to the first miss: a block is only findable if all before it were. For eagle
  // the last block is dropped. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // FullAttentionManager.find_longest_cache_hit
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override {
    BlocksByGroup computed_blocks(lookup.group_ids.size());
    const std::size_t num_blocks_max = lookup.max_length / block_size_;
    for (std::size_t i = 0; i < num_blocks_max; ++i) {
      const auto cached = get_cached_block(pool, lookup, i);
      if (!cached) break;
      for (std::size_t g = 0; g < cached->size(); ++g) computed_blocks[g].push_back((*cached)[g]);
    }
    if (lookup.drop_eagle_block && !computed_blocks.front().empty()) {
      for (std::vector<BlockId>& blocks : computed_blocks) blocks.pop_back();
    }
    align(computed_blocks, block_size_, lookup.alignment_tokens);
    return computed_blocks;
  }
};

class SinkFullAttentionManager final
    : public Cloning<SinkFullAttentionManager, FullAttentionManager> {
 public:
  /// Requires: sink_len / block_size blocks are free.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py SinkFullAttentionManager.__init__
  // (v0.23.0 cannot construct one: its __init__ lacks the argument scheduler_block_size)
  SinkFullAttentionManager(const KVCacheManagerConfig& config, GroupId group, BlockPool& pool)
      : Cloning(config, group) {
    must(pool.take_sink_blocks(spec_.sink_len / spec_.block_size),
         "the sinks do not fit into the pool");
  }
};

}  // namespace

std::unique_ptr<SingleTypeKVCacheManager> make_full_attention_manager(
    const KVCacheManagerConfig& config, GroupId group) {
  return std::make_unique<FullAttentionManager>(config, group);
}

std::unique_ptr<SingleTypeKVCacheManager> make_sink_full_attention_manager(
    const KVCacheManagerConfig& config, GroupId group, BlockPool& pool) {
  return std::make_unique<SinkFullAttentionManager>(config, group, pool);
}

}  // namespace kvfence::reference
