#include "optimized/kv_cache/kv_cache_coordinator.h"

#include <algorithm>

#include "contract/core/check.h"
#include "optimized/kv_cache/cache_hit_search.h"

namespace kvfence::optimized {
namespace {

/// The lookup keeps a bit for each.
constexpr std::size_t kNumSpecGroupsMax = 64;

std::span<const BlockId> hit_of(const ComputedBlocks* hit, std::size_t group) {
  return hit ? std::span<const BlockId>(hit->blocks[group]) : std::span<const BlockId>();
}

}  // namespace

KVCacheCoordinator::KVCacheCoordinator(const KVCacheManagerConfig& config)
    : enable_caching_(config.pool.enable_caching),
      eagle_by_group_(config.pool.rules.eagle_by_group),
      external_blocks_after_hits_(config.pool.rules.external_blocks_after_hits),
      scheduler_block_size_(config.scheduler_block_size()),
      pool_(config.pool) {
  const auto is_full = [](const SpecGroup& group) { return group.spec.is_full_attention(); };
  for (GroupId group = 0; group < config.groups.size(); ++group) {
    const KVCacheSpec& spec = config.groups[group];
    auto at = std::ranges::find(spec_groups_, spec, &SpecGroup::spec);
    if (at == spec_groups_.end()) {
      const auto after = spec.is_full_attention()
                             ? std::find_if_not(spec_groups_.begin(), spec_groups_.end(), is_full)
                             : spec_groups_.end();
      at = spec_groups_.insert(after, {.spec = spec, .group_ids = {}, .use_eagle = false});
    }
    at->group_ids.push_back(group);
    at->use_eagle = at->use_eagle || config.is_eagle_group(group);
  }
  KVFENCE_CHECK(spec_groups_.size() <= kNumSpecGroupsMax,
                "more different specs than a lookup marks");

  groups_.reserve(config.groups.size());
  for (GroupId group = 0; group < config.groups.size(); ++group) {
    const auto at = std::ranges::find(spec_groups_, config.groups[group], &SpecGroup::spec);
    groups_.emplace_back(config, group, at->use_eagle, pool_);
  }
}

std::uint32_t KVCacheCoordinator::find(const SpecGroup& spec_group, const Request& request,
                                       std::uint32_t first_token, std::uint32_t max_length,
                                       bool drop_eagle_block, BlocksByGroup& blocks) const {
  return optimized::find_longest_cache_hit(pool_,
                                           {.spec = spec_group.spec,
                                            .group_ids = spec_group.group_ids,
                                            .request = request,
                                            .max_length = max_length,
                                            .first_token = first_token,
                                            .alignment_tokens = scheduler_block_size_,
                                            .drop_eagle_block = drop_eagle_block,
                                            .aligns_after_drop = eagle_by_group_},
                                           blocks) *
         spec_group.spec.block_size;
}

/// A fixed point: each spec group accepts the length so far or shortens it, and the round repeats
/// until none shortens it.
std::uint32_t KVCacheCoordinator::find_longest_cache_hit(const Request& request,
                                                         std::uint32_t max_length,
                                                         BlocksByGroup& blocks,
                                                         std::uint32_t first_token) const {
  blocks.resize(groups_.size());
  const SpecGroup& first = spec_groups_.front();
  if (!is_hybrid()) {
    return find(first, request, first_token, max_length, first.use_eagle, blocks);
  }

  // Full attention and one other kind: upstream leaves it at one round.
  const bool is_simple = spec_groups_.size() == 2 && first.spec.is_full_attention();
  std::uint64_t dropped = 0;  // bit i: group i has dropped its eagle block at this length
  std::uint32_t hit_length = max_length;
  for (bool is_first_round = true;; is_first_round = false) {
    std::uint32_t length = hit_length;
    for (std::size_t i = 0; i < spec_groups_.size(); ++i) {
      const SpecGroup& group = spec_groups_[i];
      const std::uint32_t block_size = group.spec.block_size;
      if (group.spec.is_full_attention() && !is_first_round) {
        // Every block before a hit is a hit.
        length = length / block_size * block_size;
        continue;
      }
      if (!eagle_by_group_) {
        length = find(group, request, first_token, length, group.use_eagle, blocks);
        continue;
      }
      const bool has_dropped = (dropped >> i & 1) != 0;
      const bool drops = group.use_eagle && !has_dropped;
      const std::uint32_t reach = drops ? std::min(length + block_size, max_length) : length;
      const std::uint32_t found = find(group, request, first_token, reach, drops, blocks);
      if (drops) {
        dropped |= std::uint64_t{1} << i;
      } else if (found < length) {
        dropped = 0;
      }
      length = found;
    }
    if (length >= hit_length) break;
    hit_length = length;
    if (is_simple) break;
  }

  if (first.spec.is_full_attention()) {
    const std::size_t num_blocks = hit_length / first.spec.block_size;
    for (GroupId group : first.group_ids) {
      if (blocks[group].size() > num_blocks) blocks[group].resize(num_blocks);
    }
  }
  return hit_length;
}

std::int64_t KVCacheCoordinator::get_num_blocks_to_allocate(const SlotDemand& demand,
                                                            const ComputedBlocks* hit,
                                                            bool apply_admission_cap) const {
  std::int64_t num_blocks = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    num_blocks +=
        groups_[i].get_num_blocks_to_allocate(pool_, demand, hit_of(hit, i), apply_admission_cap);
  }
  return num_blocks;
}

std::int64_t KVCacheCoordinator::num_blocks_taken(const SlotDemand& demand,
                                                  const ComputedBlocks* hit) {
  std::int64_t num_blocks = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    num_blocks += groups_[i].num_blocks_taken(pool_, demand, hit_of(hit, i));
  }
  return num_blocks;
}

bool KVCacheCoordinator::table_shrinks(const SlotDemand& demand) {
  return std::ranges::any_of(
      groups_, [&demand](SingleTypeKVCacheManager& group) { return group.table_shrinks(demand); });
}

void KVCacheCoordinator::allocate_new_computed_blocks(const SlotDemand& demand,
                                                      const ComputedBlocks* hit) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].touch_computed_blocks(pool_, demand, hit_of(hit, i));
    if (!external_blocks_after_hits_) groups_[i].take_external_blocks(pool_, demand);
  }
  if (!external_blocks_after_hits_) return;
  for (SingleTypeKVCacheManager& group : groups_) group.take_external_blocks(pool_, demand);
}

void KVCacheCoordinator::allocate_new_blocks(const SlotDemand& demand, BlocksByGroup& out) {
  out.resize(groups_.size());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].allocate_new_blocks(pool_, demand, out[i]);
  }
}

/// Hits of several groups end at multiples of scheduler_block_size. Tokens after the last multiple
/// are of no use yet, except for the block that an eagle lookup needs there.
std::uint32_t KVCacheCoordinator::num_tokens_to_cache(const SingleTypeKVCacheManager& group,
                                                      std::uint32_t num_computed_tokens) const {
  if (!is_hybrid() || !eagle_by_group_) return num_computed_tokens;
  const std::uint32_t aligned = num_computed_tokens / scheduler_block_size_ * scheduler_block_size_;
  if (!group.use_eagle() || aligned == 0) return aligned;
  return aligned + std::min(num_computed_tokens - aligned, group.spec().block_size);
}

bool KVCacheCoordinator::has_full_blocks(RequestIndex request,
                                         std::uint32_t num_computed_tokens) const {
  return std::all_of(groups_.begin(), groups_.end(), [&](const SingleTypeKVCacheManager& group) {
    return group.has_full_blocks(request, num_computed_tokens);
  });
}

void KVCacheCoordinator::cache_blocks(const KVRequest& request, std::uint32_t num_computed_tokens) {
  for (SingleTypeKVCacheManager& group : groups_) {
    group.cache_blocks(pool_, request, num_tokens_to_cache(group, num_computed_tokens));
  }
}

void KVCacheCoordinator::free(RequestIndex request) {
  for (SingleTypeKVCacheManager& group : groups_) group.free(pool_, request);
}

void KVCacheCoordinator::remove_skipped_blocks(RequestIndex request,
                                               std::int64_t num_computed_tokens) {
  for (SingleTypeKVCacheManager& group : groups_) {
    group.remove_skipped_blocks(pool_, request, num_computed_tokens);
  }
}

void KVCacheCoordinator::get_num_common_prefix_blocks(RequestIndex request,
                                                      std::vector<std::uint32_t>& out) const {
  out.clear();
  for (const SingleTypeKVCacheManager& group : groups_) {
    out.push_back(enable_caching_ ? group.get_num_common_prefix_blocks(pool_, request) : 0);
  }
}

void KVCacheCoordinator::take_new_block_ids(std::vector<std::uint32_t>& out) {
  out.clear();
  for (SingleTypeKVCacheManager& group : groups_) group.take_new_block_ids(out);
}

void KVCacheCoordinator::new_step_starts() {
  for (SingleTypeKVCacheManager& group : groups_) group.new_step_starts();
}

}  // namespace kvfence::optimized
