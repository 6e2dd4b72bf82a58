#pragma once

/// The free queue as a plain list of ids, head first: the blocks nobody references, in eviction
/// order. A block is queued if its id is in the list, at most once; the null block is an id like
/// any other here. Upstream raises RuntimeError for kNotQueued, and silently corrupts its links for
/// kAlreadyQueued.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py FreeKVCacheBlockQueue; prepend_n: v0.23.0, the
/// same file.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"

namespace kvfence::reference {

class FreeKVCacheBlockQueue {
 public:
  /// Of ids 0 .. num_blocks-1, all of them queued in ascending order.
  explicit FreeKVCacheBlockQueue(std::uint32_t num_blocks);

  // Cost of all that follows: O(num_free_blocks) for each block named; no allocation once the list
  // has its capacity.

  /// The head leaves. Errors: kQueueEmpty
  ErrorCode popleft(BlockId& out);
  /// out.size() blocks leave, head first. Errors: kQueueEmpty (fewer are queued)
  ErrorCode popleft_n(std::span<BlockId> out);
  /// Leaves from wherever it stands. Errors: kUnknownBlock, kNotQueued
  ErrorCode remove(BlockId block);
  /// Joins at the tail. Errors: kUnknownBlock, kAlreadyQueued
  ErrorCode append(BlockId block);
  /// Join at the tail, in order. Errors: kUnknownBlock, kAlreadyQueued
  ErrorCode append_n(std::span<const BlockId> blocks);
  /// Join at the head; blocks[0] becomes the head. Errors: kUnknownBlock, kAlreadyQueued
  ErrorCode prepend_n(std::span<const BlockId> blocks);

  std::uint32_t num_free_blocks() const;
  /// Head to tail.
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
