#include "reference/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <utility>

namespace kvfence::reference {
namespace {

// A hit of no block in any group is no hit: upstream has one shared object for it.
// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py create_kv_cache_blocks
bool has_blocks(const ComputedBlocks* hit) {
  return hit != nullptr && kvfence::has_blocks(hit->blocks);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py allocate_slots, can_fit_full_sequence
Allocation allocation_for(const KVRequest& request, const ComputedBlocks* hit,
                          std::uint32_t num_external_tokens, std::uint32_t num_encoder_tokens,
                          const BlocksByGroup& no_blocks) {
  const bool is_hit = has_blocks(hit);
  Allocation allocation{.request = request.index,
                        .new_computed_blocks = is_hit ? hit->blocks : no_blocks};
  allocation.num_encoder_tokens = num_encoder_tokens;
  allocation.total_computed_tokens = std::size_t{request.num_computed_tokens} +
                                     (is_hit ? hit->num_tokens : 0) + num_external_tokens;
  allocation.num_external_computed_tokens = num_external_tokens;
  allocation.has_computed_blocks = is_hit || num_external_tokens > 0;
  return allocation;
}

}  // namespace

// The last token is recomputed even if all are cached: its logits are needed.
// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py get_computed_blocks
void KVCacheManager::get_computed_blocks(const KVRequest& request, ComputedBlocks& out) {
  const bool is_read = config().pool.enable_caching && !request.skip_reading_prefix_cache;
  if (!is_read) {
    out = {BlocksByGroup(config().groups.size()), 0};
    return;
  }
  const std::size_t num_tokens = request.request.all_token_ids().size();
  out = coordinator_.find_longest_cache_hit(request.request, minus_or_0(num_tokens, 1));

  // Source: vLLM v0.19.0 v1/metrics/stats.py PrefixCacheStats.record
  PrefixCacheStats& stats = prefix_cache_stats_;
  ++(request.was_preempted ? stats.preempted_requests : stats.requests);
  (request.was_preempted ? stats.preempted_queries : stats.queries) += num_tokens;
  (request.was_preempted ? stats.preempted_hits : stats.hits) += out.num_tokens;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py can_fit_full_sequence; in v0.23.0 part of
// allocate_slots
ErrorCode KVCacheManager::can_fit_full_sequence(const KVRequest& request, const ComputedBlocks* hit,
                                                std::uint32_t num_external_tokens,
                                                std::uint32_t num_encoder_tokens,
                                                bool& fits) const {
  if (config().pool.rules.full_sequence_gate_in_allocate_slots) return ErrorCode::kNotInProfile;
  if (is_already_allocated(request, hit, num_external_tokens)) return ErrorCode::kAlreadyAllocated;

  const BlocksByGroup no_blocks(config().groups.size());
  fits = fits_full_sequence(request.request, allocation_for(request, hit, num_external_tokens,
                                                            num_encoder_tokens, no_blocks));
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py can_fit_full_sequence; admission cap: v0.23.0
// allocate_slots
std::int64_t KVCacheManager::num_blocks_for_full_sequence(const Request& request,
                                                          Allocation allocation) const {
  const std::size_t max_model_len = config().max_model_len;
  const std::size_t num_tokens = std::min(request.all_token_ids().size(), max_model_len);
  allocation.num_tokens = num_tokens;
  allocation.num_tokens_main_model = num_tokens;
  allocation.total_computed_tokens = std::min(allocation.total_computed_tokens, max_model_len);
  allocation.apply_admission_cap = config().pool.rules.full_sequence_gate_in_allocate_slots;
  return coordinator_.get_num_blocks_to_allocate(allocation);
}

bool KVCacheManager::fits_full_sequence(const Request& request,
                                        const Allocation& allocation) const {
  return num_blocks_for_full_sequence(request, allocation) <=
         std::int64_t{block_pool().get_num_free_blocks()};
}

// The count of Mamba in mode align may be negative.
// Source: vLLM v0.23.0 v1/core/sched/scheduler.py _request_remaining_blocks
std::uint32_t KVCacheManager::get_num_remaining_blocks(const KVRequest& request) const {
  if (!config().pool.rules.full_sequence_gate_in_allocate_slots) return 0;
  const BlocksByGroup no_blocks(config().groups.size());
  const std::int64_t num_blocks = num_blocks_for_full_sequence(
      request.request, allocation_for(request, nullptr, 0, 0, no_blocks));
  return static_cast<std::uint32_t>(std::max<std::int64_t>(num_blocks, 0));
}

// Skipped blocks go first, which may be what makes the allocation possible, and stay gone if it is
// not. Full blocks are cached before they are computed; draft tokens beyond the request's own are
// never cached. Source: vLLM v0.19.0 v1/core/kv_cache_manager.py allocate_slots; gate and reserve:
// v0.23.0, the same function
ErrorCode KVCacheManager::allocate_slots(const AllocateSlotsArgs& args, bool& allocated,
                                         BlocksByGroup& out) {
  const KVRequest& request = args.request;
  const BlocksByGroup no_blocks(config().groups.size());
  Allocation allocation = allocation_for(request, args.hit, args.num_external_tokens,
                                         args.num_encoder_tokens, no_blocks);
  const std::size_t num_tokens_main_model = allocation.total_computed_tokens + args.num_new_tokens;
  allocation.num_tokens_main_model = num_tokens_main_model;
  allocation.num_tokens = std::min<std::size_t>(num_tokens_main_model + args.num_lookahead_tokens,
                                                config().max_model_len);
  if (const ErrorCode error = check_allocate_slots(args, allocation); error != ErrorCode::kNone) {
    return error;
  }

  allocated = false;
  out = no_blocks;
  if (args.full_sequence_must_fit && !fits_full_sequence(request.request, allocation)) {
    return ErrorCode::kNone;
  }
  coordinator_.remove_skipped_blocks(request.index, allocation.total_computed_tokens);
  const auto num_free = std::int64_t{block_pool().get_num_free_blocks()};
  const auto num_available = num_free - std::int64_t{args.reserved_blocks};
  if (coordinator_.get_num_blocks_to_allocate(allocation) > num_available) return ErrorCode::kNone;
  // Upstream's count may be too small, and it then raises halfway.
  if (coordinator_.num_blocks_taken(allocation) > num_free) return ErrorCode::kNone;

  out = coordinator_.allocate(allocation);
  allocated = true;
  allocated_.insert(request.index);
  if (config().pool.enable_caching && !args.delay_cache_blocks) {
    coordinator_.cache_blocks(
        request, std::min(num_tokens_main_model, request.request.all_token_ids().size()));
  }
  return ErrorCode::kNone;
}

// Source: ours (contract/kv_cache/kv_cache_manager.h); upstream raises for no tokens, and asserts
// that a request with blocks has no hit and that a Mamba table does not shrink.
ErrorCode KVCacheManager::check_allocate_slots(const AllocateSlotsArgs& args,
                                               const Allocation& allocation) const {
  const bool wants_gate = args.full_sequence_must_fit || args.reserved_blocks > 0;
  if (wants_gate && !config().pool.rules.full_sequence_gate_in_allocate_slots) {
    return ErrorCode::kNotInProfile;
  }
  if (args.num_new_tokens == 0 && args.num_external_tokens == 0) return ErrorCode::kNoTokens;
  if (allocation.num_tokens_main_model > config().max_model_len) {
    return ErrorCode::kBeyondModelLength;
  }
  if (is_already_allocated(args.request, args.hit, args.num_external_tokens)) {
    return ErrorCode::kAlreadyAllocated;
  }
  if (coordinator_.table_shrinks(allocation)) return ErrorCode::kTableShrinks;
  return ErrorCode::kNone;
}

bool KVCacheManager::is_already_allocated(const KVRequest& request, const ComputedBlocks* hit,
                                          std::uint32_t num_external_tokens) const {
  const bool is_hit = has_blocks(hit);
  if (allocated_.contains(request.index)) return is_hit || num_external_tokens > 0;
  return is_hit && request.num_computed_tokens > 0;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py free
void KVCacheManager::free(RequestIndex request) {
  coordinator_.free(request);
  allocated_.erase(request);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py remove_skipped_blocks
void KVCacheManager::remove_skipped_blocks(RequestIndex request,
                                           std::uint32_t total_computed_tokens) {
  coordinator_.remove_skipped_blocks(request, total_computed_tokens);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py cache_blocks
ErrorCode KVCacheManager::cache_blocks(const KVRequest& request,
                                       std::uint32_t num_computed_tokens) {
  if (!config().pool.enable_caching) return ErrorCode::kNone;
  if (num_computed_tokens > request.request.all_token_ids().size()) return ErrorCode::kMissingHash;
  if (!coordinator_.has_blocks_for(request.index, num_computed_tokens)) {
    return ErrorCode::kBadRange;
  }
  coordinator_.cache_blocks(request, num_computed_tokens);
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py evict_blocks
ErrorCode KVCacheManager::evict_blocks(std::span<const BlockId> blocks) {
  return coordinator_.block_pool().evict_blocks(blocks);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py reset_prefix_cache
bool KVCacheManager::reset_prefix_cache() {
  if (!coordinator_.block_pool().reset_prefix_cache()) return false;
  prefix_cache_stats_.reset = true;
  return true;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py get_num_common_prefix_blocks
ErrorCode KVCacheManager::get_num_common_prefix_blocks(RequestIndex request,
                                                       std::vector<std::uint32_t>& out) const {
  if (!allocated_.contains(request)) return ErrorCode::kNotAllocated;
  coordinator_.get_num_common_prefix_blocks(request, out);
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py get_block_ids
void KVCacheManager::get_block_ids(RequestIndex request, BlocksByGroup& out) const {
  coordinator_.get_blocks(request, out);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py take_new_block_ids
void KVCacheManager::take_new_block_ids(std::vector<BlockId>& out) {
  coordinator_.take_new_block_ids(out);
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py take_events; kind and window: v0.23.0, the same
// function
void KVCacheManager::take_events(std::vector<KVCacheEvent>& out) {
  coordinator_.block_pool().take_events(out);
  if (!config().pool.rules.events_carry_spec) return;
  for (KVCacheEvent& event : out) {
    auto* const stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || !stored->group_idx) continue;
    const KVCacheSpec& spec = config().groups[*stored->group_idx];
    stored->kv_cache_spec_kind = event_name(spec.kind);
    if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
      stored->kv_cache_spec_sliding_window = spec.sliding_window;
    }
  }
}

// Source: vLLM v0.19.0 v1/core/kv_cache_manager.py make_prefix_cache_stats
PrefixCacheStats KVCacheManager::take_prefix_cache_stats() {
  return std::exchange(prefix_cache_stats_, {});
}

// Source: ours
void KVCacheManager::add_to(StateHash& hash) const {
  hash.add_all(coordinator_, allocated_, prefix_cache_stats_);
}

}  // namespace kvfence::reference
