#include "contract/connectors/offloading/offloading_connector.h"

#include <algorithm>

namespace kvfence {

std::optional<std::string> check_spec(const OffloadingSpec& spec) {
  if (auto expected = check_config(spec.manager)) return expected;
  if (spec.block_size_factor == 0) return "a positive block_size_factor";
  if (spec.num_workers == 0) return "a positive world_size";
  const std::vector<KVCacheSpec>& groups = spec.kv_cache.groups;
  const std::uint32_t hash_block_size = spec.kv_cache.pool.hash.hash_block_size;
  const bool fences = spec.manager.rules.offload_fences_reuse;
  if (spec.has_tiers) {
    if (auto expected = check_tiering_config(spec.manager)) return expected;
    if (spec.request_level_policy) return "no request_level_policy: each tier says what it wants";
  }
  if (!fences) {
    const bool fits = groups.size() == 1 &&
                      groups.front().kind == KVCacheSpecKind::kFullAttention &&
                      groups.front().block_size == hash_block_size;
    if (!fits) return "one group of full attention with blocks of hash_block_size";
    return std::nullopt;
  }
  if (!all_of_kinds(groups, {KVCacheSpecKind::kFullAttention, KVCacheSpecKind::kSlidingWindow,
                             KVCacheSpecKind::kMamba})) {
    return "groups of full attention, sliding window or mamba";
  }
  const bool all_divided = std::ranges::all_of(
      groups, [&](const KVCacheSpec& group) { return group.block_size % hash_block_size == 0; });
  if (!all_divided) return "block sizes that are multiples of hash_block_size";
  return std::nullopt;
}

}  // namespace kvfence
