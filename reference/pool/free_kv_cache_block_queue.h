#pragma once

/// The free queue as a plain list of ids, head first. A block is queued if its id is in the list,
/// at most once. The rules of each function stand in contract/pool/block_pool.h; the null block is
/// an id like any other here.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue; prepend_n: v0.23.0, the
/// same file.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool.h"

namespace kvfence::reference {

class FreeKVCacheBlockQueue {
 public:
  explicit FreeKVCacheBlockQueue(std::uint32_t num_blocks);

  /// Cost of all that follows: O(num_free_blocks) for each block named; no allocation once the list
  /// has its capacity.
  ErrorCode popleft(BlockId& out);
  ErrorCode popleft_n(std::span<BlockId> out);
  ErrorCode remove(BlockId block);
  ErrorCode append(BlockId block);
  ErrorCode append_n(std::span<const BlockId> blocks);
  ErrorCode prepend_n(std::span<const BlockId> blocks);

  std::uint32_t num_free_blocks() const;
  void get_all_free_blocks(std::vector<BlockId>& out) const;

  /// Takes in the whole state.
  void add_to(StateHash& hash) const { hash.add_kept(queue_); }  // what is free

 private:
  /// Errors: kUnknownBlock, kAlreadyQueued (in the queue, or twice in the list)
  ErrorCode check_may_join(std::span<const BlockId> blocks) const;

  std::uint32_t num_blocks_;
  std::vector<BlockId> queue_;  ///< head first
};

}  // namespace kvfence::reference

static_assert(kvfence::FreeKVCacheBlockQueue<kvfence::reference::FreeKVCacheBlockQueue>);
