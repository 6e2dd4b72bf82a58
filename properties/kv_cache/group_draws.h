#pragma once

/// The groups from which generators build configurations, and the capacity of these.

#include <algorithm>
#include <cstdint>

#include "contract/kv_cache/kv_cache_manager.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/draws/choices.h"

namespace kvfence {

inline KVCacheSpec full(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kFullAttention, .block_size = block_size};
}

/// num_tokens: of the window.
inline KVCacheSpec window_of(std::uint32_t num_tokens, std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kSlidingWindow,
          .block_size = block_size,
          .sliding_window = num_tokens};
}

/// A window of up to three blocks, or now and then of up to twelve tokens.
inline KVCacheSpec draw_window(Choices& choices, std::uint32_t block_size) {
  const std::uint32_t most = std::max(3 * block_size, choices.once_in(4) ? 12U : 0U);
  return window_of(1 + choices.below(most), block_size);
}

inline KVCacheSpec mamba(std::uint32_t block_size) {
  return {.kind = KVCacheSpecKind::kMamba, .block_size = block_size};
}

/// Mamba in align mode, now and then with speculative blocks.
inline KVCacheSpec draw_align(Choices& choices, std::uint32_t block_size) {
  KVCacheSpec spec = mamba(block_size);
  spec.mamba_align = true;
  if (choices.once_in(4)) spec.num_speculative_blocks = 1 + choices.below(2);
  return spec;
}

namespace kv_cache {

/// Tokens: the least common multiple of the groups' block sizes.
std::uint32_t common_block_size(const Config& config);

/// Tokens of one request that fill the pool, about.
std::uint32_t capacity_of(const Config& config);

/// With eagle, under rules that name groups: mostly some of them, else none, so that eagle is one
/// setting for all.
inline void draw_eagle_groups(Choices& choices, Config& config) {
  if (!config.use_eagle || !rules_of(config.profile).eagle_by_group || choices.once_in(3)) return;
  for (GroupId group = 0; group < config.groups.size(); ++group) {
    if (choices.once_in(2)) config.eagle_groups.push_back(group);
  }
}

}  // namespace kv_cache

}  // namespace kvfence
