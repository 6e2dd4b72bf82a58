#include "contract/connectors/simple/simple_cpu_offload.h"

#include <algorithm>

namespace kvfence {

std::optional<std::string> check_spec(const SimpleCPUOffloadSpec& spec) {
  if (!spec.kv_cache.pool.enable_caching) return "prefix caching, without which nothing is stored";
  if (spec.num_cpu_blocks == 0) return "a positive num_cpu_blocks";
  if (spec.num_workers == 0) return "a positive world_size";
  const std::vector<KVCacheSpec>& groups = spec.kv_cache.groups;
  if (!all_of_kinds(groups, {KVCacheSpecKind::kFullAttention, KVCacheSpecKind::kSlidingWindow,
                             KVCacheSpecKind::kMamba})) {
    return "groups of full attention, sliding window or mamba";
  }
  const auto reference =
      std::ranges::find(groups, KVCacheSpecKind::kFullAttention, &KVCacheSpec::kind);
  if (reference == groups.end()) return "a group of full attention";
  const KVCacheManagerConfig cpu = cpu_kv_cache_config(spec);
  for (GroupId group = 0; group < groups.size(); ++group) {
    if (groups[group].kind == KVCacheSpecKind::kMamba && cpu.is_eagle_group(group)) {
      return "no group of mamba in eagle_groups";
    }
  }
  if (spec.kv_cache.pool.rules.simple_offload_pins_hits) return std::nullopt;
  if (cpu.use_eagle) return "simple_offload_pins_hits together with eagle_groups";
  if (reference->block_size != spec.kv_cache.pool.hash.hash_block_size) {
    return "a first group of full attention with blocks of hash_block_size";
  }
  const bool has_narrow_window = std::ranges::any_of(groups, [](const KVCacheSpec& group) {
    return group.kind == KVCacheSpecKind::kSlidingWindow && group.sliding_window < 2;
  });
  if (has_narrow_window) return "sliding windows of at least 2 tokens";
  return std::nullopt;
}

KVCacheManagerConfig cpu_kv_cache_config(const SimpleCPUOffloadSpec& spec) {
  KVCacheManagerConfig config = spec.kv_cache;
  config.pool.num_gpu_blocks = spec.num_cpu_blocks;
  config.pool.enable_kv_cache_events = false;
  config.use_eagle =
      config.use_eagle && config.pool.rules.eagle_by_group && !config.eagle_groups.empty();
  if (!config.use_eagle) config.eagle_groups.clear();
  return config;
}

}  // namespace kvfence
