#pragma once

/// Mamba: one state a request, kept at block boundaries. In mode "all" each block of tokens has a
/// block; in mode "align" only the running state and the last one before it have, at places of
/// their own among null blocks, followed by the speculative blocks. Source: vLLM v0.19.0 and
/// v0.23.0 v1/core/single_type_kv_cache_manager.py MambaManager.

#include <set>

#include "contract/core/state_digest.h"
#include "reference/kv_cache/single_type_kv_cache_manager.h"

namespace kvfence::reference {

class MambaManager : public SingleTypeKVCacheManager {
 public:
  MambaManager(const KVCacheManagerConfig& config, GroupId group);

  std::int64_t get_num_blocks_to_allocate(const BlockPool& pool,
                                          const Allocation& allocation) const override;
  std::vector<BlockId> allocate_new_blocks(BlockPool& pool, const Allocation& allocation) override;
  bool table_shrinks(const Allocation& allocation) const override;
  void cache_blocks(BlockPool& pool, const KVRequest& request, std::size_t num_tokens) override;
  std::size_t num_token_blocks(RequestIndex request) const override;
  void free(BlockPool& pool, RequestIndex request) override;
  void remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                             std::size_t total_computed_tokens) override;
  void new_step_starts() override;
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override;
  void add_to(StateHash& hash) const override;

 protected:
  std::size_t num_required_blocks(const Allocation& allocation) const override;
  std::size_t num_new_blocks(const Allocation& allocation, std::size_t num_blocks) const override;
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override;

 private:
  bool mamba_align_keeps_blocks_;                  ///< Rules::mamba_align_keeps_blocks
  std::set<std::string> cached_blocks_this_step_;  ///< packed keys
  /// Mode align: where the state stands that the running one was copied from.
  std::map<RequestIndex, std::size_t> last_state_block_idx_;
  /// Mode align: requests whose table ends with a running state and the speculative blocks.
  std::set<RequestIndex> allocated_block_reqs_;
};

}  // namespace kvfence::reference
