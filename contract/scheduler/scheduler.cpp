#include "contract/scheduler/scheduler.h"

namespace kvfence {

std::optional<std::uint32_t> SchedulerConfig::mamba_split_block_size() const {
  for (const KVCacheSpec& group : kv_cache.groups) {
    if (group.kind == KVCacheSpecKind::kMamba && group.mamba_align) return group.block_size;
  }
  return std::nullopt;
}

std::optional<std::string> check_config(const SchedulerConfig& config, bool has_connector) {
  if (auto expected = check_config(config.kv_cache)) return expected;
  if (config.kv_cache.max_model_len < 2) return "max_model_len of at least 2: a prompt, an output";
  if (config.max_num_seqs == 0) return "max_num_seqs of at least 1";
  if (config.token_budget() == 0)
    return "a positive max_num_scheduled_tokens or max_num_batched_tokens";
  if (config.max_concurrent_batches != 1 && config.max_concurrent_batches != 2) {
    return "max_concurrent_batches of 1 or 2";
  }
  if (config.max_concurrent_batches > 1 && config.num_speculative_tokens > 0 &&
      !config.async_scheduling) {
    return "async_scheduling with num_speculative_tokens and max_concurrent_batches of 2";
  }
  if ((config.kv_cache.use_eagle || config.draft_model) && config.num_speculative_tokens == 0) {
    return "num_speculative_tokens of at least 1 with use_eagle or draft_model";
  }
  const std::vector<KVCacheSpec>& groups = config.kv_cache.groups;
  const std::uint32_t hash_block_size = config.kv_cache.pool.hash.hash_block_size;
  if (groups.size() == 1 && groups.front().block_size != hash_block_size) {
    return "a single group with a block_size of hash_block_size";
  }
  for (const KVCacheSpec& group : groups) {
    if (group.kind == KVCacheSpecKind::kCrossAttention) {
      return "no cross attention: a scheduler has no encoder inputs";
    }
    if (group.kind != KVCacheSpecKind::kMamba || !group.mamba_align) continue;
    if (has_connector && !config.kv_cache.pool.rules.mamba_align_loads) {
      return "no connector with a Mamba group in align mode";
    }
    if (group.block_size != config.mamba_split_block_size()) {
      return "one block_size for all Mamba groups in align mode";
    }
    const std::uint32_t threshold = config.long_prefill_token_threshold;
    if (config.token_budget() < group.block_size ||
        (threshold > 0 && threshold < group.block_size)) {
      return "a token budget and long_prefill_token_threshold of at least the block_size of Mamba "
             "groups in align mode";
    }
  }
  return std::nullopt;
}

}  // namespace kvfence
