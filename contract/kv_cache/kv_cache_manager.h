#pragma once

/// The KV-cache manager: groups of layers with different attention, a block table per request and
/// group, and one pool below them. This file states the rules of each operation once; `reference/`
/// and `optimized/` implement them independently.
///
/// Source of all of them, unless a line says otherwise: vLLM v0.19.0 v1/core/kv_cache_manager.py,
/// kv_cache_coordinator.py, single_type_kv_cache_manager.py, functions of the same names.
///
/// Common to all operations:
///   - A refused operation changes nothing, its outputs included. Codes are checked in the order
///     given (contract/core/status.h).
///   - A manager is a value: copyable, no clocks, no globals, no threads.
///   - "blocks by group" is a list of lists: a list of block ids for each group, in group order.
///     The null block stands for a place whose content is not needed.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/kv_cache/kv_cache_spec.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence {

/// Identifies a request to a manager: a small dense number that the manager's owner assigns, and
/// may reuse after free.
using RequestIndex = std::uint32_t;

struct KVCacheManagerConfig : KVCacheSettings {
  BlockPoolConfig pool;  ///< max_block_size is at least every group's block size

  /// Least common multiple of the groups' block sizes: what hits of several groups are aligned to.
  std::uint32_t scheduler_block_size() const;

  /// Blocks that requests can hold: all but the null block and those of sinks.
  std::uint32_t num_usable_blocks() const;

  /// Whether lookups of that group drop a block for the draft layers.
  bool is_eagle_group(GroupId group) const;

  friend bool operator==(const KVCacheManagerConfig&, const KVCacheManagerConfig&) = default;
};

/// Returns what is wrong with a configuration, or nothing if a manager can be built from it.
/// Refuses what upstream asserts at construction or at the first lookup: no group, or more than one
/// with caching and fewer than two distinct specs; a block size that is no multiple of
/// hash_block_size; a single group with caching whose block size is not hash_block_size; cross
/// attention with caching; chunked local attention with eagle, or with a block size other than
/// scheduler_block_size; before Rules::eagle_by_group a sliding window with eagle and such a block
/// size; a sink that is no positive multiple of its block size, or sinks that take more blocks than
/// the pool has; a retention interval without a sliding-window group, or not a multiple of
/// scheduler_block_size.
std::optional<std::string> check_config(const KVCacheManagerConfig& config);

/// Whether upstream's lookup may return more or fewer blocks per group than the hit's tokens fill.
bool hit_may_overshoot(const KVCacheManagerConfig& config);

/// The part of a request that a manager reads. Its owner keeps it up to date.
struct KVRequest {
  RequestIndex index = 0;
  const Request& request;                 ///< tokens and hashes
  std::uint32_t num_computed_tokens = 0;  ///< tokens whose KV is there, this step's excluded
  std::uint32_t num_prompt_tokens = 0;    ///< tokens
  bool skip_reading_prefix_cache = false;
  bool was_preempted = false;
};

/// A prefix hit.
struct ComputedBlocks {
  BlocksByGroup blocks;
  std::uint32_t num_tokens = 0;
};

/// Prefix-cache statistics since they were last taken; a preempted request's lookups are counted
/// apart. Source: vLLM v0.19.0 v1/metrics/stats.py PrefixCacheStats.
struct PrefixCacheStats {
  bool reset = false;
  std::uint64_t requests = 0;
  std::uint64_t queries = 0;  ///< tokens asked for
  std::uint64_t hits = 0;     ///< tokens found
  std::uint64_t preempted_requests = 0;
  std::uint64_t preempted_queries = 0;
  std::uint64_t preempted_hits = 0;
  friend bool operator==(const PrefixCacheStats&, const PrefixCacheStats&) = default;
};

struct AllocateSlotsArgs {
  const KVRequest& request;
  std::uint32_t num_new_tokens = 0;
  /// The answer of get_computed_blocks for this request, with nothing in between; null for none.
  const ComputedBlocks* hit = nullptr;
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;  ///< tokens that a connector brings
  bool delay_cache_blocks = false;
  std::uint32_t num_encoder_tokens = 0;
  bool full_sequence_must_fit = false;  ///< Rules::full_sequence_gate_in_allocate_slots
  std::uint32_t reserved_blocks = 0;    ///< Rules::full_sequence_gate_in_allocate_slots
};

/// KVCacheManager: what a scheduler calls.
///
/// A request is *allocated* from its first allocate_slots that succeeds until free.
///
/// get_computed_blocks(request, out)
///     The longest prefix of at most num_tokens - 1 tokens that every group has, by the
///     coordinator's algorithm. No blocks and 0 tokens without caching, with
///     skip_reading_prefix_cache, or for a request without tokens. Touches nothing. Counted in the
///     stats, unless caching is off or reading is skipped.
///     A second kind of full attention keeps its own, longer hit, as upstream does.
///
/// can_fit_full_sequence(request, hit, num_external_tokens, num_encoder_tokens, fits)
///     Whether the whole sequence fits into the free blocks. Changes nothing.
///     Errors:
///       kNotInProfile       with Rules::full_sequence_gate_in_allocate_slots
///       kAlreadyAllocated   as for allocate_slots
///
/// allocate_slots(args, allocated, out)
///     Slots for num_new_tokens after what is computed: num_computed_tokens, the hit, external
///     tokens. In this order: with full_sequence_must_fit, allocated is false if the whole sequence
///     does not fit; blocks that no group needs any more are freed, also if the rest fails;
///     allocated is false if the free blocks do not suffice, and nothing else has changed;
///     hit blocks are touched; external and new blocks are taken; full blocks are cached, unless
///     delay_cache_blocks. out has the new blocks, without hits and external ones; one empty list
///     per group where allocated is false.
///     A hit without a block in any group is no hit.
///     Without Rules::external_blocks_after_hits, taking external blocks for one group may evict
///     the hit of a later one, which is not touched yet: as upstream does (vllm#33775).
///     Upstream's count of the blocks needed can be too small (computed tokens without slots in a
///     window group; Mamba align): it then raises half-way. Here allocated is false.
///     Errors:
///       kNotInProfile       full_sequence_must_fit or reserved_blocks, without
///                           Rules::full_sequence_gate_in_allocate_slots
///       kNoTokens           neither new nor external tokens
///       kBeyondModelLength  computed, hit, external and new tokens are more than max_model_len
///       kAlreadyAllocated   a hit or external tokens for a request that is allocated; a hit with
///                           num_computed_tokens > 0
///       kTableShrinks       Mamba align needs fewer blocks than the request has, without
///                           Rules::mamba_align_keeps_blocks
///
/// get_num_remaining_blocks(request) -> count
///     Blocks that the request would still take for its whole sequence, min(num_tokens,
///     max_model_len) tokens, without a hit and counted as full_sequence_must_fit counts them. 0
///     without Rules::full_sequence_gate_in_allocate_slots, and where upstream's count is negative
///     (Mamba in mode align). Changes nothing.
///     Source: vLLM v0.23.0 v1/core/sched/scheduler.py _request_remaining_blocks.
///
/// free(request)
///     All blocks, group by group, the last block of each first. Nothing for a request without any.
///
/// remove_skipped_blocks(request, total_computed_tokens)
///     Frees what no group needs any more.
///
/// cache_blocks(request, num_computed_tokens)
///     Makes full blocks findable. Nothing, and no check, without caching.
///     Errors:
///       kMissingHash        num_computed_tokens are more than the request's tokens
///       kBadRange           some group has not that many blocks, the speculative ones of Mamba
///                           align not counted
///
/// evict_blocks(blocks), reset_prefix_cache(), take_events(out)
///     As the pool's. A reset is marked in the stats; with Rules::events_carry_spec, BlockStored
///     carries kind and window of its group.
///
/// get_num_common_prefix_blocks(request, out)
///     One count per group: full attention's leading blocks that every allocated request holds.
///     Errors: kNotAllocated (upstream's table would gain an entry, and later counts would be off)
///
/// get_block_ids(request, out)
///     Blocks by group; empty lists for a request without blocks.
///
/// get_unhashed_block_ids(request, out)
///     Of those the ones without a key, by group and in the table's order: what a connector has to
///     fetch, since the others hold what they should. Null blocks are padding and left out. Empty
///     lists for a request without blocks.
///     Source: vLLM v0.19.0 v1/core/kv_cache_manager.py
///     KVCacheBlocks.get_unhashed_block_ids_all_groups
///
/// take_new_block_ids(out)
///     Blocks taken by groups of kind kFullAttention since the last call, group by group.
///
/// take_prefix_cache_stats() -> PrefixCacheStats
///     Since the last call.
///
/// new_step_starts()
///     What Mamba groups cached in the step before may be hit from now on.
template <class M>
concept KVCacheManager = std::copyable<M> &&
    std::constructible_from<M, const KVCacheManagerConfig&> &&
    requires(M manager, const M& const_manager, const KVRequest& request, ComputedBlocks& hit,
             const ComputedBlocks* maybe_hit, const AllocateSlotsArgs& args, bool& flag,
             BlocksByGroup& blocks, RequestIndex index, std::uint32_t tokens,
             std::span<const BlockId> ids, std::vector<std::uint32_t>& list,
             std::vector<KVCacheEvent>& events) {
  { manager.get_computed_blocks(request, hit) } -> std::same_as<void>;
  {
    manager.can_fit_full_sequence(request, maybe_hit, tokens, tokens, flag)
    } -> std::same_as<ErrorCode>;
  { manager.allocate_slots(args, flag, blocks) } -> std::same_as<ErrorCode>;
  { const_manager.get_num_remaining_blocks(request) } -> std::same_as<std::uint32_t>;
  { manager.free(index) } -> std::same_as<void>;
  { manager.remove_skipped_blocks(index, tokens) } -> std::same_as<void>;
  { manager.cache_blocks(request, tokens) } -> std::same_as<ErrorCode>;
  { manager.evict_blocks(ids) } -> std::same_as<ErrorCode>;
  { manager.reset_prefix_cache() } -> std::same_as<bool>;
  { const_manager.get_num_common_prefix_blocks(index, list) } -> std::same_as<ErrorCode>;
  { const_manager.get_block_ids(index, blocks) } -> std::same_as<void>;
  { const_manager.get_unhashed_block_ids(index, blocks) } -> std::same_as<void>;
  { manager.take_new_block_ids(list) } -> std::same_as<void>;
  { manager.take_events(events) } -> std::same_as<void>;
  { manager.take_prefix_cache_stats() } -> std::same_as<PrefixCacheStats>;
  { manager.new_step_starts() } -> std::same_as<void>;
  { const_manager.config() } -> std::same_as<const KVCacheManagerConfig&>;
  const_manager.block_pool();
};

}  // namespace kvfence
