#pragma once

/// A user's block pool: a deque of free blocks, and a list of the cached blocks. It uses only the
/// types of kvfence's contract; contract/pool/block_pool.h has the rules of each function.

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/pool/block_pool.h"

class MyPool {
 public:
  using BlockId = kvfence::BlockId;
  using Error = kvfence::ErrorCode;

  /// forgets_to_evict: a mistake, for kvfence to find. A cached block that is handed out stays
  /// findable, as in vllm#4764.
  explicit MyPool(const kvfence::BlockPoolConfig& config, bool forgets_to_evict = false)
      : config_(config), forgets_to_evict_(forgets_to_evict), blocks_(config.num_gpu_blocks) {
    for (BlockId block = 1; block < config.num_gpu_blocks; ++block) free_.push_back(block);
  }

  bool get_cached_block(kvfence::BlockHashView hash, std::span<const kvfence::GroupId> groups,
                        std::span<BlockId> out) const {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::string key = kvfence::make_block_hash_with_group_id(hash, groups[i]);
      const auto found = std::find_if(cached_.begin(), cached_.end(),
                                      [&](BlockId b) { return blocks_[b].key == key; });
      if (found == cached_.end()) return false;
      out[i] = *found;
    }
    return true;
  }

  Error get_new_blocks(std::span<BlockId> out) {
    if (out.size() > free_.size()) return Error::kNoFreeBlocks;
    for (BlockId& block : out) {
      block = free_.front();
      free_.pop_front();
      if (!forgets_to_evict_) evict(block);
      blocks_[block].users = 1;
    }
    return Error::kNone;
  }

  Error touch(std::span<const BlockId> blocks) {
    if (!all_known(blocks)) return Error::kUnknownBlock;
    for (BlockId block : blocks) {
      if (block == kvfence::kNullBlockId) continue;
      if (blocks_[block].users++ == 0) std::erase(free_, block);
    }
    return Error::kNone;
  }

  Error cache_full_blocks(const kvfence::CacheFullBlocksArgs& args) {
    if (args.block_mask && !config_.rules.cache_full_blocks_mask) return Error::kNotInProfile;
    if (args.num_cached_blocks >= args.num_full_blocks) return Error::kNone;
    if (!config_.enable_caching) return Error::kCachingDisabled;
    const std::uint32_t size = args.block_size;
    if (size == 0 || size % config_.hash.hash_block_size != 0 || size > config_.max_block_size) {
      return Error::kBadBlockSize;
    }
    if (args.num_full_blocks > args.blocks.size()) return Error::kBadRange;
    const std::size_t count = args.num_full_blocks - args.num_cached_blocks;
    if (args.block_mask && args.block_mask->size() != count) return Error::kBadMask;
    const auto hashes = args.request.block_hashes(size);
    if (args.num_full_blocks > hashes.size()) return Error::kMissingHash;
    if (!all_known(args.blocks.subspan(args.num_cached_blocks, count))) return Error::kUnknownBlock;

    std::vector<std::pair<BlockId, std::string>> fresh;
    for (std::size_t i = args.num_cached_blocks; i < args.num_full_blocks; ++i) {
      const BlockId block = args.blocks[i];
      if (block == kvfence::kNullBlockId) continue;
      if (args.block_mask && (*args.block_mask)[i - args.num_cached_blocks] == 0) continue;
      const bool is_twice = std::any_of(fresh.begin(), fresh.end(),
                                        [&](const auto& one) { return one.first == block; });
      if (is_twice || !blocks_[block].key.empty()) return Error::kAlreadyHashed;
      fresh.emplace_back(block,
                         kvfence::make_block_hash_with_group_id(hashes[i], args.kv_cache_group_id));
    }
    for (auto& [block, key] : fresh) {
      blocks_[block].key = std::move(key);
      cached_.push_back(block);
    }
    return Error::kNone;
  }

  Error free_blocks(std::span<const BlockId> blocks, kvfence::FreeTo to) {
    if (to == kvfence::FreeTo::kHead && !config_.rules.free_blocks_prepend)
      return Error::kNotInProfile;
    if (!all_known(blocks)) return Error::kUnknownBlock;
    for (BlockId block : blocks) {
      const auto times =
          static_cast<std::uint32_t>(std::count(blocks.begin(), blocks.end(), block));
      if (block == kvfence::kNullBlockId) continue;
      if (times > blocks_[block].users || (times > 1 && times == blocks_[block].users))
        return Error::kDoubleFree;
    }
    std::vector<BlockId> freed;
    for (BlockId block : blocks) {
      if (block != kvfence::kNullBlockId && --blocks_[block].users == 0) freed.push_back(block);
    }
    free_.insert(to == kvfence::FreeTo::kHead ? free_.begin() : free_.end(), freed.begin(),
                 freed.end());
    return Error::kNone;
  }

  Error evict_blocks(std::span<const BlockId> blocks) {
    if (!all_known(blocks)) return Error::kUnknownBlock;
    for (BlockId block : blocks) evict(block);
    return Error::kNone;
  }

  bool reset_prefix_cache() {
    if (free_.size() + 1 != blocks_.size()) return false;
    while (!cached_.empty()) evict(cached_.back());
    return true;
  }

  /// The pool has no events: the check asks for enable_kv_cache_events=false.
  void take_events(std::vector<kvfence::KVCacheEvent>& out) { out.clear(); }

  std::uint32_t get_num_free_blocks() const { return static_cast<std::uint32_t>(free_.size()); }

  double get_usage() const {
    const std::size_t usable = blocks_.size() - 1;
    return usable == 0 ? 0 : 1.0 - static_cast<double>(free_.size()) / static_cast<double>(usable);
  }

  std::uint32_t num_cached_keys() const {
    std::vector<std::string_view> keys;
    for (BlockId block : cached_) keys.push_back(blocks_[block].key);
    std::sort(keys.begin(), keys.end());
    return static_cast<std::uint32_t>(std::unique(keys.begin(), keys.end()) - keys.begin());
  }

  kvfence::BlockCounts block_counts() const {
    kvfence::BlockCounts counts;
    for (BlockId block : free_) ++(blocks_[block].key.empty() ? counts.empty : counts.cached);
    counts.referenced = static_cast<std::uint32_t>(blocks_.size() - free_.size());
    return counts;
  }

  std::uint32_t ref_cnt(BlockId block) const { return blocks_[block].users; }
  std::string_view block_key(BlockId block) const { return blocks_[block].key; }
  void get_all_free_blocks(std::vector<BlockId>& out) const {
    out.assign(free_.begin(), free_.end());
  }
  const kvfence::BlockPoolConfig& config() const { return config_; }

 private:
  struct Block {
    std::uint32_t users = 0;
    std::string key;  ///< empty: not cached
  };

  bool all_known(std::span<const BlockId> blocks) const {
    return std::all_of(blocks.begin(), blocks.end(),
                       [&](BlockId block) { return block < blocks_.size(); });
  }

  void evict(BlockId block) {
    std::erase(cached_, block);
    blocks_[block].key.clear();
  }

  kvfence::BlockPoolConfig config_;
  bool forgets_to_evict_;
  std::vector<Block> blocks_;    ///< by id; the first is the null block
  std::deque<BlockId> free_;     ///< in the order in which they are handed out
  std::vector<BlockId> cached_;  ///< those with a key, oldest first
};

static_assert(kvfence::BlockPool<MyPool>);
