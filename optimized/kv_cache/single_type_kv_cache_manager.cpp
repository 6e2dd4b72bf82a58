#include "optimized/kv_cache/single_type_kv_cache_manager.h"

#include <algorithm>
#include <string_view>

#include "contract/core/check.h"
#include "contract/core/status.h"
#include "optimized/kv_cache/cache_hit_search.h"

namespace kvfence::optimized {
namespace {

/// The most blocks of a window or a chunk while a prefill runs in batches; none for other kinds.
/// Source: vLLM v0.23.0 v1/kv_cache_interface.py max_admission_blocks_per_request.
std::optional<std::int64_t> max_admission_blocks(const KVCacheManagerConfig& config,
                                                 const KVCacheSpec& spec) {
  const auto blocks_of = [&](std::int64_t num_kept_tokens) {
    const std::int64_t num_tokens = std::min<std::int64_t>(
        num_kept_tokens + config.max_num_batched_tokens, config.max_model_len);
    return (num_tokens + spec.block_size - 1) / spec.block_size;
  };
  if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
    // The window may begin inside a block.
    return blocks_of(std::int64_t{spec.sliding_window} - 1) + 1;
  }
  if (spec.kind == KVCacheSpecKind::kChunkedLocal) return blocks_of(spec.attention_chunk_size);
  return std::nullopt;
}

void expect_success(ErrorCode code) {
  KVFENCE_CHECK(code == ErrorCode::kNone, "the pool refused what the manager holds");
}

}  // namespace

SingleTypeKVCacheManager::SingleTypeKVCacheManager(const KVCacheManagerConfig& config,
                                                   GroupId group, bool use_eagle, BlockPool& pool)
    : spec_(config.groups[group]),
      group_(group),
      rules_(config.pool.rules),
      enable_caching_(config.pool.enable_caching),
      use_eagle_(use_eagle),
      scheduler_block_size_(config.scheduler_block_size()),
      retention_interval_(config.retention_interval),
      max_admission_blocks_(max_admission_blocks(config, spec_)),
      cached_blocks_this_step_(config.pool.table_secret) {
  if (is(KVCacheSpecKind::kSinkFullAttention)) {
    expect_success(pool.take_sink_blocks(spec_.sink_len / spec_.block_size));
  }
}

std::int64_t SingleTypeKVCacheManager::num_required_blocks(const SlotDemand& demand) const {
  if (is(KVCacheSpecKind::kMamba)) {
    // Draft models have no Mamba layers: align ignores lookahead, which would break its alignment.
    return cdiv(spec_.mamba_align ? demand.num_tokens_main_model : demand.num_tokens) +
           spec_.num_speculative_blocks;
  }
  if (is(KVCacheSpecKind::kCrossAttention)) return cdiv(demand.num_encoder_tokens);
  return cdiv(demand.num_tokens);
}

/// Leading tokens to which the next one does not attend.
std::int64_t SingleTypeKVCacheManager::num_skipped_tokens(std::int64_t num_computed_tokens) const {
  std::int64_t num_skipped = 0;
  switch (spec_.kind) {
    case KVCacheSpecKind::kSlidingWindow:
      num_skipped = num_computed_tokens - spec_.sliding_window + 1;
      break;
    case KVCacheSpecKind::kChunkedLocal:
      num_skipped = num_computed_tokens / spec_.attention_chunk_size * spec_.attention_chunk_size;
      break;
    case KVCacheSpecKind::kMamba:
      num_skipped = num_computed_tokens - 1;
      break;
    case KVCacheSpecKind::kFullAttention:
    case KVCacheSpecKind::kCrossAttention:
    case KVCacheSpecKind::kSinkFullAttention:
      break;
  }
  return std::max<std::int64_t>(num_skipped, 0);
}

/// The blocks of a hit that leave the free queue when they are touched.
std::int64_t SingleTypeKVCacheManager::num_evictable_blocks(const BlockPool& pool,
                                                            std::span<const BlockId> hit) const {
  return std::ranges::count_if(
      hit, [&pool](BlockId block) { return block != kNullBlockId && pool.ref_cnt(block) == 0; });
}

std::int64_t SingleTypeKVCacheManager::get_num_blocks_to_allocate(const BlockPool& pool,
                                                                  const SlotDemand& demand,
                                                                  std::span<const BlockId> hit,
                                                                  bool apply_admission_cap) const {
  const RequestBlocks& row = table_.row(demand.request);
  const auto num_row_blocks = static_cast<std::int64_t>(row.blocks.size());
  const auto num_hit_blocks = static_cast<std::int64_t>(hit.size());
  std::int64_t num_required = num_required_blocks(demand);
  if (is(KVCacheSpecKind::kMamba)) {
    if (!hit.empty() && cached_blocks_this_step_.contains(pool.block_key(hit.back()))) {
      // More than any pool has: the state will exist only in the next step.
      return std::int64_t{pool.config().num_gpu_blocks} + 1;
    }
    if (spec_.mamba_align) {
      std::int64_t num_new = num_required - num_hit_blocks - num_row_blocks;
      if (num_new > 0) num_new = row.has_running_state ? 1 : 1 + spec_.num_speculative_blocks;
      return num_new + num_evictable_blocks(pool, hit);
    }
  }
  if (apply_admission_cap && max_admission_blocks_) {
    num_required = std::min(num_required, *max_admission_blocks_);
  }
  if (row.is_running) return std::max<std::int64_t>(num_required - num_row_blocks, 0);

  const std::int64_t num_skipped_blocks =
      num_skipped_tokens(demand.num_computed_tokens()) / spec_.block_size;
  const std::int64_t num_local_blocks = num_hit_blocks + num_row_blocks;
  const std::int64_t num_skipped_hit_blocks =
      std::clamp<std::int64_t>(num_skipped_blocks - num_row_blocks, 0, num_hit_blocks);
  return std::max<std::int64_t>(num_required - std::max(num_skipped_blocks, num_local_blocks), 0) +
         num_evictable_blocks(pool, hit.subspan(static_cast<std::size_t>(num_skipped_hit_blocks)));
}

SingleTypeKVCacheManager::ComputedLayout SingleTypeKVCacheManager::computed_layout(
    const SlotDemand& demand, std::size_t num_hit_blocks) const {
  const std::int64_t num_computed_tokens = demand.num_computed_tokens();
  const std::int64_t num_skipped = num_skipped_tokens(num_computed_tokens);
  ComputedLayout layout;
  layout.num_skipped_blocks = num_skipped / spec_.block_size;
  layout.num_local_blocks =
      std::max(layout.num_skipped_blocks, static_cast<std::int64_t>(num_hit_blocks));
  // A window may need none of the external tokens.
  const bool needs_external = demand.num_external_computed_tokens > 0 &&
                              (layout.num_skipped_blocks == 0 || num_computed_tokens > num_skipped);
  if (needs_external) {
    layout.num_external_blocks =
        std::max<std::int64_t>(cdiv(num_computed_tokens) - layout.num_local_blocks, 0);
  }
  return layout;
}

/// Blocks that allocate_new_blocks takes for a table of that size.
std::int64_t SingleTypeKVCacheManager::num_new_blocks(const RequestBlocks& row,
                                                      const SlotDemand& demand,
                                                      std::int64_t table_size) const {
  const std::int64_t num_required = num_required_blocks(demand);
  if (num_required <= table_size) return 0;
  if (!is_mamba_align()) return num_required - table_size;
  if (row.has_running_state) return 1;
  return num_required - std::max(table_size, num_required - spec_.num_speculative_blocks - 1);
}

std::int64_t SingleTypeKVCacheManager::num_blocks_taken(const BlockPool& pool,
                                                        const SlotDemand& demand,
                                                        std::span<const BlockId> hit) {
  const RequestBlocks& row = table_[demand.request];
  if (!demand.has_computed_blocks || row.is_running || is(KVCacheSpecKind::kCrossAttention)) {
    return num_new_blocks(row, demand, static_cast<std::int64_t>(row.blocks.size()));
  }
  const ComputedLayout layout = computed_layout(demand, hit.size());
  const std::size_t num_skipped_hit_blocks =
      std::min(hit.size(), static_cast<std::size_t>(layout.num_skipped_blocks));
  return num_evictable_blocks(pool, hit.subspan(num_skipped_hit_blocks)) +
         layout.num_external_blocks +
         num_new_blocks(row, demand, layout.num_local_blocks + layout.num_external_blocks);
}

std::int64_t SingleTypeKVCacheManager::num_settled_tokens(RequestIndex request,
                                                          std::int64_t num_computed_tokens,
                                                          std::int64_t num_lookahead_tokens) const {
  if (is_mamba_align() || is(KVCacheSpecKind::kCrossAttention)) return 0;
  const RequestBlocks& row = table_.row(request);
  const std::int64_t block_size = spec_.block_size;
  const std::int64_t num_slots =
      (static_cast<std::int64_t>(row.blocks.size()) - spec_.num_speculative_blocks) * block_size;
  std::int64_t num_tokens = num_slots - num_lookahead_tokens;
  if (enable_caching_) {
    num_tokens = std::min(num_tokens, (row.num_cached_blocks + 1) * block_size - 1);
  }
  if (spec_.is_full_attention()) return num_tokens;
  // One more computed token than this lets the next block be dropped.
  std::int64_t num_computed_max = 0;
  if (is(KVCacheSpecKind::kChunkedLocal)) {
    const std::int64_t chunk_size = spec_.attention_chunk_size;
    num_computed_max = (num_computed_tokens / chunk_size + 1) * chunk_size - 1;
  } else {
    const std::int64_t num_kept = is(KVCacheSpecKind::kMamba)
                                      ? std::int64_t{spec_.num_speculative_blocks} + 1
                                      : std::int64_t{spec_.sliding_window} - 1;
    const std::int64_t num_skipped_blocks =
        std::max<std::int64_t>(num_computed_tokens - num_kept, 0) / block_size;
    num_computed_max = (num_skipped_blocks + 1) * block_size + num_kept - 1;
  }
  return std::min(num_tokens, num_computed_max);
}

bool SingleTypeKVCacheManager::table_shrinks(const SlotDemand& demand) {
  if (!is_mamba_align() || rules_.mamba_align_keeps_blocks) return false;
  return num_required_blocks(demand) <
         static_cast<std::int64_t>(table_[demand.request].blocks.size());
}

void SingleTypeKVCacheManager::touch_computed_blocks(BlockPool& pool, const SlotDemand& demand,
                                                     std::span<const BlockId> hit) {
  RequestBlocks& row = table_[demand.request];
  if (row.is_running || is(KVCacheSpecKind::kCrossAttention)) return;
  const ComputedLayout layout = computed_layout(demand, hit.size());
  const auto num_skipped_blocks = static_cast<std::size_t>(layout.num_skipped_blocks);
  hit = hit.subspan(std::min(hit.size(), num_skipped_blocks));
  expect_success(pool.touch(hit));
  row.blocks.assign(num_skipped_blocks, kNullBlockId);
  row.blocks.insert(row.blocks.end(), hit.begin(), hit.end());
  row.num_cached_blocks = static_cast<std::uint32_t>(row.blocks.size());
  row.is_running = true;
}

void SingleTypeKVCacheManager::take_external_blocks(BlockPool& pool, const SlotDemand& demand) {
  if (is(KVCacheSpecKind::kCrossAttention)) return;
  RequestBlocks& row = table_[demand.request];
  append_new_blocks(pool, row, computed_layout(demand, row.blocks.size()).num_external_blocks);
}

void SingleTypeKVCacheManager::append_new_blocks(BlockPool& pool, RequestBlocks& row,
                                                 std::int64_t num_blocks) {
  if (num_blocks <= 0) return;
  const std::size_t num_before = row.blocks.size();
  row.blocks.resize(num_before + static_cast<std::size_t>(num_blocks));
  expect_success(pool.get_new_blocks(std::span(row.blocks).subspan(num_before)));
  if (is(KVCacheSpecKind::kFullAttention)) {
    new_block_ids_.insert(new_block_ids_.end(),
                          row.blocks.begin() + static_cast<std::ptrdiff_t>(num_before),
                          row.blocks.end());
  }
}

void SingleTypeKVCacheManager::allocate_new_blocks(BlockPool& pool, const SlotDemand& demand,
                                                   std::vector<BlockId>& out) {
  table_.set_allocated(demand.request);
  RequestBlocks& row = table_[demand.request];
  const std::size_t num_before = row.blocks.size();
  if (is_mamba_align()) {
    extend_mamba_align(pool, row, demand);
  } else {
    append_new_blocks(pool, row,
                      num_new_blocks(row, demand, static_cast<std::int64_t>(num_before)));
  }
  out.assign(row.blocks.begin() + static_cast<std::ptrdiff_t>(num_before), row.blocks.end());
}

/// The running state is in the last 1 + num_speculative_blocks blocks. They move on with the
/// request: null blocks fill the places that it jumps over, and speculative blocks that it passes
/// are reused at the end.
void SingleTypeKVCacheManager::extend_mamba_align(BlockPool& pool, RequestBlocks& row,
                                                  const SlotDemand& demand) {
  const auto num_before = static_cast<std::int64_t>(row.blocks.size());
  const std::int64_t num_speculative = spec_.num_speculative_blocks;
  const std::int64_t num_required = num_required_blocks(demand);
  if (num_required <= num_before) return;

  // The state that a hit ends with, or the one of the step before.
  if (row.has_running_state || num_before > 0) {
    row.last_state_block_idx =
        static_cast<std::int32_t>(num_before - 1 - (row.has_running_state ? num_speculative : 0));
  }
  const std::int64_t num_taken = num_new_blocks(row, demand, num_before);
  const std::int64_t state_idx = num_required - num_speculative - 1;
  if (num_before < state_idx) {
    row.blocks.resize(static_cast<std::size_t>(state_idx), kNullBlockId);
  }
  if (row.has_running_state) {
    for (std::int64_t i = std::max<std::int64_t>(num_before - num_speculative, 0);
         i < std::min(num_before, state_idx); ++i) {
      BlockId& speculative = row.blocks[static_cast<std::size_t>(i)];
      const BlockId block = speculative;
      speculative = kNullBlockId;
      row.blocks.push_back(block);
    }
  }
  append_new_blocks(pool, row, num_taken);
  row.has_running_state = true;
}

/// Which blocks of the range a later lookup can use: the windows that end at a boundary between
/// hits, and, with a retention interval, only the windows at its multiples and at the prompt's end.
/// Nothing means all blocks. Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py
/// reachable_block_mask.
std::optional<std::span<const std::uint8_t>> SingleTypeKVCacheManager::reachable_block_mask(
    std::uint32_t start_block, std::uint32_t end_block, const KVRequest& request) {
  if (!is(KVCacheSpecKind::kSlidingWindow) || !rules_.sliding_window_mask) return std::nullopt;
  const std::uint32_t num_wanted = contiguous_blocks_for_hit(spec_, use_eagle_);
  // With eagle a run ends one block after the boundary.
  const std::uint32_t shift = use_eagle_ ? 1 : 0;
  const std::uint32_t segment_blocks =
      retention_interval_.value_or(scheduler_block_size_) / spec_.block_size;
  if (segment_blocks > 0 && num_wanted >= segment_blocks) return std::nullopt;

  mask_.assign(end_block - start_block, 0);
  if (segment_blocks > 0) {
    for (std::uint32_t block = std::max(start_block, shift); block < end_block; ++block) {
      if ((block - shift) % segment_blocks >= segment_blocks - num_wanted) {
        mask_[block - start_block] = 1;
      }
    }
  }
  if (retention_interval_ && request.num_prompt_tokens > 0) {
    const std::uint32_t boundary =
        (request.num_prompt_tokens - 1) / scheduler_block_size_ * scheduler_block_size_;
    const std::uint32_t prompt_end_block = boundary / spec_.block_size + shift;
    const std::uint32_t first = prompt_end_block - std::min(prompt_end_block, num_wanted);
    for (std::uint32_t block = std::max(start_block, first);
         block < std::min(end_block, prompt_end_block); ++block) {
      mask_[block - start_block] = 1;
    }
  }
  return std::span<const std::uint8_t>(mask_);
}

void SingleTypeKVCacheManager::cache_blocks(BlockPool& pool, const KVRequest& request,
                                            std::uint32_t num_tokens) {
  RequestBlocks& row = table_[request.index];
  const std::uint32_t num_cached_blocks = row.num_cached_blocks;
  const std::uint32_t num_full_blocks = num_tokens / spec_.block_size;
  if (num_cached_blocks >= num_full_blocks) return;
  expect_success(pool.cache_full_blocks(
      {.request = request.request,
       .blocks = row.blocks,
       .num_cached_blocks = num_cached_blocks,
       .num_full_blocks = num_full_blocks,
       .block_size = spec_.block_size,
       .kv_cache_group_id = group_,
       .block_mask = reachable_block_mask(num_cached_blocks, num_full_blocks, request)}));
  row.num_cached_blocks = num_full_blocks;
  row.is_running = true;
  if (!is(KVCacheSpecKind::kMamba)) return;
  for (std::uint32_t i = num_cached_blocks; i < num_full_blocks; ++i) {
    const std::string_view key = pool.block_key(row.blocks[i]);
    if (!key.empty()) cached_blocks_this_step_.insert(key);  // the null block has none
  }
}

void SingleTypeKVCacheManager::collect_freed(const BlockPool& pool, BlockId block,
                                             bool unhashed_first) {
  const bool goes_first = unhashed_first && pool.block_key(block).empty();
  (goes_first ? freed_unhashed_ : freed_).push_back(block);
}

void SingleTypeKVCacheManager::free_collected(BlockPool& pool) {
  if (!freed_.empty()) expect_success(pool.free_blocks(freed_));
  if (!freed_unhashed_.empty()) expect_success(pool.free_blocks(freed_unhashed_, FreeTo::kHead));
  freed_.clear();
  freed_unhashed_.clear();
}

void SingleTypeKVCacheManager::free(BlockPool& pool, RequestIndex request) {
  if (!is_allocated(request)) return;
  const RequestBlocks& row = table_[request];
  const bool unhashed_first = rules_.unhashed_blocks_first && is(KVCacheSpecKind::kSlidingWindow);
  for (std::size_t i = row.blocks.size(); i > 0; --i) {
    if (row.blocks[i - 1] == kNullBlockId) {
      if (is_mamba_align()) continue;
      // In the other kinds, only null blocks lie before a null block.
      break;
    }
    collect_freed(pool, row.blocks[i - 1], unhashed_first);
  }
  free_collected(pool);
  table_.erase(request);
}

void SingleTypeKVCacheManager::remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                                                     std::int64_t num_computed_tokens) {
  if (!is_allocated(request)) return;
  RequestBlocks& row = table_[request];
  if (is(KVCacheSpecKind::kMamba)) {
    // Drafts among the computed tokens may still be rejected.
    num_computed_tokens =
        std::max<std::int64_t>(num_computed_tokens - spec_.num_speculative_blocks, 0);
  }
  const std::int64_t num_skipped_blocks =
      num_skipped_tokens(num_computed_tokens) / spec_.block_size;
  auto i = static_cast<std::size_t>(
      std::min(num_skipped_blocks, static_cast<std::int64_t>(row.blocks.size())));
  // Earlier calls have removed the blocks before a null block.
  for (; i > 0 && row.blocks[i - 1] != kNullBlockId; --i) {
    collect_freed(pool, row.blocks[i - 1], rules_.unhashed_blocks_first);
    row.blocks[i - 1] = kNullBlockId;
  }
  free_collected(pool);

  // The state of the step before last has been copied on by now, wherever it lies.
  if (!is_mamba_align() || row.last_state_block_idx < 0 ||
      row.last_state_block_idx >= cdiv(num_computed_tokens) - 1) {
    return;
  }
  BlockId& last_state = row.blocks[static_cast<std::size_t>(row.last_state_block_idx)];
  if (last_state == kNullBlockId) return;
  collect_freed(pool, last_state, /*unhashed_first=*/false);
  last_state = kNullBlockId;
  free_collected(pool);
}

std::uint32_t SingleTypeKVCacheManager::get_num_common_prefix_blocks(const BlockPool& pool,
                                                                     RequestIndex request) const {
  if (!spec_.is_full_attention()) return 0;
  std::uint32_t num_common_blocks = 0;
  for (BlockId block : blocks(request)) {
    if (pool.ref_cnt(block) != table_.num_requests()) break;
    ++num_common_blocks;
  }
  return num_common_blocks;
}

void SingleTypeKVCacheManager::take_new_block_ids(std::vector<std::uint32_t>& out) {
  out.insert(out.end(), new_block_ids_.begin(), new_block_ids_.end());
  new_block_ids_.clear();
}

}  // namespace kvfence::optimized
