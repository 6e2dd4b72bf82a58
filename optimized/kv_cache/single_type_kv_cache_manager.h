#pragma once

/// SingleTypeKVCacheManager: one KV-cache group, with its block table and the request state of its
/// kind of attention. One class for all kinds, since they differ in a few numbers and two branches
/// for Mamba.
///
/// Each call gets the pool as an argument, so that a manager is a value. Source: vLLM v0.19.0 and
/// v0.23.0 v1/core/single_type_kv_cache_manager.py.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "optimized/base/key_set.h"
#include "optimized/kv_cache/block_table.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {

/// The demand of one allocation on every group. Counts are signed and wide: a Mamba group may need
/// fewer blocks than it gets, and callers' numbers are added before they are compared.
struct SlotDemand {
  RequestIndex request = 0;
  std::int64_t num_tokens = 0;             ///< that need a slot, computed and lookahead included
  std::int64_t num_tokens_main_model = 0;  ///< num_tokens without lookahead
  std::int64_t num_local_computed_tokens = 0;
  std::int64_t num_external_computed_tokens = 0;
  std::int64_t num_encoder_tokens = 0;  ///< cross attention counts these instead
  /// A hit in some group, or external tokens: allocate_new_computed_blocks must be called.
  bool has_computed_blocks = false;

  std::int64_t num_computed_tokens() const {
    return num_local_computed_tokens + num_external_computed_tokens;
  }
};

class SingleTypeKVCacheManager {
 public:
  /// Takes the sink's blocks out of the pool. use_eagle: some group of the same spec drops a block
  /// for draft layers. Requires: a valid config.
  SingleTypeKVCacheManager(const KVCacheManagerConfig& config, GroupId group, bool use_eagle,
                           BlockPool& pool);

  const KVCacheSpec& spec() const { return spec_; }
  bool use_eagle() const { return use_eagle_; }
  bool is_allocated(RequestIndex request) const { return table_.find(request) != nullptr; }

  /// The blocks of a request; empty unless it is allocated.
  std::span<const BlockId> blocks(RequestIndex request) const {
    const RequestBlocks* const row = table_.find(request);
    return row ? std::span<const BlockId>(row->blocks) : std::span<const BlockId>();
  }

  /// Upstream's estimate of the blocks that the demand takes out of the free queue, which decides
  /// admission; may be negative. Cost: O(hit).
  std::int64_t get_num_blocks_to_allocate(const BlockPool& pool, const SlotDemand& demand,
                                          std::span<const BlockId> hit,
                                          bool apply_admission_cap) const;

  /// The most blocks that the demand really takes. Differs from the estimate where upstream admits
  /// the request and then raises in get_new_blocks: Mamba align with external tokens, and computed
  /// tokens that the table does not hold. Cost: O(hit).
  std::int64_t num_blocks_taken(const BlockPool& pool, const SlotDemand& demand,
                                std::span<const BlockId> hit);

  /// A lower bound of the tokens, computed and new, up to which a running request with that many
  /// computed takes, caches and drops no block of this group.
  std::int64_t num_settled_tokens(RequestIndex request, std::int64_t num_computed_tokens,
                                  std::int64_t num_lookahead_tokens) const;

  /// Whether allocate_new_blocks would have to shorten the table; Mamba align.
  bool table_shrinks(const SlotDemand& demand);

  /// The two steps of upstream's allocate_new_computed_blocks: touches the kept blocks of the hit,
  /// and takes blocks for external tokens. Does nothing for a running request.
  void touch_computed_blocks(BlockPool& pool, const SlotDemand& demand,
                             std::span<const BlockId> hit);
  void take_external_blocks(BlockPool& pool, const SlotDemand& demand);

  /// Overwrites out with the new end of the table. Cost: O(new blocks).
  void allocate_new_blocks(BlockPool& pool, const SlotDemand& demand, std::vector<BlockId>& out);

  /// Whether the table has all blocks that num_tokens fill. The blocks for speculation at the end
  /// of a Mamba align table are not among them: they move on.
  bool has_full_blocks(RequestIndex request, std::uint32_t num_tokens) const {
    const std::size_t num_moving = is_mamba_align() ? spec_.num_speculative_blocks : 0;
    const std::size_t num_full_blocks = num_tokens / spec_.block_size;
    return num_full_blocks == 0 || num_full_blocks + num_moving <= blocks(request).size();
  }

  /// Makes the full blocks of num_tokens findable. Requires: has_full_blocks, or none is full.
  /// Cost: O(blocks since the last call).
  void cache_blocks(BlockPool& pool, const KVRequest& request, std::uint32_t num_tokens);

  /// Cost: O(blocks that are not null) but for Mamba align, O(table).
  void free(BlockPool& pool, RequestIndex request);

  /// Cost: O(blocks removed).
  void remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                             std::int64_t num_computed_tokens);

  /// Requires: the request is allocated. Cost: O(result).
  std::uint32_t get_num_common_prefix_blocks(const BlockPool& pool, RequestIndex request) const;

  /// Appends the ids noted since the last call.
  void take_new_block_ids(std::vector<std::uint32_t>& out);

  void new_step_starts() { cached_blocks_this_step_.clear(); }

  /// Adds the whole state, except for the storage of single calls.
  void add_to(StateHash& hash) const {
    hash.add_all(table_, new_block_ids_, cached_blocks_this_step_);
  }

 private:
  /// The layout of a new request's computed tokens in its table: null blocks, then the rest of the
  /// hit, then blocks for external tokens.
  struct ComputedLayout {
    std::int64_t num_skipped_blocks = 0;
    std::int64_t num_local_blocks = 0;  ///< with the skipped ones
    std::int64_t num_external_blocks = 0;
  };

  bool is(KVCacheSpecKind kind) const { return spec_.kind == kind; }
  bool is_mamba_align() const { return is(KVCacheSpecKind::kMamba) && spec_.mamba_align; }

  std::int64_t cdiv(std::int64_t num_tokens) const {
    return (num_tokens + spec_.block_size - 1) / spec_.block_size;
  }
  std::int64_t num_required_blocks(const SlotDemand& demand) const;
  std::int64_t num_skipped_tokens(std::int64_t num_computed_tokens) const;
  std::int64_t num_evictable_blocks(const BlockPool& pool, std::span<const BlockId> hit) const;
  ComputedLayout computed_layout(const SlotDemand& demand, std::size_t num_hit_blocks) const;
  std::int64_t num_new_blocks(const RequestBlocks& row, const SlotDemand& demand,
                              std::int64_t table_size) const;
  void append_new_blocks(BlockPool& pool, RequestBlocks& row, std::int64_t num_blocks);
  void extend_mamba_align(BlockPool& pool, RequestBlocks& row, const SlotDemand& demand);
  std::optional<std::span<const std::uint8_t>> reachable_block_mask(std::uint32_t start_block,
                                                                    std::uint32_t end_block,
                                                                    const KVRequest& request);
  void collect_freed(const BlockPool& pool, BlockId block, bool unhashed_first);
  void free_collected(BlockPool& pool);

  KVCacheSpec spec_;
  GroupId group_;
  Rules rules_;
  bool enable_caching_;
  bool use_eagle_;
  std::uint32_t scheduler_block_size_;  ///< tokens
  std::optional<std::uint32_t> retention_interval_;
  std::optional<std::int64_t> max_admission_blocks_;
  BlockTable table_;
  std::vector<std::uint32_t> new_block_ids_;
  KeySet cached_blocks_this_step_;  ///< Mamba

  // Storage of single calls, kept for the next one.
  std::vector<std::uint8_t> mask_;
  std::vector<BlockId> freed_;
  std::vector<BlockId> freed_unhashed_;
};

}  // namespace kvfence::optimized
