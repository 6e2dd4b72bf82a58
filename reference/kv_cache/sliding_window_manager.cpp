#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include <algorithm>

namespace kvfence::reference {
namespace {

/// Sliding window: the next token reads itself and the sliding_window - 1 tokens before it; blocks
/// before that are given back. Source: vLLM v0.19.0 and v0.23.0
/// v1/core/single_type_kv_cache_manager.py SlidingWindowManager.
class SlidingWindowManager final : public Cloning<SlidingWindowManager, SingleTypeKVCacheManager> {
 public:
  using Cloning::Cloning;

  // Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py SlidingWindowManager.free
  void free(BlockPool& pool, RequestIndex request) override {
    free_table(pool, request, config_.pool.rules.unhashed_blocks_first);
  }

  // The rightmost run of blocks that fills a window, looked for from the right; null blocks before
  // it. A run starts only where the hit would end aligned. Without a full window, the run that
  // reaches the start of the request counts. A run of one block already ends the search where a
  // window needs none. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // SlidingWindowManager.find_longest_cache_hit; alignment after the dropped block: v0.23.0, the
  // same function (v0.19.0 refuses eagle with another alignment than the block size)
  BlocksByGroup find_longest_cache_hit(const BlockPool& pool, const Lookup& lookup) const override {
    const std::size_t num_needed = contiguous_blocks_for_hit(lookup.drop_eagle_block);
    const std::size_t num_blocks_max = lookup.max_length / block_size_;
    BlocksByGroup computed_blocks(lookup.group_ids.size(),
                                  std::vector<BlockId>(num_blocks_max, kNullBlockId));
    std::size_t num_contiguous = 0;
    std::size_t hit_end = 0;  // 0: no full window yet
    for (std::size_t i = num_blocks_max; i-- > 0 && hit_end == 0;) {
      const auto cached = get_cached_block(pool, lookup, i);
      if (!cached) {
        num_contiguous = 0;
        continue;
      }
      const std::size_t num_blocks_left = lookup.drop_eagle_block ? i : i + 1;
      if (num_contiguous == 0 && block_size_ != lookup.alignment_tokens &&
          num_blocks_left * block_size_ % lookup.alignment_tokens != 0) {
        continue;
      }
      for (std::size_t g = 0; g < cached->size(); ++g) computed_blocks[g][i] = (*cached)[g];
      ++num_contiguous;
      if (num_contiguous >= num_needed) hit_end = i + num_contiguous;
    }

    const bool match_found = hit_end > 0;
    for (std::vector<BlockId>& blocks : computed_blocks) {
      blocks.resize(match_found ? hit_end : num_contiguous);
    }
    if (!match_found) align(computed_blocks, block_size_, lookup.alignment_tokens);
    if (lookup.drop_eagle_block && !computed_blocks.front().empty()) {
      for (std::vector<BlockId>& blocks : computed_blocks) blocks.pop_back();
      align(computed_blocks, block_size_, lookup.alignment_tokens);
    }
    return computed_blocks;
  }

 protected:
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // SlidingWindowManager.get_num_skipped_tokens
  std::size_t get_num_skipped_tokens(std::size_t num_computed_tokens) const override {
    return minus_or_0(num_computed_tokens + 1, spec_.sliding_window);
  }

  // The window and what is being computed, which may start within a block.
  // Source: vLLM v0.23.0 v1/kv_cache_interface.py
  // SlidingWindowSpec.max_admission_blocks_per_request
  std::optional<std::size_t> max_admission_blocks_per_request() const override {
    const std::size_t num_tokens = std::min<std::size_t>(
        spec_.sliding_window - 1 + std::size_t{config_.max_num_batched_tokens},
        config_.max_model_len);
    return cdiv(num_tokens, block_size_) + 1;
  }

  // A hit ends at a multiple of scheduler_block_size, so only the blocks of a window before such a
  // boundary (one further with eagle) are ever asked for. A retention interval keeps fewer
  // boundaries: its multiples (none for 0), and the last one that a replay of the prompt can reach.
  // Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py
  // SlidingWindowManager.reachable_block_mask
  std::optional<std::vector<std::uint8_t>> reachable_block_mask(
      std::size_t start_block, std::size_t end_block,
      std::size_t num_prompt_tokens) const override {
    const std::size_t num_needed = contiguous_blocks_for_hit(use_eagle_);
    const std::size_t shift = use_eagle_ ? 1 : 0;
    std::vector<std::uint8_t> mask(end_block - start_block, 0);

    const std::size_t scheduler_block_size = config_.scheduler_block_size();
    const std::size_t segment_tokens = config_.retention_interval.value_or(scheduler_block_size);
    if (segment_tokens > 0) {
      const std::size_t num_segment_blocks = segment_tokens / block_size_;
      if (num_needed >= num_segment_blocks) return std::nullopt;
      for (std::size_t i = std::max(start_block, shift); i < end_block; ++i) {
        const std::size_t place = (i - shift) % num_segment_blocks;
        if (place >= num_segment_blocks - num_needed) mask[i - start_block] = 1;
      }
    }

    if (config_.retention_interval && num_prompt_tokens > 0) {
      const std::size_t num_boundaries = (num_prompt_tokens - 1) / scheduler_block_size;
      const std::size_t prompt_end_block =
          num_boundaries * scheduler_block_size / block_size_ + shift;
      const std::size_t first = std::max(start_block, minus_or_0(prompt_end_block, num_needed));
      const std::size_t end = std::min(end_block, prompt_end_block);
      for (std::size_t i = first; i < end; ++i) mask[i - start_block] = 1;
    }
    return mask;
  }

 private:
  /// Blocks in a row that a hit needs, the one that is dropped for eagle included.
  // The window holds the token to be computed, which needs no block yet.
  // Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
  // SlidingWindowManager.find_longest_cache_hit; v0.23.0 _contiguous_blocks_for_hit
  std::size_t contiguous_blocks_for_hit(bool drops_eagle_block) const {
    return cdiv(spec_.sliding_window - 1, block_size_) + (drops_eagle_block ? 1 : 0);
  }
};

}  // namespace

std::unique_ptr<SingleTypeKVCacheManager> make_sliding_window_manager(
    const KVCacheManagerConfig& config, GroupId group) {
  return std::make_unique<SlidingWindowManager>(config, group);
}

}  // namespace kvfence::reference
