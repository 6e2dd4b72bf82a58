#pragma once

/// The block tables of one group, whatever its kind: what every kind does alike, and the questions
/// that each kind answers its own way (full_attention_manager.cpp and its neighbours).
///
/// A manager owns no blocks: the pool is handed to each function that needs it, so that a manager
/// is a value. Refusals are looked for by KVCacheManager before any of these functions runs.
/// Source: vLLM v0.19.0 and v0.23.0 v1/core/single_type_kv_cache_manager.py.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/cloned.h"
#include "contract/core/state_digest.h"
#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/block_hash.h"
#include "reference/pool/block_pool.h"

namespace kvfence::reference {

/// One call of allocate_slots, as every group gets it. Tokens count from the start of the
/// request.
struct Allocation {
  RequestIndex request = 0;
  const BlocksByGroup& new_computed_blocks;      ///< the hit; one list per group
  std::size_t num_tokens = 0;                    ///< that need a slot
  std::size_t num_tokens_main_model = 0;         ///< the same without lookahead
  std::size_t num_encoder_tokens = 0;            ///< that need a slot in cross attention
  std::size_t total_computed_tokens = 0;         ///< local and external ones
  std::size_t num_external_computed_tokens = 0;  ///< brought by a connector
  bool has_computed_blocks = false;              ///< a hit of any group, or external tokens
  bool apply_admission_cap = false;
};

/// One lookup of the prefix cache, for groups of equal specs together.
struct Lookup {
  BlockHashListView block_hashes;  ///< at the groups' block size
  std::size_t max_length = 0;      ///< tokens
  std::span<const GroupId> group_ids;
  bool drop_eagle_block = false;
  std::size_t alignment_tokens = 0;  ///< the length found is a multiple of it
};

/// Quotient, rounded up.
inline std::size_t cdiv(std::size_t dividend, std::size_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// a - b, or 0 where that is negative.
inline std::size_t minus_or_0(std::size_t a, std::size_t b) { return a > b ? a - b : 0; }

class SingleTypeKVCacheManager {
 public:
  /// Requires: a configuration that check_config accepts; group < config.groups.size()
  SingleTypeKVCacheManager(const KVCacheManagerConfig& config, GroupId group);
  virtual ~SingleTypeKVCacheManager() = default;
  virtual std::unique_ptr<SingleTypeKVCacheManager> clone() const = 0;

  /// Blocks that an allocation is expected to take, hits in the free queue included. May be
  /// negative (Mamba align), and less than what is then taken: num_blocks_taken.
  virtual std::int64_t get_num_blocks_to_allocate(const BlockPool& pool,
                                                  const Allocation& allocation) const;

  /// Blocks that the two functions below take out of the free queue.
  std::int64_t num_blocks_taken(const BlockPool& pool, const Allocation& allocation) const;

  /// Touches the hit. Returns how many blocks the external tokens need.
  std::size_t add_hit(BlockPool& pool, const Allocation& allocation);
  void add_external_blocks(BlockPool& pool, const Allocation& allocation, std::size_t num_blocks);

  /// Takes blocks for the tokens still without a slot. Returns what the table gained.
  virtual std::vector<BlockId> allocate_new_blocks(BlockPool& pool, const Allocation& allocation);

  /// Whether upstream refuses the allocation because the table is longer than it needs.
  virtual bool table_shrinks(const Allocation& allocation) const;

  /// Makes the full blocks of the first num_tokens findable.
  virtual void cache_blocks(BlockPool& pool, const KVRequest& request, std::size_t num_tokens);

  /// Blocks of the request that may be full of its tokens.
  virtual std::size_t num_token_blocks(RequestIndex request) const;

  virtual void free(BlockPool& pool, RequestIndex request);
  virtual void remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                                     std::size_t total_computed_tokens);
  virtual std::uint32_t get_num_common_prefix_blocks(const BlockPool& pool,
                                                     RequestIndex request) const;
  virtual void new_step_starts();

  /// One list per group of the lookup; as long as the prefix that they all have.
  virtual BlocksByGroup find_longest_cache_hit(const BlockPool& pool,
                                               const Lookup& lookup) const = 0;

  /// Empty for a request without a table.
  std::span<const BlockId> blocks(RequestIndex request) const;

  /// Appends the blocks taken since the last call.
  void take_new_block_ids(std::vector<BlockId>& out);

  /// Takes in the whole state.
  virtual void add_to(StateHash& hash) const;

  const KVCacheSpec& spec() const { return spec_; }

  /// Whether a group of this spec has draft layers.
  bool use_eagle() const { return use_eagle_; }

 protected:
  /// How a table starts that has a hit or external tokens: null blocks, then the hit, then new
  /// blocks.
  struct ComputedBlocksPlan {
    std::size_t num_skipped_blocks = 0;
    std::span<const BlockId> hit;  ///< without the blocks skipped
    std::size_t num_external_blocks = 0;
    std::size_t num_blocks() const { return num_skipped_blocks + hit.size() + num_external_blocks; }
  };
  /// Nothing where the table is left as it is.
  virtual std::optional<ComputedBlocksPlan> plan_computed_blocks(
      const Allocation& allocation) const;

  /// Blocks that a table needs for an allocation.
  virtual std::size_t num_required_blocks(const Allocation& allocation) const;

  /// Blocks to be taken for a table that has num_blocks already.
  virtual std::size_t num_new_blocks(const Allocation& allocation, std::size_t num_blocks) const;

  /// Leading tokens that attention does not read once num_computed_tokens are there.
  virtual std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const;

  /// Most blocks that a request of this kind holds at a time, if that is bounded.
  virtual std::optional<std::size_t> max_admission_blocks_per_request() const;

  /// For the blocks [start_block, end_block): whether a later lookup can use them. None: all.
  virtual std::optional<std::vector<std::uint8_t>> reachable_block_mask(
      std::size_t start_block, std::size_t end_block, std::size_t num_prompt_tokens) const;

  std::size_t num_cached_blocks(RequestIndex request) const;
  std::span<const BlockId> hit_of(const Allocation& allocation) const;
  /// Blocks of the list that wait in the free queue: a touch takes them out of it.
  static std::size_t get_num_evictable_blocks(const BlockPool& pool,
                                              std::span<const BlockId> blocks);
  /// Appends num_blocks new blocks to a table. Requires: as many are free.
  static std::vector<BlockId> append_new_blocks(BlockPool& pool, std::size_t num_blocks,
                                                std::vector<BlockId>& table);
  /// To the tail of the queue; unhashed_first: then those without a hash to its head. Each in the
  /// given order.
  static void free_blocks(BlockPool& pool, std::span<const BlockId> blocks, bool unhashed_first);
  void free_table(BlockPool& pool, RequestIndex request, bool unhashed_first);

  KVCacheManagerConfig config_;
  KVCacheSpec spec_;
  GroupId group_;
  bool use_eagle_;
  std::size_t block_size_;  ///< tokens
  std::map<RequestIndex, std::vector<BlockId>> req_to_blocks_;
  /// Leading blocks that are cached or need not be. A request with an entry had its hit: the next
  /// allocation only counts blocks.
  std::map<RequestIndex, std::size_t> num_cached_block_;
  std::vector<BlockId> new_block_ids_;
};

/// One of each kind. All require: a configuration that check_config accepts, with a group of that
/// kind there; with a sink: sink_len / block_size blocks are free.
using MakeManager = std::unique_ptr<SingleTypeKVCacheManager>(const KVCacheManagerConfig& config,
                                                              GroupId group);
MakeManager make_full_attention_manager;
MakeManager make_sliding_window_manager;
MakeManager make_chunked_local_attention_manager;
MakeManager make_mamba_manager;
MakeManager make_cross_attention_manager;
std::unique_ptr<SingleTypeKVCacheManager> make_sink_full_attention_manager(
    const KVCacheManagerConfig& config, GroupId group, BlockPool& pool);

/// One block per group for the hash at index, or nothing.
std::optional<std::vector<BlockId>> get_cached_block(const BlockPool& pool, const Lookup& lookup,
                                                     std::size_t index);

/// Drops last blocks until the length is a multiple of the alignment.
void align(BlocksByGroup& computed_blocks, std::size_t block_size, std::size_t alignment_tokens);

}  // namespace kvfence::reference
