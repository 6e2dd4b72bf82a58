#include "reference/pool/free_kv_cache_block_queue.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace kvfence::reference {
namespace {

bool contains(std::span<const BlockId> blocks, BlockId block) {
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

}  // namespace

// All blocks are free at first, in ascending order.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.__init__
FreeKVCacheBlockQueue::FreeKVCacheBlockQueue(std::uint32_t num_blocks)
    : num_blocks_(num_blocks), queue_(num_blocks) {
  std::iota(queue_.begin(), queue_.end(), BlockId{0});
}

// The head leaves.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.popleft
ErrorCode FreeKVCacheBlockQueue::popleft(BlockId& out) { return popleft_n({&out, 1}); }

// The first out.size() blocks leave, head first; all of them or none.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.popleft_n
ErrorCode FreeKVCacheBlockQueue::popleft_n(std::span<BlockId> out) {
  if (out.size() > queue_.size()) return ErrorCode::kQueueEmpty;
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(out.size());
  std::copy(queue_.begin(), end, out.begin());
  queue_.erase(queue_.begin(), end);
  return ErrorCode::kNone;
}

// The block leaves from wherever it stands; the others keep their order.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.remove
ErrorCode FreeKVCacheBlockQueue::remove(BlockId block) {
  if (block >= num_blocks_) return ErrorCode::kUnknownBlock;
  const auto place = std::find(queue_.begin(), queue_.end(), block);
  if (place == queue_.end()) return ErrorCode::kNotQueued;
  queue_.erase(place);
  return ErrorCode::kNone;
}

// The block joins at the tail.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.append
ErrorCode FreeKVCacheBlockQueue::append(BlockId block) { return append_n({&block, 1}); }

// The blocks join at the tail, in the given order.
// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.append_n
ErrorCode FreeKVCacheBlockQueue::append_n(std::span<const BlockId> blocks) {
  if (const ErrorCode error = check_may_join(blocks); error != ErrorCode::kNone) return error;
  queue_.insert(queue_.end(), blocks.begin(), blocks.end());
  return ErrorCode::kNone;
}

// The blocks join at the head, in the given order: blocks[0] is the next to be popped.
// Source: vLLM v0.23.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.prepend_n
ErrorCode FreeKVCacheBlockQueue::prepend_n(std::span<const BlockId> blocks) {
  if (const ErrorCode error = check_may_join(blocks); error != ErrorCode::kNone) return error;
  queue_.insert(queue_.begin(), blocks.begin(), blocks.end());
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.num_free_blocks
std::uint32_t FreeKVCacheBlockQueue::num_free_blocks() const {
  return static_cast<std::uint32_t>(queue_.size());
}

// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue.get_all_free_blocks
void FreeKVCacheBlockQueue::get_all_free_blocks(std::vector<BlockId>& out) const { out = queue_; }

// A block that is queued already would be handed out twice; upstream does not look.
// Source: ours (contract/pool/block_pool.h)
ErrorCode FreeKVCacheBlockQueue::check_may_join(std::span<const BlockId> blocks) const {
  for (const BlockId block : blocks) {
    if (block >= num_blocks_) return ErrorCode::kUnknownBlock;
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool listed_before = contains(blocks.first(i), blocks[i]);
    if (listed_before || contains(queue_, blocks[i])) return ErrorCode::kAlreadyQueued;
  }
  return ErrorCode::kNone;
}

}  // namespace kvfence::reference
