#pragma once

/// BlockPool: the pool that an engine embeds. Each operation is O(1) per block and allocates
/// nothing.
///
/// A block's state is one word beside its queue links: ref_cnt in the upper 31 bits, "carries a
/// hash" in the lowest. A block is in the free queue exactly when its ref_cnt is 0 and it is not
/// the null block. The rules of every operation are in contract/pool/block_pool.h. Not thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool.h"
#include "contract/pool/kv_events.h"
#include "optimized/pool/block_hash_to_block_map.h"
#include "optimized/pool/event_log.h"
#include "optimized/pool/free_kv_cache_block_queue.h"

namespace kvfence::optimized {

class BlockPool {
 public:
  /// Requires: 1 <= num_gpu_blocks <= kBlocksMax; max_block_size a positive multiple of
  /// hash_block_size.
  /// Cost: O(num_gpu_blocks); all allocations but those of the event log.
  explicit BlockPool(const BlockPoolConfig& config);

  bool get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                        std::span<BlockId> out) const;
  ErrorCode get_new_blocks(std::span<BlockId> out);
  ErrorCode touch(std::span<const BlockId> blocks);

  /// Allocates only inside the contract's generate_block_hash_extra_keys: with events, for a
  /// request that has any.
  ErrorCode cache_full_blocks(const CacheFullBlocksArgs& args);

  ErrorCode free_blocks(std::span<const BlockId> blocks, FreeTo to = FreeTo::kTail);
  ErrorCode evict_blocks(std::span<const BlockId> blocks);

  /// Cost: O(1) if nothing is cached, else O(num_gpu_blocks).
  bool reset_prefix_cache();

  /// Takes num_blocks from the head of the queue permanently; their ref_cnt stays 0, and they count
  /// as referenced. For the sinks of a KV-cache manager, at construction; not one of the
  /// cross-checked operations. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  /// SinkFullAttentionManager. Errors: kNoFreeBlocks
  ErrorCode take_sink_blocks(std::uint32_t num_blocks);

  // For a pool that copies fill; not among the cross-checked operations.

  /// Whether a lookup finds the packed key. Requires: caching, and a key that is not empty.
  bool has_key(std::string_view key) const {
    return map_.get_one_block(PackedKeyView(key)) != map_.kNoBlock;
  }

  /// Gives the block this packed key, so that lookups find it; no event. Requires: caching, and a
  /// key that is not empty. Errors: kUnknownBlock, kAlreadyHashed
  ErrorCode cache_block(BlockId block, std::string_view key);

  void take_events(std::vector<KVCacheEvent>& out) { events_.take(out); }

  std::uint32_t get_num_free_blocks() const { return queue_.num_free_blocks(); }
  double get_usage() const;
  std::uint32_t num_cached_keys() const { return map_.size(); }

  /// Cost: O(1), from counters.
  BlockCounts block_counts() const;

  std::uint32_t ref_cnt(BlockId block) const {
    KVFENCE_CHECK(block < config_.num_gpu_blocks, "ref_cnt of an unknown block");
    return queue_.word(block) >> kRefCntShift;
  }

  /// A view into the pool, valid until the next operation that changes it.
  std::string_view block_key(BlockId block) const {
    KVFENCE_CHECK(block < config_.num_gpu_blocks, "block_key of an unknown block");
    return config_.enable_caching ? map_.key_of(block) : std::string_view();
  }

  /// Whether the block is in the free queue; the block after it there, or the head. Cost: O(1).
  bool is_free(BlockId block) const {
    return block < config_.num_gpu_blocks && queue_.is_queued(block);
  }
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const {
    KVFENCE_CHECK(!block || is_free(*block), "the block after one that is not free");
    return queue_.next_free_block(block);
  }

  void get_all_free_blocks(std::vector<BlockId>& out) const { queue_.get_all_free_blocks(out); }
  const BlockPoolConfig& config() const { return config_; }

  /// Adds the state in canonical form: all that decides later answers, but not history. The
  /// configuration stays out, since only states of one are compared. Cost: O(num_gpu_blocks).
  void add_to(StateHash& hash) const { hash.add_all(num_cached_blocks_, queue_, map_, events_); }

 private:
  static constexpr std::uint32_t kHashed = 1;
  static constexpr std::uint32_t kRefCntShift = 1;
  static constexpr std::uint32_t kOneRef = 1U << kRefCntShift;

  bool is_passed_over(const CacheFullBlocksArgs& args, std::size_t index) const;
  ErrorCode check_cache_full_blocks(const CacheFullBlocksArgs& args) const;
  void log_block_stored(const CacheFullBlocksArgs& args);
  void log_block_removed(std::string_view key);
  void set_hash(BlockId block, const PackedKeyView& key);
  bool unset_hash(BlockId block);
  void evict(BlockId block);
  void evict_popped(std::span<const BlockId> blocks);
  ErrorCode refuse_free(std::span<const BlockId> blocks, std::size_t num_released);
  bool queue_freed(std::span<const BlockId> blocks, FreeTo to);

  BlockPoolConfig config_;
  /// Blocks in the free queue with a hash.
  std::uint32_t num_cached_blocks_ = 0;
  FreeKVCacheBlockQueue queue_;
  BlockHashToBlockMap map_;
  EventLog events_;
};

static_assert(kvfence::BlockPool<BlockPool>);

}  // namespace kvfence::optimized
