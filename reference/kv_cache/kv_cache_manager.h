#pragma once

/// The KV-cache manager: the executable specification. Each function checks everything first and
/// then acts, so that a refusal changes nothing. The rules of each function, and its errors in
/// order, are in contract/kv_cache/kv_cache_manager.h. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/kv_cache_manager.py KVCacheManager.

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "reference/kv_cache/kv_cache_coordinator.h"

namespace kvfence::reference {

class KVCacheManager {
 public:
  /// Requires: a configuration that check_config accepts.
  explicit KVCacheManager(const KVCacheManagerConfig& config) : coordinator_(config) {}

  void get_computed_blocks(const KVRequest& request, ComputedBlocks& out);
  ErrorCode can_fit_full_sequence(const KVRequest& request, const ComputedBlocks* hit,
                                  std::uint32_t num_external_tokens,
                                  std::uint32_t num_encoder_tokens, bool& fits) const;
  /// Where allocated comes out false, out has one empty list per group.
  ErrorCode allocate_slots(const AllocateSlotsArgs& args, bool& allocated, BlocksByGroup& out);
  std::uint32_t get_num_remaining_blocks(const KVRequest& request) const;
  void free(RequestIndex request);
  void remove_skipped_blocks(RequestIndex request, std::uint32_t total_computed_tokens);
  ErrorCode cache_blocks(const KVRequest& request, std::uint32_t num_computed_tokens);
  ErrorCode evict_blocks(std::span<const BlockId> blocks);
  bool reset_prefix_cache();
  ErrorCode get_num_common_prefix_blocks(RequestIndex request,
                                         std::vector<std::uint32_t>& out) const;
  void get_block_ids(RequestIndex request, BlocksByGroup& out) const;
  // Source: vLLM v0.19.0 v1/core/kv_cache_manager.py
  // KVCacheBlocks.get_unhashed_block_ids_all_groups
  void get_unhashed_block_ids(RequestIndex request, BlocksByGroup& out) const {
    get_block_ids(request, out);
    for (std::vector<BlockId>& blocks : out) {
      std::erase_if(blocks, [this](BlockId block) {
        return block == kNullBlockId || !block_pool().block_key(block).empty();
      });
    }
  }
  void take_new_block_ids(std::vector<BlockId>& out);
  void take_events(std::vector<KVCacheEvent>& out);
  PrefixCacheStats take_prefix_cache_stats();
  void new_step_starts() { coordinator_.new_step_starts(); }

  const KVCacheManagerConfig& config() const { return coordinator_.config(); }
  BlockPool& block_pool() { return coordinator_.block_pool(); }
  const BlockPool& block_pool() const { return coordinator_.block_pool(); }

  /// Takes in the whole state in canonical form: what decides later answers, not the history that
  /// led to it. The configuration stays out: states of one are compared.
  void add_to(StateHash& hash) const;

 private:
  /// Whether the request may not come with this hit or external tokens.
  bool is_already_allocated(const KVRequest& request, const ComputedBlocks* hit,
                            std::uint32_t num_external_tokens) const;
  ErrorCode check_allocate_slots(const AllocateSlotsArgs& args, const Allocation& allocation) const;
  /// Blocks that the allocation is expected to take if the request gets all slots at once.
  std::int64_t num_blocks_for_full_sequence(const Request& request, Allocation allocation) const;
  bool fits_full_sequence(const Request& request, const Allocation& allocation) const;

  KVCacheCoordinator coordinator_;
  std::set<RequestIndex> allocated_;  ///< requests that hold a table in every group
  PrefixCacheStats prefix_cache_stats_;
};

}  // namespace kvfence::reference

static_assert(kvfence::KVCacheManager<kvfence::reference::KVCacheManager>);
