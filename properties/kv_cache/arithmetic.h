#pragma once

/// Numbers of blocks and tokens by the kind of a group: arithmetic that the generator, the rules
/// and the coverage goals of target kv_cache share.
///
/// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py get_num_skipped_tokens.

#include <algorithm>
#include <cstdint>

#include "contract/kv_cache/kv_cache_manager.h"

namespace kvfence::kv_cache {

/// Blocks that hold so many tokens. Requires: block_size > 0.
inline std::uint32_t blocks_for(std::uint64_t num_tokens, std::uint32_t block_size) {
  return static_cast<std::uint32_t>((num_tokens + block_size - 1) / block_size);
}

/// Whether a Mamba group keeps states only at the ends of blocks.
inline bool is_mamba_align(const KVCacheSpec& spec) {
  return spec.kind == KVCacheSpecKind::kMamba && spec.mamba_align;
}

/// Leading tokens of a request that its group no longer needs once so many are computed.
inline std::uint64_t num_skipped_tokens(const KVCacheSpec& spec, std::uint64_t num_computed) {
  switch (spec.kind) {
    case KVCacheSpecKind::kSlidingWindow:
      return num_computed + 1 > spec.sliding_window ? num_computed + 1 - spec.sliding_window : 0;
    case KVCacheSpecKind::kChunkedLocal:
      return num_computed / spec.attention_chunk_size * spec.attention_chunk_size;
    case KVCacheSpecKind::kMamba:
      return num_computed > 0 ? num_computed - 1 : 0;
    case KVCacheSpecKind::kFullAttention:
    case KVCacheSpecKind::kCrossAttention:
    case KVCacheSpecKind::kSinkFullAttention:
      return 0;
  }
  return 0;
}

/// The whole blocks among them.
inline std::uint32_t num_skipped_blocks(const KVCacheSpec& spec, std::uint64_t num_computed) {
  return static_cast<std::uint32_t>(num_skipped_tokens(spec, num_computed) / spec.block_size);
}

/// What remove_skipped_blocks drops: Mamba keeps what rejected speculative tokens might need again.
inline std::uint32_t num_droppable_blocks(const KVCacheSpec& spec, std::uint64_t num_computed) {
  if (spec.kind != KVCacheSpecKind::kMamba) return num_skipped_blocks(spec, num_computed);
  const std::uint64_t kept = std::min<std::uint64_t>(num_computed, spec.num_speculative_blocks);
  return num_skipped_blocks(spec, num_computed - kept);
}

/// Blocks that a window's hit has to end with. The token to come is in the window too.
inline std::uint32_t num_window_blocks(const KVCacheSpec& spec) {
  return blocks_for(spec.sliding_window - 1, spec.block_size);
}

/// The first block that a group needs of a hit of `length` blocks; those before it may be null.
inline std::uint32_t first_needed_block(const KVCacheSpec& spec, std::uint32_t length) {
  switch (spec.kind) {
    case KVCacheSpecKind::kSlidingWindow:
      return length - std::min(length, num_window_blocks(spec));
    case KVCacheSpecKind::kMamba:
      return length - std::min(length, 1U);
    case KVCacheSpecKind::kChunkedLocal:
      return num_skipped_blocks(spec, std::uint64_t{length} * spec.block_size);
    default:
      return 0;
  }
}

/// Blocks that sinks took at construction: the first of the queue, ids 1 to this number.
inline std::uint32_t num_sink_blocks(const KVCacheManagerConfig& config) {
  std::uint32_t total = 0;
  for (const KVCacheSpec& spec : config.groups) total += spec.sink_len / spec.block_size;
  return total;
}

}  // namespace kvfence::kv_cache
