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

// All blocks are free, in ascending order, except the null block.
// Source: vLLM v0.19.0 v1/core/block_pool.py BlockPool.__init__
BlockPool::BlockPool(const BlockPoolConfig& config)
    : config_(config),
      ref_cnts_(config.num_gpu_blocks, 0),
      cached_block_hash_to_block_(config.num_gpu_blocks, config.key_bytes_max()) {
  KVFENCE_CHECK(config.num_gpu_blocks >= 1 && config.num_gpu_blocks <= limits::kBlocksMax,
                "num_gpu_blocks is out of bounds");
  KVFENCE_CHECK(
      config.max_block_size > 0 && config.max_block_size % config.hash.hash_block_size == 0,
      "max_block_size is no positive multiple of hash_block_size");
  for (BlockId id = kNullBlockId + 1; id < config.num_gpu_blocks; ++id) {
    free_block_queue_.push_back(id);
  }
}

// One block for each group, or nothing. Nothing is touched.
// Source: vLLM v0.19.0 v1/core/block_pool.py get_cached_block
bool BlockPool::get_cached_block(BlockHashView hash, std::span<const GroupId> group_ids,
                                 std::span<BlockId> out) const {
  KVFENCE_CHECK(out.size() == group_ids.size(), "get_cached_block wants one place for each group");
  for (std::size_t i = 0; i < group_ids.size(); ++i) {
    const std::optional<BlockId> block = cached_block_hash_to_block_.get_one_block(
        make_block_hash_with_group_id(hash, group_ids[i]));
    if (!block) return false;
    out[i] = *block;
  }
  return true;
}

// From the head of the queue, in order; a block that still carries a hash is evicted at this
// moment.
// Source: vLLM v0.19.0 v1/core/block_pool.py get_new_blocks; v1/core/kv_cache_utils.py
// FreeKVCacheBlockQueue.popleft_n
ErrorCode BlockPool::get_new_blocks(std::span<BlockId> out) {
  if (out.size() > free_block_queue_.size()) return ErrorCode::kNoFreeBlocks;
  const auto begin = free_block_queue_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(out.size());
  std::copy(begin, end, out.begin());
  free_block_queue_.erase(begin, end);
  for (const BlockId id : out) {
    if (config_.enable_caching) maybe_evict_cached_block(id);
    KVFENCE_CHECK(ref_cnts_[id] == 0, "a queued block was referenced");
    ref_cnts_[id] = 1;
  }
  return ErrorCode::kNone;
}

// ref_cnt rises by one each time a block is listed; from 0 it also leaves the queue. The hash
// stays.
// Source: vLLM v0.19.0 v1/core/block_pool.py touch; v1/core/kv_cache_utils.py
// FreeKVCacheBlockQueue.remove
ErrorCode BlockPool::touch(std::span<const BlockId> blocks) {
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) {
    if (id == kNullBlockId) continue;
    if (ref_cnts_[id] == 0) {
      KVFENCE_CHECK(std::erase(free_block_queue_, id) == 1, "an unreferenced block was not queued");
    }
    ++ref_cnts_[id];
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
    cached_block_hash_to_block_.insert(
        make_block_hash_with_group_id(hashes[i], args.kv_cache_group_id), args.blocks[i]);
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
    if (has_hash(args.blocks[i])) return ErrorCode::kAlreadyHashed;
    for (std::size_t earlier = args.num_cached_blocks; earlier < i; ++earlier) {
      if (args.blocks[earlier] == args.blocks[i] && !passed_over(args, earlier)) {
        return ErrorCode::kAlreadyHashed;
      }
    }
  }
  return ErrorCode::kNone;
}

// The parent is the request's own hash before the range, whatever block is there. The tokens are
// those of the whole range. Hashes and extra keys are those of the blocks not passed over; the
// multimodal cursor starts at the first item and moves with these blocks alone.
// Source: vLLM v0.19.0 v1/core/block_pool.py cache_full_blocks; group_idx: v0.23.0, the same
// function
BlockStored BlockPool::block_stored(const CacheFullBlocksArgs& args) const {
  const BlockHashListView hashes = args.request.block_hashes(args.block_size);
  const std::vector<TokenId>& tokens = args.request.all_token_ids();
  const std::size_t block_size = args.block_size;

  BlockStored event;
  event.block_size = args.block_size;
  if (const auto& lora = args.request.spec().lora) {
    event.lora_name = lora->name;
    event.lora_id = lora->id;
  }
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
// Source: vLLM v0.19.0 v1/core/block_pool.py free_blocks; v1/core/kv_cache_utils.py
// FreeKVCacheBlockQueue.append_n; prepend: v0.23.0, the same functions. kDoubleFree: ours
ErrorCode BlockPool::free_blocks(std::span<const BlockId> blocks, FreeTo to) {
  if (to == FreeTo::kHead && !config_.rules.free_blocks_prepend) return ErrorCode::kNotInProfile;
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) {
    if (id == kNullBlockId) continue;
    const auto num_listed = static_cast<std::size_t>(std::count(blocks.begin(), blocks.end(), id));
    const bool falls_below_0 = ref_cnts_[id] < num_listed;
    const bool queued_twice = ref_cnts_[id] == num_listed && num_listed > 1;
    if (falls_below_0 || queued_twice) return ErrorCode::kDoubleFree;
  }

  for (const BlockId id : blocks) {
    if (id != kNullBlockId) --ref_cnts_[id];
  }
  std::vector<BlockId> freed;
  freed.reserve(blocks.size());
  for (const BlockId id : blocks) {
    if (id != kNullBlockId && ref_cnts_[id] == 0) freed.push_back(id);
  }
  std::vector<BlockId>& queue = free_block_queue_;
  KVFENCE_CHECK(
      std::find_first_of(queue.begin(), queue.end(), freed.begin(), freed.end()) == queue.end(),
      "a referenced block was queued");
  queue.insert(to == FreeTo::kHead ? queue.begin() : queue.end(), freed.begin(), freed.end());
  return ErrorCode::kNone;
}

// Out of the prefix cache only: ref_cnt and queue stay. The order is the caller's.
// Source: vLLM v0.19.0 v1/core/block_pool.py evict_blocks (iterates a set: the order is ours)
ErrorCode BlockPool::evict_blocks(std::span<const BlockId> blocks) {
  if (!all_known(blocks)) return ErrorCode::kUnknownBlock;
  for (const BlockId id : blocks) maybe_evict_cached_block(id);
  return ErrorCode::kNone;
}

// A block with a hash loses it, and one event says so. The null block never has one.
// Source: vLLM v0.19.0 v1/core/block_pool.py _maybe_evict_cached_block; group_idx: v0.23.0, the
// same function
void BlockPool::maybe_evict_cached_block(BlockId block) {
  const std::string_view key = cached_block_hash_to_block_.key_of(block);
  if (key.empty()) return;
  if (config_.enable_kv_cache_events) {
    BlockRemoved event;
    event.block_hash = get_block_hash(key);
    if (config_.rules.events_carry_group) event.group_idx = get_group_id(key);
    kv_event_queue_.emplace_back(std::move(event));
  }
  cached_block_hash_to_block_.pop(block);
}

// Only if nothing but the null block is referenced. The order of the queue stays.
// Source: vLLM v0.19.0 v1/core/block_pool.py reset_prefix_cache
bool BlockPool::reset_prefix_cache() {
  const std::uint32_t num_used_blocks = config_.num_gpu_blocks - get_num_free_blocks();
  if (num_used_blocks != 1) return false;
  cached_block_hash_to_block_.clear();
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
  if (num_blocks > free_block_queue_.size()) return ErrorCode::kNoFreeBlocks;
  free_block_queue_.erase(free_block_queue_.begin(), free_block_queue_.begin() + num_blocks);
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py get_one_block
std::optional<BlockId> BlockPool::find_key(std::string_view key) const {
  return cached_block_hash_to_block_.get_one_block(key);
}

// Source: vLLM v0.19.0 v1/simple_kv_offload/manager.py _process_store_completion
void BlockPool::set_key(BlockId block, std::string_view key) {
  KVFENCE_CHECK(!config_.enable_kv_cache_events, "a key from outside has no event");
  KVFENCE_CHECK(ref_cnt(block) > 0 && !has_hash(block), "a held block without a key");
  cached_block_hash_to_block_.insert(key, block);
}

// Source: vLLM v0.19.0 v1/core/block_pool.py get_num_free_blocks
std::uint32_t BlockPool::get_num_free_blocks() const {
  return static_cast<std::uint32_t>(free_block_queue_.size());
}

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
  BlockCounts counts;
  counts.referenced = config_.num_gpu_blocks - get_num_free_blocks();
  for (const BlockId id : free_block_queue_) ++(has_hash(id) ? counts.cached : counts.empty);
  return counts;
}

std::uint32_t BlockPool::ref_cnt(BlockId block) const {
  KVFENCE_CHECK(block < ref_cnts_.size(), "no such block");
  return ref_cnts_[block];
}

std::string_view BlockPool::block_key(BlockId block) const {
  KVFENCE_CHECK(block < ref_cnts_.size(), "no such block");
  return cached_block_hash_to_block_.key_of(block);
}

void BlockPool::get_all_free_blocks(std::vector<BlockId>& out) const { out = free_block_queue_; }

// Source: ours
void BlockPool::add_to(StateHash& hash) const {
  hash.add_kept(free_block_queue_);
  hash.add_all(ref_cnts_, cached_block_hash_to_block_, kv_event_queue_);
}

// Source: vLLM v0.19.0 v1/core/block_pool.py evict_blocks (asserts it there, and only there)
bool BlockPool::all_known(std::span<const BlockId> blocks) const {
  return std::ranges::all_of(blocks, [this](BlockId block) { return block < ref_cnts_.size(); });
}

}  // namespace kvfence::reference
