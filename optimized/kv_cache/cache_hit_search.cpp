#include "optimized/kv_cache/cache_hit_search.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "contract/core/check.h"
#include "contract/pool/block_hash.h"

namespace kvfence::optimized {
namespace {

class Search {
 public:
  Search(const BlockPool& pool, const CacheHitQuery& query, BlocksByGroup& blocks)
      : pool_(pool),
        query_(query),
        blocks_(blocks),
        hashes_(query.request.block_hashes(query.spec.block_size, query.first_token)),
        max_num_blocks_(query.max_length / query.spec.block_size),
        aligned_blocks_(query.alignment_tokens / query.spec.block_size) {}

  std::uint32_t run() {
    switch (query_.spec.kind) {
      case KVCacheSpecKind::kFullAttention:
      case KVCacheSpecKind::kSinkFullAttention:
        return full_attention();
      case KVCacheSpecKind::kSlidingWindow:
        return sliding_window();
      case KVCacheSpecKind::kChunkedLocal:
        return chunked_local();
      case KVCacheSpecKind::kMamba:
        return mamba();
      case KVCacheSpecKind::kCrossAttention:
        break;
    }
    return resize(0);
  }

 private:
  std::uint32_t resize(std::uint32_t num_blocks) {
    for (GroupId group : query_.group_ids) blocks_[group].resize(num_blocks, kNullBlockId);
    return num_blocks;
  }

  bool get_cached_block(std::uint32_t index, GroupId group, BlockId& block) const {
    return pool_.get_cached_block(hashes_[index], {&group, 1}, {&block, 1});
  }

  /// Writes block index of each group; false if one misses.
  bool place(std::uint32_t index) {
    for (GroupId group : query_.group_ids) {
      if (!get_cached_block(index, group, blocks_[group][index])) return false;
    }
    return true;
  }

  /// Appends block index to each group; false, and no change, if one misses.
  bool append(std::uint32_t index) {
    for (std::size_t i = 0; i < query_.group_ids.size(); ++i) {
      BlockId block = kNullBlockId;
      if (!get_cached_block(index, query_.group_ids[i], block)) {
        for (GroupId group : query_.group_ids.first(i)) blocks_[group].pop_back();
        return false;
      }
      blocks_[query_.group_ids[i]].push_back(block);
    }
    return true;
  }

  /// Extends num_blocks by consecutive hits.
  std::uint32_t extend(std::uint32_t num_blocks) {
    while (num_blocks < max_num_blocks_ && append(num_blocks)) ++num_blocks;
    return num_blocks;
  }

  std::uint32_t full_attention() {
    std::uint32_t num_blocks = extend(resize(0));
    if (query_.drop_eagle_block && num_blocks > 0) --num_blocks;
    return resize(num_blocks - num_blocks % aligned_blocks_);
  }

  /// Blocks before the chunk of the next token are hits without a lookup.
  std::uint32_t chunked_local() {
    const std::uint32_t chunk = query_.spec.attention_chunk_size;
    const std::uint32_t start = query_.max_length / chunk * chunk;
    resize(0);
    return extend(resize(start / query_.spec.block_size));
  }

  /// Looks for the last window whose blocks all hit. The leftmost miss of a window rules out every
  /// window that contains it, so the search goes on before it. The hits before the miss are the
  /// right end of the rest, and are not probed again.
  std::uint32_t sliding_window() {
    const std::uint32_t num_wanted =
        contiguous_blocks_for_hit(query_.spec, query_.drop_eagle_block);
    const std::uint32_t num_after =  // blocks of a run that lie after an aligned boundary
        query_.drop_eagle_block && query_.aligns_after_drop ? 1 : 0;
    resize(0);
    std::uint32_t end = resize(max_num_blocks_);
    std::uint32_t first_known = end;  // blocks [first_known, end) hit
    while (end > 0) {
      end -= (end - num_after) % aligned_blocks_;
      first_known = std::min(first_known, end);
      const std::uint32_t begin = end - std::min(end, std::max(num_wanted, 1U));
      const std::uint32_t miss = leftmost_miss(begin, first_known);
      if (miss == first_known) break;
      first_known = begin;
      end = miss;
    }
    resize(end);
    // A run that reaches the start of the request is a hit whatever its length; upstream cuts it to
    // a boundary before it drops the block that eagle looked ahead for.
    if (end < num_wanted) end -= end % aligned_blocks_;
    if (query_.drop_eagle_block && end > 0) {
      --end;
      end -= end % aligned_blocks_;
    }
    return resize(end);
  }

  std::uint32_t leftmost_miss(std::uint32_t begin, std::uint32_t end) {
    for (; begin < end; ++begin) {
      if (!place(begin)) break;
    }
    return begin;
  }

  std::uint32_t mamba() {
    resize(0);
    std::uint32_t num_blocks = max_num_blocks_;
    num_blocks -= num_blocks % aligned_blocks_;
    for (; num_blocks > 0; num_blocks -= aligned_blocks_) {
      if (append(num_blocks - 1)) break;
    }
    if (num_blocks == 0) return 0;
    for (GroupId group : query_.group_ids) {
      std::vector<BlockId>& blocks = blocks_[group];
      blocks.insert(blocks.begin(), num_blocks - 1, kNullBlockId);
    }
    return num_blocks;
  }

  const BlockPool& pool_;
  const CacheHitQuery& query_;
  BlocksByGroup& blocks_;
  BlockHashListView hashes_;
  std::uint32_t max_num_blocks_;
  std::uint32_t aligned_blocks_;  ///< blocks from one aligned boundary to the next
};

}  // namespace

std::uint32_t contiguous_blocks_for_hit(const KVCacheSpec& spec, bool drop_eagle_block) {
  const std::uint32_t num_blocks = (spec.sliding_window - 1) / spec.block_size +
                                   ((spec.sliding_window - 1) % spec.block_size != 0 ? 1 : 0);
  return num_blocks + (drop_eagle_block ? 1 : 0);
}

std::uint32_t find_longest_cache_hit(const BlockPool& pool, const CacheHitQuery& query,
                                     BlocksByGroup& blocks) {
  KVFENCE_CHECK(!query.group_ids.empty(), "a lookup in no group");
  return Search(pool, query, blocks).run();
}

}  // namespace kvfence::optimized
