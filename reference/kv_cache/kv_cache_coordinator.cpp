#include "reference/kv_cache/kv_cache_coordinator.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py spec_manager_map
std::unique_ptr<SingleTypeKVCacheManager> make_manager(const KVCacheManagerConfig& config,
                                                       GroupId group, BlockPool& pool) {
  switch (config.groups[group].kind) {
    case KVCacheSpecKind::kFullAttention:
      break;
    case KVCacheSpecKind::kSlidingWindow:
      return make_sliding_window_manager(config, group);
    case KVCacheSpecKind::kChunkedLocal:
      return make_chunked_local_attention_manager(config, group);
    case KVCacheSpecKind::kMamba:
      return make_mamba_manager(config, group);
    case KVCacheSpecKind::kCrossAttention:
      return make_cross_attention_manager(config, group);
    case KVCacheSpecKind::kSinkFullAttention:
      return make_sink_full_attention_manager(config, group, pool);
  }
  return make_full_attention_manager(config, group);
}

}  // namespace

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py KVCacheCoordinator.__init__
KVCacheCoordinator::KVCacheCoordinator(const KVCacheManagerConfig& config)
    : config_(config), pool_(config.pool) {
  KVFENCE_CHECK(!check_config(config), "a configuration that check_config refuses");
  for (GroupId group = 0; group < config.groups.size(); ++group) {
    managers_.emplace_back(make_manager(config, group, pool_));
  }
  verify_and_split_kv_cache_groups();
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_kv_cache_coordinator,
// KVCacheCoordinatorNoPrefixCache.find_longest_cache_hit
ComputedBlocks KVCacheCoordinator::find_longest_cache_hit(const Request& request,
                                                          std::size_t max_length,
                                                          std::size_t first_token) const {
  if (!config_.pool.enable_caching) return {BlocksByGroup(num_groups()), 0};
  return num_groups() == 1 ? find_unitary(request, max_length, first_token)
                           : find_hybrid(request, max_length, first_token);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py
// UnitaryKVCacheCoordinator.find_longest_cache_hit
ComputedBlocks KVCacheCoordinator::find_unitary(const Request& request, std::size_t max_length,
                                                std::size_t first_token) const {
  const std::array<GroupId, 1> group_ids = {0};
  const auto& only = managers_.front();
  const std::uint32_t block_size = only->spec().block_size;
  BlocksByGroup blocks =
      only->find_longest_cache_hit(pool_, {request.block_hashes(block_size, first_token),
                                           max_length, group_ids, only->use_eagle(), block_size});
  const std::size_t num_tokens = blocks.front().size() * block_size;
  return {std::move(blocks), static_cast<std::uint32_t>(num_tokens)};
}

// In order of first appearance, full attention first: it bounds the others soonest.
// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py
// HybridKVCacheCoordinator.verify_and_split_kv_cache_groups
void KVCacheCoordinator::verify_and_split_kv_cache_groups() {
  std::vector<std::vector<GroupId>> others;
  for (GroupId group = 0; group < num_groups(); ++group) {
    const KVCacheSpec& spec = managers_[group]->spec();
    std::vector<std::vector<GroupId>>& list = spec.is_full_attention() ? spec_groups_ : others;
    const auto same = std::ranges::find_if(
        list, [&](const auto& group_ids) { return managers_[group_ids.front()]->spec() == spec; });
    if (same != list.end()) {
      same->push_back(group);
    } else {
      list.push_back({group});
    }
  }
  spec_groups_.insert(spec_groups_.end(), others.begin(), others.end());
}

// A fixed point: each kind in turn accepts the length so far or shortens it, until a whole round
// leaves it. Full attention is asked once, since a prefix of its hit is a hit; the others are asked
// in each round. Full attention and one other kind: one round is enough.
//
// Eagle: with Rules::eagle_by_group a kind looks one block further, drops it, and has then done so
// until a kind that drops nothing shortens the length; before, every lookup drops a block.
//
// At the end the first full-attention kind is cut to the length; a second one is not, so its hit
// may be longer than the length.
// Source: vLLM v0.19.0 and v0.23.0 v1/core/kv_cache_coordinator.py
// HybridKVCacheCoordinator.find_longest_cache_hit
ComputedBlocks KVCacheCoordinator::find_hybrid(const Request& request, std::size_t max_length,
                                               std::size_t first_token) const {
  const std::vector<GroupId>& first_ids = spec_groups_.front();
  const KVCacheSpec& first = managers_[first_ids.front()]->spec();
  const bool is_simple_hybrid = spec_groups_.size() == 2 && first.is_full_attention();
  const bool eagle_by_group = config_.pool.rules.eagle_by_group;
  BlocksByGroup hit_blocks(num_groups());
  std::set<std::size_t> eagle_verified;  // places in spec_groups_
  std::size_t hit_length = max_length;
  for (bool is_first_round = true;; is_first_round = false) {
    std::size_t length = hit_length;
    for (std::size_t place = 0; place < spec_groups_.size(); ++place) {
      const std::vector<GroupId>& group_ids = spec_groups_[place];
      const auto& kind = managers_[group_ids.front()];
      const std::uint32_t block_size = kind->spec().block_size;
      if (!is_first_round && kind->spec().is_full_attention()) {
        length = length / block_size * block_size;
        continue;
      }

      const bool drops = kind->use_eagle() && !eagle_verified.contains(place);
      const std::size_t lookup_length =
          eagle_by_group && drops ? std::min(length + block_size, max_length) : length;
      BlocksByGroup found = kind->find_longest_cache_hit(
          pool_, {request.block_hashes(block_size, first_token), lookup_length, group_ids, drops,
                  config_.scheduler_block_size()});
      const std::size_t found_length = found.front().size() * block_size;
      if (eagle_by_group && drops) {
        eagle_verified.insert(place);
      } else if (found_length < length) {
        eagle_verified.clear();
      }
      length = found_length;
      for (std::size_t i = 0; i < found.size(); ++i) {
        hit_blocks[group_ids[i]] = std::move(found[i]);
      }
    }
    if (length >= hit_length) break;
    hit_length = length;
    if (is_simple_hybrid) break;
  }

  if (first.is_full_attention()) {
    for (const GroupId group : first_ids) {
      std::vector<BlockId>& blocks = hit_blocks[group];
      blocks.resize(std::min<std::size_t>(blocks.size(), hit_length / first.block_size));
    }
  }
  return {std::move(hit_blocks), static_cast<std::uint32_t>(hit_length)};
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_num_blocks_to_allocate
std::int64_t KVCacheCoordinator::get_num_blocks_to_allocate(const Allocation& allocation) const {
  std::int64_t num_blocks = 0;
  for (const auto& manager : managers_) {
    num_blocks += manager->get_num_blocks_to_allocate(pool_, allocation);
  }
  return num_blocks;
}

std::int64_t KVCacheCoordinator::num_blocks_taken(const Allocation& allocation) const {
  std::int64_t num_blocks = 0;
  for (const auto& manager : managers_) num_blocks += manager->num_blocks_taken(pool_, allocation);
  return num_blocks;
}

bool KVCacheCoordinator::table_shrinks(const Allocation& allocation) const {
  return std::ranges::any_of(
      managers_, [&](const auto& manager) { return manager->table_shrinks(allocation); });
}

// First the hits and external blocks of all groups, then the new blocks of all groups. Without the
// rule the external blocks of one group may be another's hit that is not touched yet: vllm#33775.
// Source: vLLM v0.19.0 and v0.33.0 v1/core/kv_cache_coordinator.py allocate_new_computed_blocks,
// allocate_new_blocks
BlocksByGroup KVCacheCoordinator::allocate(const Allocation& allocation) {
  const bool hits_first = config_.pool.rules.external_blocks_after_hits;
  std::vector<std::size_t> num_external_blocks;
  for (const auto& manager : managers_) {
    num_external_blocks.push_back(manager->add_hit(pool_, allocation));
    if (hits_first) continue;
    manager->add_external_blocks(pool_, allocation, num_external_blocks.back());
  }
  for (GroupId group = 0; hits_first && group < num_groups(); ++group) {
    managers_[group]->add_external_blocks(pool_, allocation, num_external_blocks[group]);
  }
  BlocksByGroup new_blocks;
  for (const auto& manager : managers_) {
    new_blocks.push_back(manager->allocate_new_blocks(pool_, allocation));
  }
  return new_blocks;
}

// Hits of several groups end at a multiple of scheduler_block_size, and what lies beyond the last
// one need not be findable, except the block that eagle looks at and drops.
// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py cache_blocks; v0.23.0
// HybridKVCacheCoordinator.cache_blocks
void KVCacheCoordinator::cache_blocks(const KVRequest& request, std::size_t num_computed_tokens) {
  const bool rounds_down = config_.pool.rules.eagle_by_group && num_groups() > 1;
  const std::size_t alignment = config_.scheduler_block_size();
  const std::size_t num_aligned = num_computed_tokens / alignment * alignment;
  for (const auto& manager : managers_) {
    std::size_t num_tokens = num_computed_tokens;
    if (rounds_down) {
      const bool looks_further = manager->use_eagle() && num_aligned > 0;
      const std::size_t lookahead = looks_further ? manager->spec().block_size : 0;
      num_tokens = std::min(num_computed_tokens, num_aligned + lookahead);
    }
    manager->cache_blocks(pool_, request, num_tokens);
  }
}

bool KVCacheCoordinator::has_blocks_for(RequestIndex request, std::size_t num_tokens) const {
  return std::all_of(managers_.begin(), managers_.end(), [&](const auto& manager) {
    return num_tokens / manager->spec().block_size <= manager->num_token_blocks(request);
  });
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py free
void KVCacheCoordinator::free(RequestIndex request) {
  for (const auto& manager : managers_) manager->free(pool_, request);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py remove_skipped_blocks
void KVCacheCoordinator::remove_skipped_blocks(RequestIndex request,
                                               std::size_t total_computed_tokens) {
  for (const auto& manager : managers_) {
    manager->remove_skipped_blocks(pool_, request, total_computed_tokens);
  }
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_num_common_prefix_blocks;
// KVCacheCoordinatorNoPrefixCache: none without caching
void KVCacheCoordinator::get_num_common_prefix_blocks(RequestIndex request,
                                                      std::vector<std::uint32_t>& out) const {
  out.assign(num_groups(), 0);
  if (!config_.pool.enable_caching) return;
  for (GroupId group = 0; group < num_groups(); ++group) {
    out[group] = managers_[group]->get_num_common_prefix_blocks(pool_, request);
  }
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py get_blocks
void KVCacheCoordinator::get_blocks(RequestIndex request, BlocksByGroup& out) const {
  out.resize(num_groups());
  for (GroupId group = 0; group < num_groups(); ++group) {
    const std::span<const BlockId> blocks = managers_[group]->blocks(request);
    out[group].assign(blocks.begin(), blocks.end());
  }
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py take_new_block_ids
void KVCacheCoordinator::take_new_block_ids(std::vector<BlockId>& out) {
  out.clear();
  for (const auto& manager : managers_) manager->take_new_block_ids(out);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_coordinator.py new_step_starts
void KVCacheCoordinator::new_step_starts() {
  for (const auto& manager : managers_) manager->new_step_starts();
}

}  // namespace kvfence::reference
