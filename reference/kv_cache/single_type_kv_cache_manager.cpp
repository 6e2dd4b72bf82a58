#include "reference/kv_cache/single_type_kv_cache_manager.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

// Groups of equal specs are cached and looked up together, so one group with draft layers decides
// for all of them. Source: vLLM v0.23.0 v1/core/kv_cache_coordinator.py SpecGroup; v0.19.0: one
// flag for all groups
bool spec_uses_eagle(const KVCacheManagerConfig& config, GroupId group) {
  for (GroupId other = 0; other < config.groups.size(); ++other) {
    if (config.groups[other] == config.groups[group] && config.is_eagle_group(other)) return true;
  }
  return false;
}

}  // namespace

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py SingleTypeKVCacheManager.__init__
SingleTypeKVCacheManager::SingleTypeKVCacheManager(const KVCacheManagerConfig& config,
                                                   GroupId group)
    : config_(config),
      spec_(config.groups[group]),
      group_(group),
      use_eagle_(spec_uses_eagle(config, group)),
      block_size_(spec_.block_size) {}

// A request that had its hit needs what its table lacks. Any other needs what neither its table,
// its hit nor the skipped prefix covers, and each block of the hit that waits in the free queue.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py get_num_blocks_to_allocate;
// admission cap: v0.23.0, the same function
std::int64_t SingleTypeKVCacheManager::get_num_blocks_to_allocate(
    const BlockPool& pool, const Allocation& allocation) const {
  std::size_t num_required = num_required_blocks(allocation);
  if (allocation.apply_admission_cap) {
    num_required =
        std::min(num_required, max_admission_blocks_per_request().value_or(num_required));
  }
  const std::size_t num_req_blocks = blocks(allocation.request).size();
  if (num_cached_block_.contains(allocation.request)) {
    return static_cast<std::int64_t>(minus_or_0(num_required, num_req_blocks));
  }

  const std::span<const BlockId> hit = hit_of(allocation);
  const std::size_t num_skipped =
      get_num_skipped_tokens(allocation.total_computed_tokens) / block_size_;
  const std::size_t num_local = hit.size() + num_req_blocks;
  const std::size_t num_new = minus_or_0(num_required, std::max(num_skipped, num_local));
  const std::size_t num_hit_skipped = std::min(minus_or_0(num_skipped, num_req_blocks), hit.size());
  return static_cast<std::int64_t>(num_new +
                                   get_num_evictable_blocks(pool, hit.subspan(num_hit_skipped)));
}

// Source: ours (contract/kv_cache/kv_cache_manager.h): upstream takes blocks until the pool has no
// more, and then raises in the middle of the allocation.
std::int64_t SingleTypeKVCacheManager::num_blocks_taken(const BlockPool& pool,
                                                        const Allocation& allocation) const {
  std::size_t num_blocks = blocks(allocation.request).size();
  std::size_t num_taken = 0;
  if (const auto plan = plan_computed_blocks(allocation)) {
    num_blocks = plan->num_blocks();
    num_taken = get_num_evictable_blocks(pool, plan->hit) + plan->num_external_blocks;
  }
  return static_cast<std::int64_t>(num_taken + num_new_blocks(allocation, num_blocks));
}

// Skipped blocks are null blocks, whether hit or external; a hit may be skipped whole.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py allocate_new_computed_blocks
// (upstream's queue gains phantom blocks where the hit is longer than the computed tokens: it pops
// a negative number. Here: none.)
std::optional<SingleTypeKVCacheManager::ComputedBlocksPlan>
SingleTypeKVCacheManager::plan_computed_blocks(const Allocation& allocation) const {
  if (!allocation.has_computed_blocks) return std::nullopt;
  if (num_cached_block_.contains(allocation.request)) return std::nullopt;

  const std::size_t total = allocation.total_computed_tokens;
  const std::size_t num_skipped_tokens = get_num_skipped_tokens(total);
  std::size_t num_external_tokens = allocation.num_external_computed_tokens;
  ComputedBlocksPlan plan;
  plan.num_skipped_blocks = num_skipped_tokens / block_size_;
  plan.hit = hit_of(allocation);
  if (plan.num_skipped_blocks > 0) {
    plan.hit = plan.hit.subspan(std::min(plan.num_skipped_blocks, plan.hit.size()));
    num_external_tokens = std::min(total - num_skipped_tokens, num_external_tokens);
  }
  if (num_external_tokens > 0) {
    plan.num_external_blocks = minus_or_0(cdiv(total, block_size_), plan.num_blocks());
  }
  return plan;
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py allocate_new_computed_blocks, which
// v0.33.0 has as two functions.
std::size_t SingleTypeKVCacheManager::add_hit(BlockPool& pool, const Allocation& allocation) {
  const std::optional<ComputedBlocksPlan> plan = plan_computed_blocks(allocation);
  if (!plan) return 0;
  std::vector<BlockId>& table = req_to_blocks_[allocation.request];
  KVFENCE_CHECK(table.empty(), "a hit for a request that has blocks");

  must(pool.touch(plan->hit), "a hit of unknown blocks");
  table.assign(plan->num_skipped_blocks, kNullBlockId);
  table.insert(table.end(), plan->hit.begin(), plan->hit.end());
  num_cached_block_[allocation.request] = table.size();
  return plan->num_external_blocks;
}

// They do not count as cached: they are once they have been loaded.
void SingleTypeKVCacheManager::add_external_blocks(BlockPool& pool, const Allocation& allocation,
                                                   std::size_t num_blocks) {
  if (num_blocks == 0) return;
  std::vector<BlockId>& table = req_to_blocks_[allocation.request];
  const std::vector<BlockId> external = append_new_blocks(pool, num_blocks, table);
  if (spec_.kind == KVCacheSpecKind::kFullAttention) {
    new_block_ids_.insert(new_block_ids_.end(), external.begin(), external.end());
  }
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py allocate_new_blocks
std::vector<BlockId> SingleTypeKVCacheManager::allocate_new_blocks(BlockPool& pool,
                                                                   const Allocation& allocation) {
  std::vector<BlockId>& table = req_to_blocks_[allocation.request];
  std::vector<BlockId> blocks =
      append_new_blocks(pool, num_new_blocks(allocation, table.size()), table);
  if (spec_.kind == KVCacheSpecKind::kFullAttention) {
    new_block_ids_.insert(new_block_ids_.end(), blocks.begin(), blocks.end());
  }
  return blocks;
}

bool SingleTypeKVCacheManager::table_shrinks(const Allocation&) const { return false; }

// The counter advances over blocks that the pool passes over: null and masked-out ones.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py cache_blocks; mask: v0.23.0, the
// same function
void SingleTypeKVCacheManager::cache_blocks(BlockPool& pool, const KVRequest& request,
                                            std::size_t num_tokens) {
  const std::size_t num_cached = num_cached_blocks(request.index);
  const std::size_t num_full = num_tokens / block_size_;
  if (num_cached >= num_full) return;

  std::optional<std::vector<std::uint8_t>> mask;
  if (config_.pool.rules.sliding_window_mask) {
    mask = reachable_block_mask(num_cached, num_full, request.num_prompt_tokens);
  }
  CacheFullBlocksArgs args{request.request,
                           blocks(request.index),
                           static_cast<std::uint32_t>(num_cached),
                           static_cast<std::uint32_t>(num_full),
                           spec_.block_size,
                           group_,
                           std::nullopt};
  if (mask) args.block_mask = *mask;
  must(pool.cache_full_blocks(args), "a table's full blocks could not be cached");
  num_cached_block_[request.index] = num_full;
}

std::size_t SingleTypeKVCacheManager::num_token_blocks(RequestIndex request) const {
  return blocks(request).size();
}

// The last block goes first, so that the tail of a prefix is evicted before its start.
// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py free
void SingleTypeKVCacheManager::free(BlockPool& pool, RequestIndex request) {
  free_table(pool, request, /*unhashed_first=*/false);
}

void SingleTypeKVCacheManager::free_table(BlockPool& pool, RequestIndex request,
                                          bool unhashed_first) {
  std::vector<BlockId> table = std::exchange(req_to_blocks_[request], {});
  std::reverse(table.begin(), table.end());
  free_blocks(pool, table, unhashed_first);
  req_to_blocks_.erase(request);
  num_cached_block_.erase(request);
}

// From the last skipped block down to the first one that is null already: what precedes that was
// removed before. Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py
// remove_skipped_blocks; blocks without a hash first: v0.23.0, the same function
void SingleTypeKVCacheManager::remove_skipped_blocks(BlockPool& pool, RequestIndex request,
                                                     std::size_t total_computed_tokens) {
  const auto entry = req_to_blocks_.find(request);
  if (entry == req_to_blocks_.end()) return;
  std::vector<BlockId>& table = entry->second;
  const std::size_t num_skipped =
      std::min(get_num_skipped_tokens(total_computed_tokens) / block_size_, table.size());
  std::vector<BlockId> removed;
  for (std::size_t i = num_skipped; i > 0 && table[i - 1] != kNullBlockId; --i) {
    removed.push_back(std::exchange(table[i - 1], kNullBlockId));
  }
  free_blocks(pool, removed, config_.pool.rules.unhashed_blocks_first);
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py get_num_common_prefix_blocks of
// every kind but full attention
std::uint32_t SingleTypeKVCacheManager::get_num_common_prefix_blocks(const BlockPool&,
                                                                     RequestIndex) const {
  return 0;
}

void SingleTypeKVCacheManager::new_step_starts() {}

std::span<const BlockId> SingleTypeKVCacheManager::blocks(RequestIndex request) const {
  const auto entry = req_to_blocks_.find(request);
  if (entry == req_to_blocks_.end()) return {};
  return entry->second;
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py take_new_block_ids
void SingleTypeKVCacheManager::take_new_block_ids(std::vector<BlockId>& out) {
  out.insert(out.end(), new_block_ids_.begin(), new_block_ids_.end());
  new_block_ids_.clear();
}

// Source: ours
void SingleTypeKVCacheManager::add_to(StateHash& hash) const {
  hash.add_all(req_to_blocks_, num_cached_block_, new_block_ids_);
}

std::size_t SingleTypeKVCacheManager::num_required_blocks(const Allocation& allocation) const {
  return cdiv(allocation.num_tokens, block_size_);
}

std::size_t SingleTypeKVCacheManager::num_new_blocks(const Allocation& allocation,
                                                     std::size_t num_blocks) const {
  return minus_or_0(num_required_blocks(allocation), num_blocks);
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py get_num_skipped_tokens
std::size_t SingleTypeKVCacheManager::get_num_skipped_tokens(std::size_t) const { return 0; }

// Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py get_manager_for_kv_cache_spec
std::optional<std::size_t> SingleTypeKVCacheManager::max_admission_blocks_per_request() const {
  return std::nullopt;
}

// Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py reachable_block_mask
std::optional<std::vector<std::uint8_t>> SingleTypeKVCacheManager::reachable_block_mask(
    std::size_t, std::size_t, std::size_t) const {
  return std::nullopt;
}

std::size_t SingleTypeKVCacheManager::num_cached_blocks(RequestIndex request) const {
  const auto entry = num_cached_block_.find(request);
  return entry == num_cached_block_.end() ? 0 : entry->second;
}

std::span<const BlockId> SingleTypeKVCacheManager::hit_of(const Allocation& allocation) const {
  return allocation.new_computed_blocks[group_];
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py _get_num_evictable_blocks
std::size_t SingleTypeKVCacheManager::get_num_evictable_blocks(const BlockPool& pool,
                                                               std::span<const BlockId> blocks) {
  return static_cast<std::size_t>(std::ranges::count_if(blocks, [&pool](BlockId block) {
    return block != kNullBlockId && pool.ref_cnt(block) == 0;
  }));
}

std::vector<BlockId> SingleTypeKVCacheManager::append_new_blocks(BlockPool& pool,
                                                                 std::size_t num_blocks,
                                                                 std::vector<BlockId>& table) {
  std::vector<BlockId> blocks(num_blocks);
  must(pool.get_new_blocks(blocks), "an allocation took more blocks than it counted");
  table.insert(table.end(), blocks.begin(), blocks.end());
  return blocks;
}

// Source: vLLM v0.23.0 v1/core/single_type_kv_cache_manager.py remove_skipped_blocks,
// SlidingWindowManager.free
void SingleTypeKVCacheManager::free_blocks(BlockPool& pool, std::span<const BlockId> blocks,
                                           bool unhashed_first) {
  std::vector<BlockId> to_tail;
  std::vector<BlockId> to_head;
  for (const BlockId block : blocks) {
    (unhashed_first && pool.block_key(block).empty() ? to_head : to_tail).push_back(block);
  }
  must(pool.free_blocks(to_tail, FreeTo::kTail), "a table held an unreferenced block");
  if (to_head.empty()) return;
  must(pool.free_blocks(to_head, FreeTo::kHead), "a table held an unreferenced block");
}

// Source: vLLM v0.19.0 v1/core/block_pool.py get_cached_block
std::optional<std::vector<BlockId>> get_cached_block(const BlockPool& pool, const Lookup& lookup,
                                                     std::size_t index) {
  std::vector<BlockId> blocks(lookup.group_ids.size());
  if (!pool.get_cached_block(lookup.block_hashes[index], lookup.group_ids, blocks)) {
    return std::nullopt;
  }
  return blocks;
}

// Source: vLLM v0.19.0 v1/core/single_type_kv_cache_manager.py find_longest_cache_hit (full
// attention and sliding window)
void align(BlocksByGroup& computed_blocks, std::size_t block_size, std::size_t alignment_tokens) {
  for (std::vector<BlockId>& blocks : computed_blocks) {
    while (blocks.size() * block_size % alignment_tokens != 0) blocks.pop_back();
  }
}

}  // namespace kvfence::reference
