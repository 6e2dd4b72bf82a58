#pragma once

/// The block pool: the executable specification. Each function checks everything first and then
/// acts, so that a refusal changes nothing. The rules of each function, and its errors in order,
/// are in contract/pool/block_pool.h.
/// Source: vLLM v0.19.0 and v0.23.0 v1/core/block_pool.py BlockPool.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/pool/block_pool.h"
#include "reference/pool/block_hash_to_block_map.h"

namespace kvfence::reference {

class BlockPool {
 public:
  /// Requires: num_gpu_blocks in 1 .. limits::kBlocksMax; max_block_size a positive multiple of
  /// hash_block_size
  explicit BlockPool(const BlockPoolConfig& config);

  /// Requires: out.size() == group_ids.size()
  bool get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                        std::span<BlockId> out) const;
  ErrorCode get_new_blocks(std::span<BlockId> out);
  ErrorCode touch(std::span<const BlockId> blocks);
  ErrorCode cache_full_blocks(const CacheFullBlocksArgs& args);
  ErrorCode free_blocks(std::span<const BlockId> blocks, FreeTo to);
  ErrorCode evict_blocks(std::span<const BlockId> blocks);
  bool reset_prefix_cache();
  void take_events(std::vector<KVCacheEvent>& out);

  /// Takes num_blocks off the head of the free queue permanently: their ref_cnt stays 0 and they
  /// are never freed. A group with a sink does so at construction; no operation of the block_pool
  /// target. Errors: kNoFreeBlocks
  ErrorCode take_sink_blocks(std::uint32_t num_blocks);

  /// For the pool of a simple CPU offload connector; no operations of the block_pool target. The
  /// first finds some block of a packed key, the second gives a block a key, which makes it
  /// findable.
  std::optional<BlockId> find_key(std::string_view key) const;
  /// Requires: a held block without a key; no events, which cannot express it.
  void set_key(BlockId block, std::string_view key);

  std::uint32_t get_num_free_blocks() const;
  double get_usage() const;
  std::uint32_t num_cached_keys() const;
  BlockCounts block_counts() const;

  /// Requires: block < num_gpu_blocks
  std::uint32_t ref_cnt(BlockId block) const;
  /// Requires: block < num_gpu_blocks. The view holds until the next operation.
  std::string_view block_key(BlockId block) const;

  void get_all_free_blocks(std::vector<BlockId>& out) const;
  const BlockPoolConfig& config() const { return config_; }

  /// Takes in the whole state in canonical form: what decides later answers, not the history that
  /// led to it. The configuration stays out: states of one are compared.
  void add_to(StateHash& hash) const;

 private:
  bool all_known(std::span<const BlockId> blocks) const;
  bool has_hash(BlockId block) const { return !cached_block_hash_to_block_.key_of(block).empty(); }
  ErrorCode check_cache_full_blocks(const CacheFullBlocksArgs& args) const;
  /// What a call of cache_full_blocks reports. Requires: the call was checked.
  BlockStored block_stored(const CacheFullBlocksArgs& args) const;
  void maybe_evict_cached_block(BlockId block);

  BlockPoolConfig config_;
  std::vector<std::uint32_t> ref_cnts_;    ///< by id; not maintained for the null block: it stays 0
  std::vector<BlockId> free_block_queue_;  ///< head first: in the order of eviction
  BlockHashToBlockMap cached_block_hash_to_block_;
  std::vector<KVCacheEvent> kv_event_queue_;  ///< oldest first
};

}  // namespace kvfence::reference

static_assert(kvfence::BlockPool<kvfence::reference::BlockPool>);
