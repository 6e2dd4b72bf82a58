#pragma once

/// One block of the reference pool. Whether it is free, cached or referenced follows from these
/// members and is stored nowhere else. For reference/ only.
/// Source: vLLM v0.19.0 v1/core/kv_cache_utils.py KVCacheBlock.

#include <cstdint>
#include <string>

#include "contract/core/state_digest.h"
#include "contract/core/types.h"

namespace kvfence::reference {

struct KVCacheBlock {
  BlockId block_id = 0;
  std::uint32_t ref_cnt = 0;  ///< not maintained for the null block: it stays 0
  std::string block_hash;     ///< the packed key (hash, group id); empty for none

  bool is_null() const { return block_id == kNullBlockId; }
  bool has_hash() const { return !block_hash.empty(); }

  void add_to(StateHash& hash) const {
    hash.add(ref_cnt);
    hash.add(block_hash);
  }
};

}  // namespace kvfence::reference
