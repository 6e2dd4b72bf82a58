#pragma once

/// The prefix cache as a list of blocks that is scanned for a key.
///
/// Invariant: blocks of equal keys are adjacent in the list, in the order in which they were
/// inserted. The order of different keys means nothing. A block has one key at most, and none if it
/// is not in the list.
/// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"

namespace kvfence::reference {

class BlockHashToBlockMap {
 public:
  BlockHashToBlockMap(std::uint32_t num_blocks, std::size_t key_bytes_max);

  /// Cost of all that follows: O(blocks in the map); no allocation once the list has its capacity.
  std::optional<BlockId> get_one_block(std::string_view key) const;
  /// Requires: block < num_blocks and has no key; key.size() in 1 .. key_bytes_max
  void insert(std::string_view key, BlockId block);
  /// Requires: the block has a key
  void pop(BlockId block);
  void clear();
  std::uint32_t size() const;  ///< of keys

  /// Empty: none. Requires: block < num_blocks. The view holds until the next insert.
  std::string_view key_of(BlockId block) const;

  /// Takes in the whole state in canonical form: what decides later answers, not the history that
  /// led to it, such as the order of different keys.
  void add_to(StateHash& hash) const;

 private:
  std::size_t key_bytes_max_;
  std::vector<BlockId> entries_;  ///< the blocks in the map
  /// Keys by block id, flat so that a scan runs over contiguous memory: [num_blocks][key_bytes_max]
  /// bytes; the first key_sizes_[block] of each count.
  std::string keys_;
  std::vector<std::size_t> key_sizes_;
};

}  // namespace kvfence::reference
