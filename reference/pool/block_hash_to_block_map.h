#pragma once

/// The prefix cache as a list of blocks that is scanned for a key.
///
/// Invariant: blocks of equal keys stand side by side in the list, in the order in which they were
/// inserted. The order of different keys means nothing. The rules of each function stand in
/// contract/pool/block_pool.h.
/// Source: vLLM v0.19.0 v1/core/block_pool.py BlockHashToBlockMap.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/core/types.h"
#include "contract/pool/block_pool.h"

namespace kvfence::reference {

class BlockHashToBlockMap {
 public:
  BlockHashToBlockMap(std::uint32_t num_blocks, std::size_t key_bytes_max);

  /// Cost of all that follows: O(blocks in the map); no allocation once the list has its capacity.
  std::optional<BlockId> get_one_block(std::string_view key) const;
  /// Of the key that these two make.
  std::optional<BlockId> get_one_block(BlockHashView hash, GroupId group_id) const;

  /// Requires: key.size() <= key_bytes_max
  ErrorCode insert(std::string_view key, BlockId block);
  bool pop(std::string_view key, BlockId block);
  void clear();
  std::uint32_t size() const;

  /// Takes in the whole state in canonical form: what decides later answers, not the history that
  /// led to it, such as the order of different keys.
  void add_to(StateHash& hash) const;

 private:
  /// The key that the block was inserted with. Requires: the block is in the map.
  std::string_view key_of(BlockId block) const;

  std::uint32_t num_blocks_;
  std::size_t key_bytes_max_;
  std::vector<BlockId> entries_;  ///< the blocks in the map
  /// Keys by block id, flat so that a scan runs over contiguous memory: [num_blocks][key_bytes_max]
  /// bytes, of which the first key_sizes_[block] count.
  std::string keys_;
  std::vector<std::size_t> key_sizes_;
};

}  // namespace kvfence::reference

static_assert(kvfence::BlockHashToBlockMap<kvfence::reference::BlockHashToBlockMap>);
