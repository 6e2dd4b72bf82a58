#pragma once

/// The groups of a manager over one pool: every operation goes through them in group order, and
/// lookups are brought to one length.
///
/// Which algorithm a lookup uses follows from the configuration: none without caching, the group's
/// own with one group (unitary), a fixed point with several (hybrid). Source: vLLM v0.19.0 and
/// v0.23.0 v1/core/kv_cache_coordinator.py.

#include <cstdint>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "reference/kv_cache/single_type_kv_cache_manager.h"
#include "reference/pool/block_pool.h"

namespace kvfence::reference {

class KVCacheCoordinator {
 public:
  /// Requires: a configuration that check_config accepts.
  explicit KVCacheCoordinator(const KVCacheManagerConfig& config);

  /// The longest prefix of at most max_length tokens that every group has; of the tokens from
  /// first_token on, as if the request began there. Requires: a multiple of scheduler_block_size.
  ComputedBlocks find_longest_cache_hit(const Request& request, std::size_t max_length,
                                        std::size_t first_token = 0) const;

  std::int64_t get_num_blocks_to_allocate(const Allocation& allocation) const;
  std::int64_t num_blocks_taken(const Allocation& allocation) const;
  bool table_shrinks(const Allocation& allocation) const;

  /// Returns what each table gained after hits and external blocks. Requires: num_blocks_taken are
  /// free.
  BlocksByGroup allocate(const Allocation& allocation);

  void cache_blocks(const KVRequest& request, std::size_t num_computed_tokens);

  /// Whether every group has blocks for that many tokens of the request.
  bool has_blocks_for(RequestIndex request, std::size_t num_tokens) const;

  void free(RequestIndex request);
  void remove_skipped_blocks(RequestIndex request, std::size_t total_computed_tokens);
  void get_num_common_prefix_blocks(RequestIndex request, std::vector<std::uint32_t>& out) const;
  void get_blocks(RequestIndex request, BlocksByGroup& out) const;
  void take_new_block_ids(std::vector<BlockId>& out);
  void new_step_starts();

  BlockPool& block_pool() { return pool_; }
  const BlockPool& block_pool() const { return pool_; }
  const KVCacheManagerConfig& config() const { return config_; }

  /// Takes in the whole state.
  void add_to(StateHash& hash) const { hash.add_all(pool_, managers_); }

 private:
  GroupId num_groups() const { return static_cast<GroupId>(managers_.size()); }
  void verify_and_split_kv_cache_groups();

  ComputedBlocks find_unitary(const Request& request, std::size_t max_length,
                              std::size_t first_token) const;
  ComputedBlocks find_hybrid(const Request& request, std::size_t max_length,
                             std::size_t first_token) const;

  KVCacheManagerConfig config_;
  BlockPool pool_;
  std::vector<Cloned<SingleTypeKVCacheManager>> managers_;  ///< by group
  /// Groups of equal specs, which are looked up together.
  std::vector<std::vector<GroupId>> spec_groups_;
};

}  // namespace kvfence::reference
