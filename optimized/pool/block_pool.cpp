#include "optimized/pool/block_pool.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "contract/pool/block_hash.h"
#include "contract/pool/request.h"

namespace kvfence::optimized {
namespace {

/// How many blocks go through each stage together, so that the stage's memory accesses overlap.
constexpr std::size_t kBatchBlocks = 32;

/// Insertions ahead of the current one whose lines are fetched.
constexpr std::size_t kInsertAhead = 8;

const BlockPoolConfig& checked(const BlockPoolConfig& config) {
  KVFENCE_CHECK(config.num_gpu_blocks >= 1, "a pool has at least the null block");
  KVFENCE_CHECK(config.hash.hash_block_size > 0, "hash_block_size is positive");
  KVFENCE_CHECK(
      config.max_block_size > 0 && config.max_block_size % config.hash.hash_block_size == 0,
      "max_block_size is a positive multiple of hash_block_size");
  return config;
}

}  // namespace

BlockPool::BlockPool(const BlockPoolConfig& config)
    : config_(checked(config)),
      queue_(config.num_gpu_blocks),
      map_(config.enable_caching ? config.num_gpu_blocks : 0, config.key_bytes_max(),
           config.table_secret) {
  queue_.unlink(kNullBlockId);
}

bool BlockPool::get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                                 std::span<BlockId> out) const {
  KVFENCE_CHECK(out.size() == group_ids.size(), "one block per group");
  for (std::size_t i = 0; i < group_ids.size(); ++i) {
    const BlockId block = map_.get_one_block(PackedKeyView(hash, group_ids[i]));
    if (block == map_.kNoBlock) return false;
    out[i] = block;
  }
  return true;
}

ErrorCode BlockPool::get_new_blocks(std::span<BlockId> out) {
  if (out.size() > queue_.num_free_blocks()) return ErrorCode::kNoFreeBlocks;
  for (std::size_t start = 0; start < out.size(); start += kBatchBlocks) {
    const std::span<BlockId> batch = out.subspan(start, std::min(kBatchBlocks, out.size() - start));
    std::uint32_t num_hashed = 0;
    queue_.pop_each(batch, [this, &num_hashed](BlockId block, std::uint32_t& word) {
      if ((word & kHashed) != 0) {
        map_.prefetch_entry(block);
        ++num_hashed;
      }
      word = kOneRef | (word & kHashed);
    });
    if (num_hashed > 0) {
      num_cached_blocks_ -= num_hashed;
      evict_popped(batch);
    }
  }
  return ErrorCode::kNone;
}

void BlockPool::evict_popped(std::span<const BlockId> blocks) {
  // Without a check whether the block is hashed: an extra fetch costs less than a mispredicted
  // branch.
  for (BlockId block : blocks) map_.prefetch_slot(block);
  for (BlockId block : blocks) evict(block);
}

ErrorCode BlockPool::touch(std::span<const BlockId> blocks) {
  if (has_unknown_block(blocks, config_.num_gpu_blocks)) return ErrorCode::kUnknownBlock;
  for (BlockId block : blocks) {
    if (block == kNullBlockId) continue;
    std::uint32_t& word = queue_.word(block);
    if (word < kOneRef) {
      queue_.unlink(block);
      num_cached_blocks_ -= word & kHashed;
    }
    word += kOneRef;
  }
  return ErrorCode::kNone;
}

bool BlockPool::is_passed_over(const CacheFullBlocksArgs& args, std::size_t index) const {
  if (args.blocks[index] == kNullBlockId) return true;
  return args.block_mask && (*args.block_mask)[index - args.num_cached_blocks] == 0;
}

ErrorCode BlockPool::check_cache_full_blocks(const CacheFullBlocksArgs& args) const {
  if (!config_.enable_caching) return ErrorCode::kCachingDisabled;
  if (args.block_size == 0 || args.block_size % config_.hash.hash_block_size != 0 ||
      args.block_size > config_.max_block_size) {
    return ErrorCode::kBadBlockSize;
  }
  if (args.num_full_blocks > args.blocks.size()) return ErrorCode::kBadRange;
  const std::size_t num_blocks = args.num_full_blocks - args.num_cached_blocks;
  if (args.block_mask && args.block_mask->size() != num_blocks) return ErrorCode::kBadMask;
  if (args.request.block_hashes(args.block_size).size() < args.num_full_blocks) {
    return ErrorCode::kMissingHash;
  }
  const std::span<const BlockId> range = args.blocks.subspan(args.num_cached_blocks, num_blocks);
  if (has_unknown_block(range, config_.num_gpu_blocks)) return ErrorCode::kUnknownBlock;
  return ErrorCode::kNone;
}

ErrorCode BlockPool::cache_full_blocks(const CacheFullBlocksArgs& args) {
  if (args.block_mask && !config_.rules.cache_full_blocks_mask) return ErrorCode::kNotInProfile;
  if (args.num_cached_blocks >= args.num_full_blocks) return ErrorCode::kNone;
  if (const ErrorCode refusal = check_cache_full_blocks(args); refusal != ErrorCode::kNone) {
    return refusal;
  }

  const BlockHashListView hashes = args.request.block_hashes(args.block_size);
  const auto key_of = [&hashes, &args](std::size_t index) {
    return PackedKeyView(hashes[index], args.kv_cache_group_id);
  };

  for (std::size_t i = args.num_cached_blocks; i < args.num_full_blocks; ++i) {
    if (const std::size_t ahead = i + kInsertAhead; ahead < args.num_full_blocks) {
      map_.prefetch_insert(key_of(ahead), args.blocks[ahead]);
    }
    if (is_passed_over(args, i)) continue;
    if ((queue_.word(args.blocks[i]) & kHashed) != 0) {
      // Found while inserting, so that the common case needs one pass; a block listed twice is
      // found here as well.
      while (i > args.num_cached_blocks) {
        --i;
        if (!is_passed_over(args, i)) unset_hash(args.blocks[i]);
      }
      return ErrorCode::kAlreadyHashed;
    }
    set_hash(args.blocks[i], key_of(i));
  }
  if (config_.enable_kv_cache_events) log_block_stored(args);
  return ErrorCode::kNone;
}

void BlockPool::log_block_stored(const CacheFullBlocksArgs& args) {
  const std::size_t first = args.num_cached_blocks;
  const std::size_t last = args.num_full_blocks;
  const RequestSpec& spec = args.request.spec();
  const BlockHashListView hashes = args.request.block_hashes(args.block_size);
  std::optional<BlockHashView> parent;
  if (first > 0) parent = hashes[first - 1];
  const std::optional<GroupId> group_idx = config_.rules.events_carry_group
                                               ? std::optional<GroupId>(args.kv_cache_group_id)
                                               : std::nullopt;
  events_.begin_block_stored(
      args.block_size, spec.lora, group_idx, parent,
      std::span(spec.tokens).subspan(first * args.block_size, (last - first) * args.block_size));

  const bool has_extra_keys =
      spec.lora.has_value() || spec.cache_salt.has_value() || !spec.mm_features.empty();
  std::int64_t mm_cursor = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (is_passed_over(args, i)) continue;
    ExtraKeysAndCursor extra;
    if (has_extra_keys) {
      extra = generate_block_hash_extra_keys(spec, i * args.block_size, (i + 1) * args.block_size,
                                             mm_cursor);
      mm_cursor = extra.mm_cursor;
    }
    events_.add_stored_block(hashes[i], extra.keys);
  }
}

void BlockPool::log_block_removed(std::string_view key) {
  const std::optional<GroupId> group_idx =
      config_.rules.events_carry_group ? std::optional<GroupId>(get_group_id(key)) : std::nullopt;
  events_.add_block_removed(get_block_hash(key), group_idx);
}

void BlockPool::set_hash(BlockId block, const PackedKeyView& key) {
  map_.insert(key, block);
  std::uint32_t& word = queue_.word(block);
  if (word < kOneRef) ++num_cached_blocks_;
  word |= kHashed;
}

bool BlockPool::unset_hash(BlockId block) {
  std::uint32_t& word = queue_.word(block);
  if ((word & kHashed) == 0 || !map_.erase(block)) return false;
  word &= ~kHashed;
  if (word < kOneRef) --num_cached_blocks_;
  return true;
}

void BlockPool::evict(BlockId block) {
  if ((queue_.word(block) & kHashed) == 0) return;
  const std::string_view key = map_.key_of(block);
  if (unset_hash(block) && config_.enable_kv_cache_events) log_block_removed(key);
}

ErrorCode BlockPool::evict_blocks(std::span<const BlockId> blocks) {
  if (has_unknown_block(blocks, config_.num_gpu_blocks)) return ErrorCode::kUnknownBlock;
  for (BlockId block : blocks) evict(block);
  return ErrorCode::kNone;
}

ErrorCode BlockPool::free_blocks(std::span<const BlockId> blocks, FreeTo to) {
  if (to == FreeTo::kHead && !config_.rules.free_blocks_prepend) return ErrorCode::kNotInProfile;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockId block = blocks[i];
    if (block == kNullBlockId) continue;
    if (block >= config_.num_gpu_blocks) return refuse_free(blocks, i);
    std::uint32_t& word = queue_.word(block);
    if (word < kOneRef) return refuse_free(blocks, i);
    word -= kOneRef;
  }
  return queue_freed(blocks, to) ? ErrorCode::kNone : refuse_free(blocks, blocks.size());
}

/// Takes back the references given up so far. Finds the code here, off the common path.
ErrorCode BlockPool::refuse_free(std::span<const BlockId> blocks, std::size_t num_released) {
  for (BlockId block : blocks.first(num_released)) {
    if (block != kNullBlockId) queue_.word(block) += kOneRef;
  }
  return has_unknown_block(blocks, config_.num_gpu_blocks) ? ErrorCode::kUnknownBlock
                                                           : ErrorCode::kDoubleFree;
}

/// Queues the listed blocks whose ref_cnt has reached 0; false, and no change, if one of them is
/// listed twice.
bool BlockPool::queue_freed(std::span<const BlockId> blocks, FreeTo to) {
  FreeKVCacheBlockQueue::Splice splice(queue_, to);
  std::uint32_t num_hashed = 0;
  for (BlockId block : blocks) {
    if (block == kNullBlockId) continue;
    const std::uint32_t word = queue_.word(block);
    if (word >= kOneRef) continue;
    if (!splice.push(block)) {
      splice.cancel();
      return false;
    }
    num_hashed += word & kHashed;
  }
  splice.commit();
  num_cached_blocks_ += num_hashed;
  return true;
}

bool BlockPool::reset_prefix_cache() {
  if (queue_.num_free_blocks() != config_.num_gpu_blocks - 1) return false;
  if (!map_.empty()) {
    for (BlockId block = 0; block < config_.num_gpu_blocks; ++block) {
      queue_.word(block) &= ~kHashed;
    }
  }
  map_.clear();
  num_cached_blocks_ = 0;
  if (config_.enable_kv_cache_events) events_.add_all_blocks_cleared();
  return true;
}

ErrorCode BlockPool::take_sink_blocks(std::uint32_t num_blocks) {
  if (num_blocks > queue_.num_free_blocks()) return ErrorCode::kNoFreeBlocks;
  std::vector<BlockId> sink_blocks(num_blocks);
  queue_.pop_each(sink_blocks, [](BlockId, std::uint32_t&) {});
  return ErrorCode::kNone;
}

ErrorCode BlockPool::cache_block(BlockId block, std::string_view key) {
  KVFENCE_CHECK(config_.enable_caching && !key.empty(), "a key, in a pool that caches");
  if (block >= config_.num_gpu_blocks) return ErrorCode::kUnknownBlock;
  if ((queue_.word(block) & kHashed) != 0) return ErrorCode::kAlreadyHashed;
  set_hash(block, PackedKeyView(key));
  return ErrorCode::kNone;
}

double BlockPool::get_usage() const {
  const std::uint32_t num_usable = config_.num_gpu_blocks - 1;
  if (num_usable == 0) return 0.0;
  return 1.0 - static_cast<double>(queue_.num_free_blocks()) / static_cast<double>(num_usable);
}

BlockCounts BlockPool::block_counts() const {
  const std::uint32_t num_free = queue_.num_free_blocks();
  return {.empty = num_free - num_cached_blocks_,
          .cached = num_cached_blocks_,
          .referenced = config_.num_gpu_blocks - num_free};
}

}  // namespace kvfence::optimized
