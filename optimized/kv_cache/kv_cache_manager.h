#pragma once

/// KVCacheManager: the manager that an engine embeds. The rules of every operation are in
/// contract/kv_cache/kv_cache_manager.h. This class decides the order of their steps, and their
/// errors.
///
/// It allocates nothing once its requests have had their longest tables and its callers reuse their
/// arguments. No virtual calls and no pointers between members, so a copy is an independent
/// manager. Not thread-safe.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/kv_events.h"
#include "optimized/kv_cache/kv_cache_coordinator.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {

class KVCacheManager {
 public:
  /// Requires: check_config(config) finds nothing; sliding_window_mask only with
  /// cache_full_blocks_mask, unhashed_blocks_first only with free_blocks_prepend.
  explicit KVCacheManager(const KVCacheManagerConfig& config);

  void get_computed_blocks(const KVRequest& request, ComputedBlocks& out);
  ErrorCode can_fit_full_sequence(const KVRequest& request, const ComputedBlocks* hit,
                                  std::uint32_t num_external_tokens,
                                  std::uint32_t num_encoder_tokens, bool& fits);

  /// allocated is also false where upstream admits more than it can take and raises. A hit without
  /// blocks counts as no hit.
  ErrorCode allocate_slots(const AllocateSlotsArgs& args, bool& allocated, BlocksByGroup& out);

  std::uint32_t get_num_remaining_blocks(const KVRequest& request) const;

  /// A lower bound of the tokens, computed and new, up to which allocate_slots without a hit and
  /// cache_blocks succeed and change nothing for a running request. Holds until free, for any
  /// number of computed tokens. Requires: the request was allocated with its num_computed_tokens.
  /// Cost: O(groups)
  std::uint32_t num_settled_tokens(const KVRequest& request,
                                   std::uint32_t num_lookahead_tokens) const;

  void free(RequestIndex request) { coordinator_.free(request); }
  void remove_skipped_blocks(RequestIndex request, std::uint32_t total_computed_tokens) {
    coordinator_.remove_skipped_blocks(request, total_computed_tokens);
  }

  /// kBadRange also where it would cache Mamba align blocks for speculation, which move on.
  ErrorCode cache_blocks(const KVRequest& request, std::uint32_t num_computed_tokens);

  ErrorCode evict_blocks(std::span<const BlockId> blocks) {
    return coordinator_.block_pool().evict_blocks(blocks);
  }
  bool reset_prefix_cache();
  ErrorCode get_num_common_prefix_blocks(RequestIndex request,
                                         std::vector<std::uint32_t>& out) const;
  void get_block_ids(RequestIndex request, BlocksByGroup& out) const;
  /// Cost: O(blocks of the request).
  void get_unhashed_block_ids(RequestIndex request, BlocksByGroup& out) const {
    get_block_ids(request, out);
    for (std::vector<BlockId>& blocks : out) {
      std::erase_if(blocks, [&](BlockId block) {
        return block == kNullBlockId || !block_pool().block_key(block).empty();
      });
    }
  }
  void take_new_block_ids(std::vector<std::uint32_t>& out) { coordinator_.take_new_block_ids(out); }
  void take_events(std::vector<KVCacheEvent>& out);
  PrefixCacheStats take_prefix_cache_stats();
  void new_step_starts() { coordinator_.new_step_starts(); }

  const KVCacheManagerConfig& config() const { return config_; }
  BlockPool& block_pool() { return coordinator_.block_pool(); }
  const BlockPool& block_pool() const { return coordinator_.block_pool(); }

  /// The managers of the groups.
  const KVCacheCoordinator& coordinator() const { return coordinator_; }

  /// Adds the state in canonical form: all that decides later answers, but not history. The
  /// configuration stays out, since only states of one configuration are compared.
  void add_to(StateHash& hash) const { hash.add_all(coordinator_, stats_); }

 private:
  bool is_already_allocated(const KVRequest& request, bool has_hit, bool has_external) const;
  std::int64_t num_full_sequence_blocks(const KVRequest& request, SlotDemand demand,
                                        const ComputedBlocks* hit, bool apply_admission_cap) const;

  KVCacheManagerConfig config_;
  KVCacheCoordinator coordinator_;
  PrefixCacheStats stats_;
};

static_assert(kvfence::KVCacheManager<KVCacheManager>);

}  // namespace kvfence::optimized
