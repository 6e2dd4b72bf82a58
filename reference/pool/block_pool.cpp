#include "reference/pool/block_pool.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/limits.h"

namespace kvfence::reference {
namespace {

// A null or masked-out block gets no hash and no entry in the event.
// Source: vLLM v0.19.0 v1/core/block_pool.py cache_full_blocks (null); v0.23.0 (mask)
bool passed_over(const CacheFullBlocksArgs& args, std::size_t index) {
  if (args.blocks[index] == kNullBlockId) return true;
  return args.block_mask && (*args.block_mask)[index - args.num_cached_blocks] == 0;
}

}  // namespace

// All blocks are free except the null block, which is the first one popped.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockPool.__init__
BlockPool::BlockPool(const BlockPoolConfig& config)
    : config_(config),
      blocks_(config.num_gpu_blocks),
      free_block_queue_(config.num_gpu_blocks),
      cached_block_hash_to_block_(config.num_gpu_blocks, config.key_bytes_max()) {
  KVFENCE_CHECK(config.num_gpu_blocks >= 1 && config.num_gpu_blocks <= limits::kBlocksMax,
                "num_gpu_blocks is out of bounds");
  KVFENCE_CHECK(
      config.max_block_size > 0 && config.max_block_size % config.hash.hash_block_size == 0,
      "max_block_size is no positive multiple of hash_block_size");
  for (BlockId id = 0; id < config.num_gpu_blocks; ++id) blocks_[id].block_id = id;

  BlockId null_block = kNullBlockId;
  free_block_queue_.popleft(null_block);
  KVFENCE_CHECK(null_block == kNullBlockId, "the null block was not at the head");
}

// One block for each group, or nothing. Nothing is touched.
// Source: vLLM v0.19.0 v1/core/block_pool.py get_cached_block
bool BlockPool::get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                                 std::span<BlockId> out) const {
  KVFENCE_CHECK(out.size() == group_ids.size(), "get_cached_block wants one place for each group");
  for (std::size_t i = 0; i < group_ids.size(); ++i) {
    const std::optional<BlockId> block =
        cached_block_hash_to_block_.get_one_block(hash, group_ids[i]);
    if (!block) return false;
    out[i] = *block;
  }
  return true;
}

// From the head of the queue, in order; a block that still carries a hash is evicted at this
// moment.
// Source: vLLM v0.19.0 v1/core/block_pool.py get_new_blocks
ErrorCode BlockPool::get_new_blocks(std::span<BlockId> out) {
  if (free_block_queue_.popleft_n(out) != ErrorCode::kNone) return ErrorCode::kNoFreeBlocks;
  for (const BlockId id : out) {
    KVCacheBlock& block = blocks_[id];
    if (config_.enable_caching) maybe_evict_cached_block(block);
    KVFENCE_CHECK(block.ref_cnt == 0, "a queued block was referenced");
    block.ref_cnt = 1;
  }
  return ErrorCode::kNone;
}

// ref_cnt rises by one each time a block is listed; from 0 it also leaves the queue. The hash
// stays.
// Source: vLLM v0.19.0 v1/core/block_pool.py touch
ErrorCode BlockPool::touch(std::span<const BlockId> blocks) {
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) {
    KVCacheBlock& block = blocks_[id];
    if (block.is_null()) continue;
    if (block.ref_cnt == 0) {
      const ErrorCode removed = free_block_queue_.remove(id);
      KVFENCE_CHECK(removed == ErrorCode::kNone, "an unreferenced block was not queued");
    }
    ++block.ref_cnt;
  }
  return ErrorCode::kNone;
}

// Each block of [num_cached_blocks, num_full_blocks) that is not passed over becomes findable under
// (its hash, group).
// Source: vLLM v0.19.0 v1/core/block_pool.py cache_full_blocks; block_mask: v0.23.0, the same
// function
ErrorCode BlockPool::cache_full_blocks(const CacheFullBlocksArgs& args) {
  if (args.block_mask && !config_.rules.cache_full_blocks_mask) return ErrorCode::kNotInProfile;
  if (args.num_cached_blocks >= args.num_full_blocks) return ErrorCode::kNone;
  if (const ErrorCode error = check_cache_full_blocks(args); error != ErrorCode::kNone) {
    return error;
  }

  const BlockHashListView hashes = args.request.block_hashes(args.block_size);
  for (std::size_t i = args.num_cached_blocks; i < args.num_full_blocks; ++i) {
    if (passed_over(args, i)) continue;
    KVCacheBlock& block = blocks_[args.blocks[i]];
    block.block_hash = make_block_hash_with_group_id(hashes[i], args.kv_cache_group_id);
    const ErrorCode inserted = cached_block_hash_to_block_.insert(block.block_hash, block.block_id);
    KVFENCE_CHECK(inserted == ErrorCode::kNone, "a block without a hash was in the map");
  }
  if (config_.enable_kv_cache_events) kv_event_queue_.emplace_back(block_stored(args));
  return ErrorCode::kNone;
}

// Source: ours (contract/pool/block_pool.h); upstream asserts the hash count, the mask's length,
// the block size and that a block has no hash.
ErrorCode BlockPool::check_cache_full_blocks(const CacheFullBlocksArgs& args) const {
  if (!config_.enable_caching) return ErrorCode::kCachingDisabled;

  if (args.block_size == 0 || args.block_size % config_.hash.hash_block_size != 0 ||
      args.block_size > config_.max_block_size) {
    return ErrorCode::kBadBlockSize;
  }

  if (args.num_full_blocks > args.blocks.size()) return ErrorCode::kBadRange;

  const std::size_t num_new = args.num_full_blocks - args.num_cached_blocks;
  if (args.block_mask && args.block_mask->size() != num_new) return ErrorCode::kBadMask;

  if (args.num_full_blocks > args.request.block_hashes(args.block_size).size()) {
    return ErrorCode::kMissingHash;
  }

  if (!all_known(args.blocks.subspan(args.num_cached_blocks, num_new))) {
    return ErrorCode::kUnknownBlock;
  }

  for (std::size_t i = args.num_cached_blocks; i < args.num_full_blocks; ++i) {
    if (passed_over(args, i)) continue;
    if (blocks_[args.blocks[i]].has_hash()) return ErrorCode::kAlreadyHashed;
    for (std::size_t earlier = args.num_cached_blocks; earlier < i; ++earlier) {
      if (args.blocks[earlier] == args.blocks[i] && !passed_over(args, earlier)) {
        return ErrorCode::kAlreadyHashed;
      }
    }
  }
  return ErrorCode::kNone;
}

// The parent is the request's own hash before the range, whatever block stands there. The tokens
// are those of the whole range. Hashes and extra keys are those of the blocks not passed over; the
// multimodal cursor starts at the first item and moves with these blocks alone.
// Source: vLLM v0.19.0 v1/core/block_pool.py cache_full_blocks; group_idx: v0.23.0, the same
// function
BlockStored BlockPool::block_stored(const CacheFullBlocksArgs& args) const {
  const BlockHashListView hashes = args.request.block_hashes(args.block_size);
  const std::vector<TokenId>& tokens = args.request.all_token_ids();
  const std::size_t block_size = args.block_size;

  BlockStored event;
  event.block_size = args.block_size;
  event.lora = args.request.spec().lora;
  if (config_.rules.events_carry_group) event.group_idx = args.kv_cache_group_id;
  if (args.num_cached_blocks > 0) event.parent_block_hash = hashes[args.num_cached_blocks - 1];

  const std::size_t begin = std::min(args.num_cached_blocks * block_size, tokens.size());
  const std::size_t end = std::min(args.num_full_blocks * block_size, tokens.size());
  event.token_ids.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                         tokens.begin() + static_cast<std::ptrdiff_t>(end));

  std::int64_t mm_cursor = 0;
  for (std::size_t i = args.num_cached_blocks; i < args.num_full_blocks; ++i) {
    if (passed_over(args, i)) continue;
    event.block_hashes.emplace_back(hashes[i]);
    ExtraKeysAndCursor extra = generate_block_hash_extra_keys(args.request.spec(), i * block_size,
                                                              (i + 1) * block_size, mm_cursor);
    mm_cursor = extra.mm_cursor;
    std::optional<ExtraKeys>& entry = event.extra_keys.emplace_back();
    if (!extra.keys.empty()) entry = std::move(extra.keys);
  }
  return event;
}

// Two phases: first every ref_cnt falls; then those at 0 join the queue, in the given order. Hashes
// stay.
// Source: vLLM v0.19.0 v1/core/block_pool.py free_blocks; prepend: v0.23.0, the same function.
// kDoubleFree: ours
ErrorCode BlockPool::free_blocks(std::span<const BlockId> blocks, FreeTo to) {
  if (to == FreeTo::kHead && !config_.rules.free_blocks_prepend) return ErrorCode::kNotInProfile;
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) {
    if (blocks_[id].is_null()) continue;
    const auto num_listed = static_cast<std::size_t>(std::count(blocks.begin(), blocks.end(), id));
    const std::uint32_t ref_cnt = blocks_[id].ref_cnt;
    const bool falls_below_0 = ref_cnt < num_listed;
    const bool queued_twice = ref_cnt == num_listed && num_listed > 1;
    if (falls_below_0 || queued_twice) return ErrorCode::kDoubleFree;
  }

  for (const BlockId id : blocks) {
    if (!blocks_[id].is_null()) --blocks_[id].ref_cnt;
  }
  std::vector<BlockId> freed;
  freed.reserve(blocks.size());
  for (const BlockId id : blocks) {
    if (!blocks_[id].is_null() && blocks_[id].ref_cnt == 0) freed.push_back(id);
  }
  const ErrorCode joined =
      to == FreeTo::kHead ? free_block_queue_.prepend_n(freed) : free_block_queue_.append_n(freed);
  KVFENCE_CHECK(joined == ErrorCode::kNone, "a referenced block was queued");
  return ErrorCode::kNone;
}

// Out of the prefix cache only: ref_cnt and queue stay. The order is the caller's.
// Source: vLLM v0.19.0 v1/core/block_pool.py evict_blocks (iterates a set: the order is ours)
ErrorCode BlockPool::evict_blocks(std::span<const BlockId> blocks) {
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) maybe_evict_cached_block(blocks_[id]);
  return ErrorCode::kNone;
}

// A block with a hash loses it, in the map and in itself, and one event says so. The null block
// never has one.
// Source: vLLM v0.19.0 v1/core/block_pool.py _maybe_evict_cached_block; group_idx: v0.23.0, the
// same function
void BlockPool::maybe_evict_cached_block(KVCacheBlock& block) {
  if (!block.has_hash()) return;
  const bool popped = cached_block_hash_to_block_.pop(block.block_hash, block.block_id);
  KVFENCE_CHECK(popped, "a block with a hash was not in the map");
  if (config_.enable_kv_cache_events) {
    BlockRemoved event;
    event.block_hash = get_block_hash(block.block_hash);
    if (config_.rules.events_carry_group) event.group_idx = get_group_id(block.block_hash);
    kv_event_queue_.emplace_back(std::move(event));
  }
  block.block_hash.clear();
}

// Only if nothing but the null block is referenced. The order of the queue stays.
// Source: vLLM v0.19.0 v1/core/block_pool.py reset_prefix_cache
bool BlockPool::reset_prefix_cache() {
  const std::uint32_t num_used_blocks = config_.num_gpu_blocks - get_num_free_blocks();
  if (num_used_blocks != 1) return false;
  cached_block_hash_to_block_.clear();
  for (KVCacheBlock& block : blocks_) block.block_hash.clear();
  if (config_.enable_kv_cache_events) kv_event_queue_.emplace_back(AllBlocksCleared{});
  return true;
}

// The swap lets both vectors keep their capacity.
// Source: vLLM v0.19.0 v1/core/block_pool.py take_events
void BlockPool::take_events(std::vector<KVCacheEvent>& out) {
  out.clear();
  out.swap(kv_event_queue_);
}

// The blocks are not even evicted: they leave the queue before anything was cached.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py SinkFullAttentionManager.__init__
ErrorCode BlockPool::take_sink_blocks(std::uint32_t num_blocks) {
  std::vector<BlockId> blocks(num_blocks);
  const ErrorCode popped = free_block_queue_.popleft_n(blocks);
  return popped == ErrorCode::kNone ? ErrorCode::kNone : ErrorCode::kNoFreeBlocks;
}

// Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py get_one_block
std::optional<BlockId> BlockPool::find_key(std::string_view key) const {
  return cached_block_hash_to_block_.get_one_block(key);
}

// Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _process_store_completion
void BlockPool::set_key(BlockId block, std::string_view key) {
  KVFENCE_CHECK(!config_.enable_kv_cache_events, "a key from outside has no event");
  KVFENCE_CHECK(ref_cnt(block) > 0 && !blocks_[block].has_hash(), "a held block without a key");
  blocks_[block].block_hash = key;
  const ErrorCode inserted = cached_block_hash_to_block_.insert(key, block);
  KVFENCE_CHECK(inserted == ErrorCode::kNone, "a block without a hash was in the map");
}

// Source: vLLM v0.19.0 v1/core/block_pool.py get_num_free_blocks
std::uint32_t BlockPool::get_num_free_blocks() const { return free_block_queue_.num_free_blocks(); }

// The null block is not counted.
// Source: vLLM v0.19.0 v1/core/block_pool.py get_usage
double BlockPool::get_usage() const {
  const std::uint32_t num_usable_blocks = config_.num_gpu_blocks - 1;
  if (num_usable_blocks == 0) return 0.0;
  return 1.0 - static_cast<double>(get_num_free_blocks()) / static_cast<double>(num_usable_blocks);
}

std::uint32_t BlockPool::num_cached_keys() const { return cached_block_hash_to_block_.size(); }

// Source: ours (contract/pool/block_pool.h)
BlockCounts BlockPool::block_counts() const {
  std::vector<BlockId> free_blocks;
  get_all_free_blocks(free_blocks);
  BlockCounts counts;
  counts.referenced = config_.num_gpu_blocks - get_num_free_blocks();
  for (const BlockId id : free_blocks) ++(blocks_[id].has_hash() ? counts.cached : counts.empty);
  return counts;
}

std::uint32_t BlockPool::ref_cnt(BlockId block) const {
  KVFENCE_CHECK(block < blocks_.size(), "no such block");
  return blocks_[block].ref_cnt;
}

std::string_view BlockPool::block_key(BlockId block) const {
  KVFENCE_CHECK(block < blocks_.size(), "no such block");
  return blocks_[block].block_hash;
}

void BlockPool::get_all_free_blocks(std::vector<BlockId>& out) const {
  free_block_queue_.get_all_free_blocks(out);
}

// Source: ours
void BlockPool::add_to(StateHash& hash) const {
  hash.add(blocks_);
  hash.add(free_block_queue_);
  hash.add(cached_block_hash_to_block_);
  hash.add(kv_event_queue_);
}

// Source: vLLM v0.19.0 v1/core/block_pool.py evict_blocks (asserts it there, and only there)
bool BlockPool::all_known(std::span<const BlockId> blocks) const {
  return std::all_of(blocks.begin(), blocks.end(),
                     [this](BlockId block) { return block < blocks_.size(); });
}

}  // namespace kvfence::reference
