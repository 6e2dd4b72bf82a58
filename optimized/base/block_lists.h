#pragma once

/// BlockLists: an unordered list of values per block, in one pool of nodes. When a block is
/// allocated again, the caller looks through its list and drops values that are over, so that
/// nothing has to be removed from the middle.

#include <cstdint>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/core/types.h"

namespace kvfence::optimized {

template <class T>
class BlockLists {
 public:
  explicit BlockLists(std::uint32_t num_blocks) : heads_(num_blocks, kNone) {}

  /// Cost: O(1), amortized while the pool grows.
  void push(BlockId block, const T& value) {
    KVFENCE_CHECK(block < heads_.size(), "a block beyond the pool");
    std::uint32_t node = first_free_;
    if (node == kNone) {
      node = static_cast<std::uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      first_free_ = nodes_[node].next;
    }
    nodes_[node] = {value, heads_[block]};
    heads_[block] = node;
  }

  /// Calls keep(value) for each value of the block, newest first, and drops those for which it is
  /// false.
  /// Cost: O(values of the block).
  template <class Keep>
  void filter(BlockId block, const Keep& keep) {
    KVFENCE_CHECK(block < heads_.size(), "a block beyond the pool");
    std::uint32_t previous = kNone;
    for (std::uint32_t node = heads_[block]; node != kNone;) {
      const std::uint32_t next = nodes_[node].next;
      if (keep(nodes_[node].value)) {
        previous = node;
      } else {
        (previous == kNone ? heads_[block] : nodes_[previous].next) = next;
        nodes_[node].next = first_free_;
        first_free_ = node;
      }
      node = next;
    }
  }

  /// Cost: O(blocks).
  void clear() {
    heads_.assign(heads_.size(), kNone);
    nodes_.clear();
    first_free_ = kNone;
  }

  void add_to(StateHash& hash) const {
    for (std::uint32_t node : heads_) {
      for (; node != kNone; node = nodes_[node].next) hash.add_entry(nodes_[node].value);
      hash.add(kNone);
    }
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  struct Node {
    T value;
    std::uint32_t next = kNone;  ///< in the list, or of the free nodes
  };

  std::vector<std::uint32_t> heads_;  ///< [block]
  std::vector<Node> nodes_;
  std::uint32_t first_free_ = kNone;
};

}  // namespace kvfence::optimized
