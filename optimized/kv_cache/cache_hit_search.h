#pragma once

/// The prefix-cache lookup of groups with equal specs, by kind of attention.
///
/// Each kind probes a block at most once per lookup. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/single_type_kv_cache_manager.py find_longest_cache_hit.

#include <cstdint>
#include <span>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/pool/request.h"
#include "optimized/pool/block_pool.h"

namespace kvfence::optimized {

/// Consecutive blocks that a window needs before its next token can be computed. The token itself
/// belongs to the window; the block that eagle drops comes on top.
std::uint32_t contiguous_blocks_for_hit(const KVCacheSpec& spec, bool drop_eagle_block);

struct CacheHitQuery {
  const KVCacheSpec& spec;
  std::span<const GroupId> group_ids;  ///< at least one; all have this spec, and all must hit
  const Request& request;
  std::uint32_t max_length = 0;        ///< tokens; has hashes up to there
  std::uint32_t first_token = 0;       ///< where the request begins for the lookup; block-aligned
  std::uint32_t alignment_tokens = 0;  ///< the hit is a multiple of it; a multiple of block_size
  bool drop_eagle_block = false;       ///< the last block found is not part of the hit
  bool aligns_after_drop = false;      ///< Rules::eagle_by_group
};

/// Overwrites the lists of the query's groups with the longest hit; the result is their common
/// length in blocks.
///
/// Cost: full attention and chunks probe up to the first miss. Mamba probes the aligned blocks from
/// the right up to the first hit. A window skips blocks that only windows with known misses
/// contain, so that a cold lookup probes one block per window.
std::uint32_t find_longest_cache_hit(const BlockPool& pool, const CacheHitQuery& query,
                                     BlocksByGroup& blocks);

}  // namespace kvfence::optimized
