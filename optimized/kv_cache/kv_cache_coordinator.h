#pragma once

/// KVCacheCoordinator: the pool, one manager per group, and the work on several groups: the prefix
/// hit that all of them share.
///
/// Upstream has three coordinators, and chooses by enable_caching and the number of groups. Every
/// fan-out runs in group order. Source: vLLM v0.19.0 and v0.23.0 v1/core/kv_cache_coordinator.py.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/kv_cache/single_type_kv_cache_manager.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {

class KVCacheCoordinator {
 public:
  /// Requires: a valid config, of at most 64 different specs.
  explicit KVCacheCoordinator(const KVCacheManagerConfig& config);

  BlockPool& block_pool() { return pool_; }
  const BlockPool& block_pool() const { return pool_; }
  std::span<const SingleTypeKVCacheManager> groups() const { return groups_; }

  bool is_allocated(RequestIndex request) const { return groups_.front().is_allocated(request); }

  /// Overwrites blocks with the longest hit of at most max_length tokens; the result is its length
  /// in tokens. The request is looked at as if it began at first_token, a multiple of
  /// scheduler_block_size. Requires: caching.
  std::uint32_t find_longest_cache_hit(const Request& request, std::uint32_t max_length,
                                       BlocksByGroup& blocks, std::uint32_t first_token = 0) const;

  /// Sums over the groups. `hit` is null for none.
  std::int64_t get_num_blocks_to_allocate(const SlotDemand& demand, const ComputedBlocks* hit,
                                          bool apply_admission_cap) const;
  std::int64_t num_blocks_taken(const SlotDemand& demand, const ComputedBlocks* hit);

  /// Whether the table of some group would have to shrink.
  bool table_shrinks(const SlotDemand& demand);

  /// Touches hits and takes external blocks: of all groups, or, without
  /// Rules::external_blocks_after_hits, of one group after the other, so that a group may evict
  /// what a later one has hit.
  void allocate_new_computed_blocks(const SlotDemand& demand, const ComputedBlocks* hit);
  void allocate_new_blocks(const SlotDemand& demand, BlocksByGroup& out);

  /// Whether every group has all blocks that the tokens fill.
  bool has_full_blocks(RequestIndex request, std::uint32_t num_computed_tokens) const;
  void cache_blocks(const KVRequest& request, std::uint32_t num_computed_tokens);
  void free(RequestIndex request);
  void remove_skipped_blocks(RequestIndex request, std::int64_t num_computed_tokens);
  void get_num_common_prefix_blocks(RequestIndex request, std::vector<std::uint32_t>& out) const;
  void take_new_block_ids(std::vector<std::uint32_t>& out);
  void new_step_starts();

  /// Adds the whole state.
  void add_to(StateHash& hash) const { hash.add_all(pool_, groups_); }

 private:
  /// Groups of one spec, which are looked up together.
  struct SpecGroup {
    KVCacheSpec spec;
    std::vector<GroupId> group_ids;
    bool use_eagle = false;
  };

  bool is_hybrid() const { return enable_caching_ && groups_.size() > 1; }
  std::uint32_t find(const SpecGroup& spec_group, const Request& request, std::uint32_t first_token,
                     std::uint32_t max_length, bool drop_eagle_block, BlocksByGroup& blocks) const;
  std::uint32_t num_tokens_to_cache(const SingleTypeKVCacheManager& group,
                                    std::uint32_t num_computed_tokens) const;

  bool enable_caching_;
  bool eagle_by_group_;
  bool external_blocks_after_hits_;
  std::uint32_t scheduler_block_size_;  ///< tokens
  BlockPool pool_;
  std::vector<SingleTypeKVCacheManager> groups_;
  std::vector<SpecGroup> spec_groups_;  ///< full attention first
};

}  // namespace kvfence::optimized
