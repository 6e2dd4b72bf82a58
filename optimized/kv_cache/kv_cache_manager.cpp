#include "optimized/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

const KVCacheManagerConfig& checked(const KVCacheManagerConfig& config) {
  KVFENCE_CHECK(!check_config(config), "a configuration that check_config refuses");
  const Rules& rules = config.pool.rules;
  KVFENCE_CHECK(!rules.sliding_window_mask || rules.cache_full_blocks_mask,
                "sliding_window_mask needs cache_full_blocks_mask");
  KVFENCE_CHECK(!rules.unhashed_blocks_first || rules.free_blocks_prepend,
                "unhashed_blocks_first needs free_blocks_prepend");
  return config;
}

std::uint32_t num_tokens_of(const KVRequest& request) {
  return static_cast<std::uint32_t>(request.request.all_token_ids().size());
}

bool is_hit(const ComputedBlocks* hit) { return hit && has_blocks(hit->blocks); }

void clear_all(BlocksByGroup& blocks, std::size_t num_groups) {
  blocks.resize(num_groups);
  for (std::vector<BlockId>& group : blocks) group.clear();
}

}  // namespace

KVCacheManager::KVCacheManager(const KVCacheManagerConfig& config)
    : config_(checked(config)), coordinator_(config_) {}

void KVCacheManager::get_computed_blocks(const KVRequest& request, ComputedBlocks& out) {
  const std::uint32_t num_tokens = num_tokens_of(request);
  const bool is_asked = config_.pool.enable_caching && !request.skip_reading_prefix_cache;
  out.num_tokens = 0;
  if (is_asked && num_tokens > 0) {
    // The last token is always computed, since its logits are needed.
    out.num_tokens =
        coordinator_.find_longest_cache_hit(request.request, num_tokens - 1, out.blocks);
  } else {
    clear_all(out.blocks, config_.groups.size());
  }
  if (!is_asked) return;
  const bool was_preempted = request.was_preempted;
  ++(was_preempted ? stats_.preempted_requests : stats_.requests);
  (was_preempted ? stats_.preempted_queries : stats_.queries) += num_tokens;
  (was_preempted ? stats_.preempted_hits : stats_.hits) += out.num_tokens;
}

bool KVCacheManager::is_already_allocated(const KVRequest& request, bool has_hit,
                                          bool has_external) const {
  if (has_hit && request.num_computed_tokens > 0) return true;
  return (has_hit || has_external) && coordinator_.is_allocated(request.index);
}

/// Blocks that the demand takes, raised to all of the request's tokens.
std::int64_t KVCacheManager::num_full_sequence_blocks(const KVRequest& request, SlotDemand demand,
                                                      const ComputedBlocks* hit,
                                                      bool apply_admission_cap) const {
  demand.num_tokens = std::min(num_tokens_of(request), config_.max_model_len);
  demand.num_tokens_main_model = demand.num_tokens;
  return coordinator_.get_num_blocks_to_allocate(demand, hit, apply_admission_cap);
}

ErrorCode KVCacheManager::can_fit_full_sequence(const KVRequest& request, const ComputedBlocks* hit,
                                                std::uint32_t num_external_tokens,
                                                std::uint32_t num_encoder_tokens, bool& fits) {
  if (config_.pool.rules.full_sequence_gate_in_allocate_slots) return ErrorCode::kNotInProfile;
  if (!is_hit(hit)) hit = nullptr;
  if (is_already_allocated(request, hit != nullptr, num_external_tokens > 0)) {
    return ErrorCode::kAlreadyAllocated;
  }
  const std::int64_t max_model_len = config_.max_model_len;
  SlotDemand demand;
  demand.request = request.index;
  demand.num_local_computed_tokens = std::min(
      std::int64_t{request.num_computed_tokens} + (hit ? hit->num_tokens : 0), max_model_len);
  demand.num_external_computed_tokens =
      std::min<std::int64_t>(num_external_tokens, max_model_len - demand.num_local_computed_tokens);
  demand.num_encoder_tokens = num_encoder_tokens;
  fits = num_full_sequence_blocks(request, demand, hit, /*apply_admission_cap=*/false) <=
         std::int64_t{block_pool().get_num_free_blocks()};
  return ErrorCode::kNone;
}

ErrorCode KVCacheManager::allocate_slots(const AllocateSlotsArgs& args, bool& allocated,
                                         BlocksByGroup& out) {
  const KVRequest& request = args.request;
  if (!config_.pool.rules.full_sequence_gate_in_allocate_slots &&
      (args.full_sequence_must_fit || args.reserved_blocks > 0)) {
    return ErrorCode::kNotInProfile;
  }
  if (args.num_new_tokens == 0 && args.num_external_tokens == 0) return ErrorCode::kNoTokens;
  const ComputedBlocks* const hit = is_hit(args.hit) ? args.hit : nullptr;
  const std::int64_t max_model_len = config_.max_model_len;

  SlotDemand demand;
  demand.request = request.index;
  demand.num_local_computed_tokens =
      std::int64_t{request.num_computed_tokens} + (hit ? hit->num_tokens : 0);
  demand.num_external_computed_tokens = args.num_external_tokens;
  demand.num_tokens_main_model = demand.num_computed_tokens() + args.num_new_tokens;
  if (demand.num_tokens_main_model > max_model_len) return ErrorCode::kBeyondModelLength;
  demand.num_tokens =
      std::min(demand.num_tokens_main_model + args.num_lookahead_tokens, max_model_len);
  demand.num_encoder_tokens = args.num_encoder_tokens;
  demand.has_computed_blocks = hit != nullptr || args.num_external_tokens > 0;
  if (is_already_allocated(request, hit != nullptr, args.num_external_tokens > 0)) {
    return ErrorCode::kAlreadyAllocated;
  }
  if (coordinator_.table_shrinks(demand)) return ErrorCode::kTableShrinks;

  allocated = false;
  clear_all(out, config_.groups.size());
  if (args.full_sequence_must_fit &&
      num_full_sequence_blocks(request, demand, hit, /*apply_admission_cap=*/true) >
          std::int64_t{block_pool().get_num_free_blocks()}) {
    return ErrorCode::kNone;
  }
  coordinator_.remove_skipped_blocks(request.index, demand.num_computed_tokens());
  const std::int64_t num_free_blocks = block_pool().get_num_free_blocks();
  if (coordinator_.get_num_blocks_to_allocate(demand, hit, /*apply_admission_cap=*/false) >
          num_free_blocks - args.reserved_blocks ||
      coordinator_.num_blocks_taken(demand, hit) > num_free_blocks) {
    return ErrorCode::kNone;
  }

  allocated = true;
  if (demand.has_computed_blocks) coordinator_.allocate_new_computed_blocks(demand, hit);
  coordinator_.allocate_new_blocks(demand, out);
  if (!config_.pool.enable_caching || args.delay_cache_blocks) return ErrorCode::kNone;
  // Drafts that may be rejected are not among the request's tokens yet.
  coordinator_.cache_blocks(request, static_cast<std::uint32_t>(std::min<std::int64_t>(
                                         demand.num_tokens_main_model, num_tokens_of(request))));
  return ErrorCode::kNone;
}

std::uint32_t KVCacheManager::get_num_remaining_blocks(const KVRequest& request) const {
  if (!config_.pool.rules.full_sequence_gate_in_allocate_slots) return 0;
  SlotDemand demand;
  demand.request = request.index;
  demand.num_local_computed_tokens = request.num_computed_tokens;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(
      num_full_sequence_blocks(request, demand, nullptr, /*apply_admission_cap=*/true), 0));
}

std::uint32_t KVCacheManager::num_settled_tokens(const KVRequest& request,
                                                 std::uint32_t num_lookahead_tokens) const {
  std::int64_t num_tokens = config_.max_model_len;
  for (const auto& group : coordinator_.groups()) {
    num_tokens = std::min(
        num_tokens,
        group.num_settled_tokens(request.index, request.num_computed_tokens, num_lookahead_tokens));
  }
  return static_cast<std::uint32_t>(std::max<std::int64_t>(num_tokens, 0));
}

ErrorCode KVCacheManager::cache_blocks(const KVRequest& request,
                                       std::uint32_t num_computed_tokens) {
  if (!config_.pool.enable_caching) return ErrorCode::kNone;
  if (num_computed_tokens > num_tokens_of(request)) return ErrorCode::kMissingHash;
  if (!coordinator_.has_full_blocks(request.index, num_computed_tokens)) {
    return ErrorCode::kBadRange;
  }
  coordinator_.cache_blocks(request, num_computed_tokens);
  return ErrorCode::kNone;
}

bool KVCacheManager::reset_prefix_cache() {
  if (!coordinator_.block_pool().reset_prefix_cache()) return false;
  stats_.reset = true;
  return true;
}

ErrorCode KVCacheManager::get_num_common_prefix_blocks(RequestIndex request,
                                                       std::vector<std::uint32_t>& out) const {
  if (!coordinator_.is_allocated(request)) return ErrorCode::kNotAllocated;
  coordinator_.get_num_common_prefix_blocks(request, out);
  return ErrorCode::kNone;
}

void KVCacheManager::get_block_ids(RequestIndex request, BlocksByGroup& out) const {
  out.resize(config_.groups.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::span<const BlockId> blocks = coordinator_.groups()[i].blocks(request);
    out[i].assign(blocks.begin(), blocks.end());
  }
}

void KVCacheManager::take_events(std::vector<KVCacheEvent>& out) {
  coordinator_.block_pool().take_events(out);
  if (!config_.pool.rules.events_carry_spec) return;
  for (KVCacheEvent& event : out) {
    auto* const stored = std::get_if<BlockStored>(&event);
    if (!stored || !stored->group_idx) continue;
    const KVCacheSpec& spec = config_.groups[*stored->group_idx];
    stored->kv_cache_spec_kind = event_name(spec.kind);
    if (spec.kind == KVCacheSpecKind::kSlidingWindow) {
      stored->kv_cache_spec_sliding_window = spec.sliding_window;
    }
  }
}

PrefixCacheStats KVCacheManager::take_prefix_cache_stats() {
  return std::exchange(stats_, PrefixCacheStats{});
}

}  // namespace kvfence::optimized
