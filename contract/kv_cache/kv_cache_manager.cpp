#include "contract/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <numeric>

#include "contract/core/lists.h"

namespace kvfence {
namespace {

std::optional<std::string> check_group(const KVCacheManagerConfig& config, const KVCacheSpec& spec,
                                       bool is_eagle) {
  const std::uint32_t aligned = config.scheduler_block_size();
  const bool is_aligned = spec.block_size == aligned;
  if (spec.block_size % config.pool.hash.hash_block_size != 0 ||
      spec.block_size > config.pool.max_block_size) {
    return "a block size that is a multiple of hash_block_size and at most max_block_size";
  }
  const auto only_for = [&spec](KVCacheSpecKind kind, bool is_set) {
    return is_set && spec.kind != kind;
  };
  if (only_for(KVCacheSpecKind::kSlidingWindow, spec.sliding_window > 0) ||
      only_for(KVCacheSpecKind::kChunkedLocal, spec.attention_chunk_size > 0) ||
      only_for(KVCacheSpecKind::kMamba, spec.mamba_align || spec.num_speculative_blocks > 0) ||
      only_for(KVCacheSpecKind::kSinkFullAttention, spec.sink_len > 0)) {
    return "settings of the group's own kind alone";
  }
  if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
    if (spec.sliding_window == 0) return "a window of at least one token";
    if (is_eagle && !is_aligned && !config.pool.rules.eagle_by_group) {
      return "a sliding window with eagle whose block size is that of all groups";
    }
  } else if (spec.kind == KVCacheSpecKind::kChunkedLocal) {
    if (spec.attention_chunk_size == 0) return "a chunk of at least one token";
    if (is_eagle) return "chunked local attention without eagle";
    if (!is_aligned) return "chunked local attention whose block size is that of all groups";
  } else if (spec.kind == KVCacheSpecKind::kCrossAttention) {
    if (config.pool.enable_caching) return "cross attention without prefix caching";
  } else if (spec.kind == KVCacheSpecKind::kSinkFullAttention) {
    if (!config.pool.rules.sink_groups) return "no attention sink in this profile";
    if (spec.sink_len == 0 || spec.sink_len % spec.block_size != 0) {
      return "a sink of a positive multiple of the block size";
    }
  }
  return std::nullopt;
}

}  // namespace

bool all_of_kinds(std::span<const KVCacheSpec> groups,
                  std::initializer_list<KVCacheSpecKind> kinds) {
  return std::ranges::all_of(groups,
                             [&](const KVCacheSpec& group) { return contains(kinds, group.kind); });
}

std::string_view event_name(KVCacheSpecKind kind) {
  constexpr std::string_view kNames[] = {"full_attention",          "sliding_window",
                                         "chunked_local_attention", "mamba",
                                         "cross_attention",         "sink_full_attention"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint32_t KVCacheManagerConfig::scheduler_block_size() const {
  std::uint32_t multiple = 1;
  for (const KVCacheSpec& group : groups)
    multiple = std::lcm(multiple, std::max(group.block_size, 1U));
  return multiple;
}

std::uint32_t KVCacheManagerConfig::num_usable_blocks() const {
  std::uint32_t num_taken = 1;
  for (const KVCacheSpec& group : groups) {
    if (group.kind == KVCacheSpecKind::kSinkFullAttention) {
      num_taken += group.sink_len / group.block_size;
    }
  }
  return pool.num_gpu_blocks - num_taken;
}

bool KVCacheManagerConfig::is_eagle_group(GroupId group) const {
  if (!use_eagle) return false;
  if (!pool.rules.eagle_by_group || eagle_groups.empty()) return true;
  return contains(eagle_groups, group);
}

bool hit_may_overshoot(const KVCacheManagerConfig& config) {
  const KVCacheSpec* first_full = nullptr;
  for (const KVCacheSpec& spec : config.groups) {
    // Only the first spec of full attention is cut to what the others have.
    if (spec.is_full_attention()) {
      if (first_full && !(*first_full == spec)) return true;
      first_full = &spec;
    }
    // Upstream looks a block further for eagle, and Mamba does not give it back.
    if (spec.kind != KVCacheSpecKind::kMamba || !config.pool.rules.eagle_by_group) continue;
    for (GroupId group = 0; group < config.groups.size(); ++group) {
      if (config.groups[group] == spec && config.is_eagle_group(group)) return true;
    }
  }
  return false;
}

std::optional<std::string> check_config(const KVCacheManagerConfig& config) {
  if (config.groups.empty()) return "at least one group";
  const Rules& rules = config.pool.rules;
  if (rules.sliding_window_mask && !rules.cache_full_blocks_mask) {
    return "sliding_window_mask together with cache_full_blocks_mask";
  }
  if (rules.unhashed_blocks_first && !rules.free_blocks_prepend) {
    return "unhashed_blocks_first together with free_blocks_prepend";
  }
  if (config.max_model_len == 0) return "a max_model_len of at least one token";
  std::uint64_t num_sink_blocks = 0;
  bool has_window = false;
  bool all_equal = true;
  for (GroupId group = 0; group < config.groups.size(); ++group) {
    const KVCacheSpec& spec = config.groups[group];
    if (spec.block_size == 0) return "a block size of at least one token";
    if (auto problem = check_group(config, spec, config.is_eagle_group(group))) return problem;
    num_sink_blocks += spec.sink_len / spec.block_size;
    has_window = has_window || spec.kind == KVCacheSpecKind::kSlidingWindow;
    all_equal = all_equal && spec == config.groups.front();
  }
  for (GroupId group : config.eagle_groups) {
    if (group >= config.groups.size()) return "eagle_groups below the number of groups";
  }
  if (num_sink_blocks > config.pool.num_gpu_blocks - 1) return "sinks that fit into the pool";
  if (config.pool.enable_caching && config.groups.size() == 1 &&
      config.groups.front().block_size != config.pool.hash.hash_block_size) {
    return "a single group whose block size is hash_block_size";
  }
  if (config.pool.enable_caching && config.groups.size() > 1 && all_equal) {
    return "two different groups at least, or prefix caching off";
  }
  if (config.retention_interval) {
    if (!config.pool.rules.sliding_window_mask) return "no retention_interval in this profile";
    if (!has_window) return "retention_interval with a sliding-window group";
    if (*config.retention_interval % config.scheduler_block_size() != 0) {
      return "a retention_interval that is a multiple of the groups' common block size";
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
