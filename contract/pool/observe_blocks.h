#pragma once

/// The blocks of a pool, as an observer sees them.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "contract/pool/block_pool.h"
#include "contract/pool/pool_values.h"

namespace kvfence {

/// Writes into storage that holds the previous observation: most blocks keep their key.
///
/// Cost: O(blocks); no allocation once the storage has their number.
template <BlockPool Pool>
void observe_blocks(const Pool& pool, ShownBlocks& shown) {
  pool.get_all_free_blocks(shown.free_queue.emplace());
  std::vector<std::uint32_t>& ref_cnts = shown.ref_cnts.emplace();
  KeyList& keys = shown.keys.emplace();
  const std::uint32_t num_blocks = pool.config().num_gpu_blocks;
  if (keys.size() != num_blocks || ref_cnts.size() != num_blocks) {
    ref_cnts.resize(num_blocks);
    keys.resize(num_blocks);
  }
  for (BlockId block = 0; block < num_blocks; ++block) {
    ref_cnts[block] = pool.ref_cnt(block);
    const std::string_view key = pool.block_key(block);
    BlockHash& shown_key = keys[block];
    // Without the calls of a comparison of strings.
    const bool is_shown =
        shown_key.size() == key.size() &&
        (key.empty() || std::memcmp(shown_key.data(), key.data(), key.size()) == 0);
    if (!is_shown) shown_key.assign(key);
  }
}

}  // namespace kvfence
