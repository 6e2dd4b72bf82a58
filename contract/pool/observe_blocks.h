#pragma once

/// What a pool shows of its blocks, to whoever observes one.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/pool_values.h"

namespace kvfence {

/// Fills the free queue, and by block its references and its key. Into storage with what was shown
/// before: most blocks keep their key.
///
/// Cost: O(blocks); no allocation once the storage has their number.
template <BlockPool Pool>
void observe_blocks(const Pool& pool, std::vector<BlockId>& free_queue,
                    std::vector<std::uint32_t>& ref_cnts, KeyList& keys) {
  pool.get_all_free_blocks(free_queue);
  const std::uint32_t num_blocks = pool.config().num_gpu_blocks;
  if (keys.size() != num_blocks || ref_cnts.size() != num_blocks) {
    ref_cnts.resize(num_blocks);
    keys.resize(num_blocks);
  }
  for (BlockId block = 0; block < num_blocks; ++block) {
    ref_cnts[block] = pool.ref_cnt(block);
    const std::string_view key = pool.block_key(block);
    BlockHash& shown = keys[block];
    // Without the calls of a comparison of strings.
    const bool is_shown = shown.size() == key.size() &&
                          (key.empty() || std::memcmp(shown.data(), key.data(), key.size()) == 0);
    if (!is_shown) shown.assign(key);
  }
}

}  // namespace kvfence
