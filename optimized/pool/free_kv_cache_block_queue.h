#pragma once

/// FreeKVCacheBlockQueue: the unreferenced blocks in eviction order (the head goes first), as a
/// doubly linked list with block ids as links in one flat array.
///
/// The list is circular through a sentinel node, id num_blocks, so that no operation has a special
/// case for an end. A node's prev is kNotQueued exactly when the block is not in the queue. Each
/// node also names the block that was appended kAheadDistance places after it: a hint for
/// prefetching, never for a decision, which lifts a long walk of the queue from the latency of
/// memory to its throughput (jump pointers: Luk and Mowry, ASPLOS 1996). The fourth word of a node
/// belongs to the owner of the queue; there it shares a cache line with the links.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/limits.h"
#include "contract/core/state_digest.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool.h"

namespace kvfence::optimized {

/// Whether some id is not below num_blocks. Cost: one compare per id, vectorized.
inline bool has_unknown_block(std::span<const BlockId> blocks, std::uint32_t num_blocks) {
  bool unknown = false;
  for (BlockId block : blocks) unknown |= block >= num_blocks;
  return unknown;
}

class FreeKVCacheBlockQueue {
  struct Node {
    BlockId prev;
    BlockId next;
    BlockId ahead;
    std::uint32_t word;
  };

 public:
  /// Cost: 16 bytes per block; the only allocation.
  explicit FreeKVCacheBlockQueue(std::uint32_t num_blocks)
      : num_blocks_(num_blocks), num_free_blocks_(num_blocks), nodes_(std::size_t{num_blocks} + 1) {
    KVFENCE_CHECK(num_blocks <= limits::kBlocksMax, "block ids above this are marks");
    for (BlockId block = 0; block <= num_blocks; ++block) {
      const bool is_near_end = num_blocks - block < kAheadDistance;
      nodes_[block] = {.prev = block == 0 ? num_blocks : block - 1,
                       .next = block == num_blocks ? 0 : block + 1,
                       .ahead = is_near_end ? num_blocks : block + kAheadDistance,
                       .word = 0};
    }
    recent_.fill(num_blocks);
    const BlockId first_recent = num_blocks < kAheadDistance ? 0 : num_blocks - kAheadDistance;
    for (BlockId block = first_recent; block < num_blocks; ++block) remember_recent(block);
  }

  std::uint32_t num_free_blocks() const { return num_free_blocks_; }

  /// Cost: O(num_free_blocks).
  void get_all_free_blocks(std::vector<BlockId>& out) const {
    out.clear();
    out.reserve(num_free_blocks_);
    BlockId block = nodes_[num_blocks_].next;
    for (std::uint32_t i = 0; i < num_free_blocks_; ++i) {
      out.push_back(block);
      block = nodes_[block].next;
    }
  }

  /// The block after a queued one, or the head; nothing at the end. Cost: O(1).
  /// Requires: is_queued(*block).
  std::optional<BlockId> next_free_block(std::optional<BlockId> block) const {
    const BlockId next = nodes_[block.value_or(num_blocks_)].next;
    return next == num_blocks_ ? std::nullopt : std::optional(next);
  }

  bool is_queued(BlockId block) const { return nodes_[block].prev != kNotQueued; }

  /// The owner's word of a block. Requires: block < num_blocks.
  std::uint32_t& word(BlockId block) { return nodes_[block].word; }
  std::uint32_t word(BlockId block) const { return nodes_[block].word; }

  /// Pops out.size() blocks, head first, and calls visit(block, word) for each.
  /// Requires: out.size() <= num_free_blocks().
  template <class Visit>
  void pop_each(std::span<BlockId> out, Visit visit) {
    Node* const nodes = nodes_.data();
    const BlockId sentinel = num_blocks_;
    BlockId block = nodes[sentinel].next;
    for (BlockId& popped : out) {
      Node& node = nodes[block];
      __builtin_prefetch(&nodes[node.ahead], 1);
      popped = block;
      node.prev = kNotQueued;
      block = node.next;
      visit(popped, node.word);
    }
    nodes[sentinel].next = block;
    nodes[block].prev = sentinel;
    num_free_blocks_ -= static_cast<std::uint32_t>(out.size());
  }

  /// Requires: is_queued(block).
  void unlink(BlockId block) {
    Node* const nodes = nodes_.data();
    Node& node = nodes[block];
    nodes[node.prev].next = node.next;
    nodes[node.next].prev = node.prev;
    node.prev = kNotQueued;
    --num_free_blocks_;
  }

  /// Inserts blocks at one end of the queue, in the order in which they are pushed.
  ///
  /// Ends with commit() or cancel(); until then the queue must not be used.
  class Splice {
   public:
    Splice(FreeKVCacheBlockQueue& queue, FreeTo to)
        : queue_(queue),
          nodes_(queue.nodes_.data()),
          before_(to == FreeTo::kTail ? nodes_[queue.num_blocks_].prev : queue.num_blocks_),
          after_(to == FreeTo::kTail ? queue.num_blocks_ : nodes_[queue.num_blocks_].next),
          last_(before_) {}

    /// Links the block after those pushed so far; false if it is queued or was pushed already.
    bool push(BlockId block) {
      if (nodes_[block].prev != kNotQueued) return false;
      nodes_[block].prev = last_;
      nodes_[last_].next = block;
      last_ = block;
      ++num_pushed_;
      nodes_[queue_.remember_recent(block)].ahead = block;
      return true;
    }

    void commit() {
      nodes_[last_].next = after_;
      nodes_[after_].prev = last_;
      queue_.num_free_blocks_ += num_pushed_;
    }

    /// Leaves the queue as it was before the first push.
    void cancel() {
      BlockId block = nodes_[before_].next;
      for (; num_pushed_ > 0; --num_pushed_) {
        nodes_[block].prev = kNotQueued;
        block = nodes_[block].next;
      }
      nodes_[before_].next = after_;
    }

   private:
    FreeKVCacheBlockQueue& queue_;
    Node* nodes_;
    BlockId before_;
    BlockId after_;
    BlockId last_;
    std::uint32_t num_pushed_ = 0;
  };

  /// Adds the state in canonical form: all that decides later answers, but not history, such as the
  /// prefetch hints.
  /// Cost: O(num_blocks).
  void add_to(StateHash& hash) const {
    hash.add(num_free_blocks_);
    BlockId block = nodes_[num_blocks_].next;
    for (std::uint32_t i = 0; i < num_free_blocks_ && block != num_blocks_; ++i) {
      hash.add(block);
      block = nodes_[block].next;
    }
    for (BlockId each = 0; each < num_blocks_; ++each) hash.add(nodes_[each].word);
  }

 private:
  /// Far enough that a line from memory arrives in time, near enough that it is still in the
  /// first-level cache.
  static constexpr std::uint32_t kAheadDistance = 16;
  static constexpr BlockId kNotQueued = 0xFFFF'FFFF;

  /// Notes that block joined the queue; returns the one that joined kAheadDistance blocks earlier.
  BlockId remember_recent(BlockId block) {
    const BlockId earlier = recent_[recent_cursor_];
    recent_[recent_cursor_] = block;
    recent_cursor_ = (recent_cursor_ + 1) % kAheadDistance;
    return earlier;
  }

  std::uint32_t num_blocks_;
  std::uint32_t num_free_blocks_;
  std::uint32_t recent_cursor_ = 0;
  std::array<BlockId, kAheadDistance> recent_;  ///< a ring: the blocks that joined last
  std::vector<Node> nodes_;                     ///< [num_blocks + 1]; the last one is the sentinel
};

}  // namespace kvfence::optimized
