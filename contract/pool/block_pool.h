#pragma once

/// The block pool: its configuration, its operations, and the C++20 concepts that an implementation
/// satisfies.
///
/// This file states the rules of each operation once; `reference/` and `optimized/` implement them
/// independently. Source, unless stated otherwise: vLLM v0.19.0 v1/core/block_pool.py and
/// kv_cache_utils.py.
///
/// Common to all operations:
///   - A refused operation changes nothing. Error codes are checked in the order listed
///     (contract/core/status.h).
///   - The null block (id 0) may appear in any list of blocks and is skipped, unless stated
///     otherwise.
///   - A pool is a value: copyable, no clocks, no globals, no threads.

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/rules.h"
#include "contract/core/status.h"
#include "contract/core/table_secret.h"
#include "contract/core/types.h"
#include "contract/pool/block_hash.h"
#include "contract/pool/kv_events.h"
#include "contract/pool/request.h"

namespace kvfence {

struct BlockPoolConfig {
  std::uint32_t num_gpu_blocks = 8;  ///< with the null block; at least 1
  bool enable_caching = true;
  bool enable_kv_cache_events = false;
  HashConfig hash;
  /// Largest block size (tokens) that any group uses; a multiple of hash.hash_block_size. Bounds
  /// the length of a key.
  std::uint32_t max_block_size = 4;
  Profile profile = Profile::kV019;
  Rules rules = rules_of(Profile::kV019);
  TableSecret table_secret = {};

  /// Bytes of the longest packed key.
  std::size_t key_bytes_max() const {
    return hash_bytes(hash.algorithm) * (max_block_size / hash.hash_block_size) + kGroupIdBytes;
  }

  friend bool operator==(const BlockPoolConfig&, const BlockPoolConfig&) = default;
};

/// The three numbers that people should read instead of `free`: empty + cached + referenced =
/// num_gpu_blocks, and empty + cached = get_num_free_blocks().
struct BlockCounts {
  std::uint32_t empty = 0;       ///< in the free queue, no hash
  std::uint32_t cached = 0;      ///< in the free queue, still findable: evictable content
  std::uint32_t referenced = 0;  ///< not in the free queue; the null block counts here
  friend bool operator==(const BlockCounts&, const BlockCounts&) = default;
};

/// Where freed blocks join the free queue. `kHead` needs Rules::free_blocks_prepend.
enum class FreeTo : bool { kTail = false, kHead = true };

/// The arguments of cache_full_blocks.
struct CacheFullBlocksArgs {
  const Request& request;
  std::span<const BlockId> blocks;  ///< all blocks of the request in this group, from its start
  std::uint32_t num_cached_blocks = 0;
  std::uint32_t num_full_blocks = 0;
  std::uint32_t block_size = 0;  ///< tokens
  GroupId kv_cache_group_id = 0;
  /// One entry per block of [num_cached_blocks, num_full_blocks); false passes the block over.
  std::optional<std::span<const std::uint8_t>> block_mask;
};

/// BlockPool: blocks, free queue, prefix cache and event log. Costs are those of `optimized/`;
/// n is the length of the list that is passed.
///
/// get_cached_block(hash, group_ids, out) -> bool
///     Looks up one block per group and writes them to `out` in the order of `group_ids` (`out` has
///     the same length). Returns false if any group misses; `out` is then unspecified. If several
///     blocks have the key, returns the one that was inserted first. Changes nothing. O(n).
///
/// get_new_blocks(out)
///     Takes out.size() blocks from the head of the free queue, in order. With caching on, a block
///     that has a hash is evicted: its key leaves the map, its hash is cleared, and one
///     BlockRemoved is logged. Sets ref_cnt to 1. O(n).
///     Errors: kNoFreeBlocks
///
/// touch(blocks)
///     For each block in order: removes it from the free queue if its ref_cnt is 0, and adds one to
///     its ref_cnt. A block that is listed twice gains two references. O(n).
///     Errors: kUnknownBlock
///
/// cache_full_blocks(args)
///     Does nothing, and logs nothing, if num_cached_blocks >= num_full_blocks. Otherwise gives
///     each block of the range, in ascending order, its key (the request's hash at this block, and
///     the group) and inserts it into the map; skips null blocks and masked-out blocks. With events
///     on, logs exactly one BlockStored (kv_events.h). Does not look at blocks outside the range.
///     Errors:
///       kNotInProfile     a mask without Rules::cache_full_blocks_mask, even for an empty range
///       kCachingDisabled  upstream caches anyway, and later hands out the block with its hash
///       kBadBlockSize     0, not a multiple of hash_block_size, or above max_block_size
///       kBadRange         num_full_blocks exceeds the list of blocks
///       kBadMask          the mask is not as long as the range
///       kMissingHash      num_full_blocks exceeds the request's hashes at this block size
///       kUnknownBlock     in the range, masked out or not
///       kAlreadyHashed    a block that is not skipped has a hash, or is listed twice in the range
///
/// free_blocks(blocks, to)
///     First subtracts one from every ref_cnt. Then appends the blocks that reached 0 to the free
///     queue in the order given; or, with kHead, puts them in front as a whole, so that the first
///     of them is the next block to be handed out. Keeps hashes. O(n).
///     Errors:
///       kNotInProfile     kHead without Rules::free_blocks_prepend
///       kUnknownBlock
///       kDoubleFree       a ref_cnt would fall below 0, or a block that is listed more than once
///                         would reach 0: upstream queues such a block twice, silently
///
/// evict_blocks(blocks)
///     For each block in the order given: if it has a hash, clears it and logs one BlockRemoved.
///     Keeps ref_cnt and the position in the queue. Upstream iterates over a set here, so its order
///     is undefined; kvfence uses the caller's. O(n).
///     Errors: kUnknownBlock
///
/// reset_prefix_cache() -> bool
///     If only the null block is referenced: empties the map, clears every hash, logs
///     AllBlocksCleared, and keeps the order of the free queue. Otherwise returns false and changes
///     nothing.
///
/// take_events(out)
///     Overwrites `out` with the events since the last call, oldest first.
///
/// get_usage() -> double
///     1 - free / (num_gpu_blocks - 1), computed in this form in IEEE doubles; 0 if the pool has
///     only the null block.
///
/// ref_cnt(block), block_key(block), get_all_free_blocks(out), num_cached_keys(), block_counts()
///     Observers. block_key is the packed key, empty if the block has none. The ref_cnt of the null
///     block is 0.
template <class P>
concept BlockPool = std::copyable<P> && std::constructible_from<P, const BlockPoolConfig&> &&
    requires(P pool, const P& const_pool, BlockHashView hash, std::span<const GroupId> group_ids,
             std::span<BlockId> out, std::span<const BlockId> blocks, FreeTo to, BlockId block,
             const CacheFullBlocksArgs& args, std::vector<BlockId>& all,
             std::vector<KVCacheEvent>& events) {
  { const_pool.get_cached_block(hash, group_ids, out) } -> std::same_as<bool>;
  { pool.get_new_blocks(out) } -> std::same_as<ErrorCode>;
  { pool.touch(blocks) } -> std::same_as<ErrorCode>;
  { pool.cache_full_blocks(args) } -> std::same_as<ErrorCode>;
  { pool.free_blocks(blocks, to) } -> std::same_as<ErrorCode>;
  { pool.evict_blocks(blocks) } -> std::same_as<ErrorCode>;
  { pool.reset_prefix_cache() } -> std::same_as<bool>;
  { pool.take_events(events) } -> std::same_as<void>;
  { const_pool.get_num_free_blocks() } -> std::same_as<std::uint32_t>;
  { const_pool.get_usage() } -> std::same_as<double>;
  { const_pool.num_cached_keys() } -> std::same_as<std::uint32_t>;
  { const_pool.block_counts() } -> std::same_as<BlockCounts>;
  { const_pool.ref_cnt(block) } -> std::same_as<std::uint32_t>;
  { const_pool.block_key(block) } -> std::convertible_to<std::string_view>;
  { const_pool.get_all_free_blocks(all) } -> std::same_as<void>;
  { const_pool.config() } -> std::same_as<const BlockPoolConfig&>;
};

}  // namespace kvfence
