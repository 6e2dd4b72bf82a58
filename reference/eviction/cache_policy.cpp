#include "reference/eviction/cache_policy.h"

namespace kvfence::reference {

CachePolicy::CachePolicy(const CachePolicyConfig& config) : config_(config) {
  if (config.policy == EvictionPolicy::kARC) policy_.emplace<ARCCachePolicy>(config);
}

bool CachePolicy::get(OffloadKeyView key, BlockStatus& out) const {
  const BlockStatus* status =
      std::visit([&](const auto& policy) { return policy.find(key); }, policy_);
  if (status) out = *status;
  return status != nullptr;
}

// Source: ours (contract/eviction/cache_policy.h); upstream would put a second block under the key,
// and counts no capacity here.
ErrorCode CachePolicy::insert(OffloadKeyView key, SlotId slot) {
  if (find(key)) return ErrorCode::kAlreadyStored;
  if (size() >= config_.capacity) return ErrorCode::kNoFreeBlocks;
  std::visit([&](auto& policy) { policy.insert(key, slot); }, policy_);
  return ErrorCode::kNone;
}

// Source: ours (contract/eviction/cache_policy.h); upstream's LRU raises KeyError, its ARC does
// nothing.
ErrorCode CachePolicy::remove(OffloadKeyView key) {
  if (!find(key)) return ErrorCode::kUnknownKey;
  std::visit([&](auto& policy) { policy.remove(key); }, policy_);
  return ErrorCode::kNone;
}

// -1 becomes 0.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_store
ErrorCode CachePolicy::make_ready(OffloadKeyView key) {
  BlockStatus* status = find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt != kNotReady) return ErrorCode::kAlreadyReady;
  status->ref_cnt = 0;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py prepare_load
ErrorCode CachePolicy::acquire(OffloadKeyView key) {
  BlockStatus* status = find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  ++status->ref_cnt;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_load
ErrorCode CachePolicy::release(OffloadKeyView key) {
  BlockStatus* status = find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  if (status->ref_cnt == 0) return ErrorCode::kNotReading;
  --status->ref_cnt;
  return ErrorCode::kNone;
}

void CachePolicy::touch(std::span<const OffloadKeyView> keys) {
  std::visit([&](auto& policy) { policy.touch(keys); }, policy_);
}

bool CachePolicy::evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out) {
  return std::visit([&](auto& policy) { return policy.evict(num_blocks, protected_keys, out); },
                    policy_);
}

void CachePolicy::clear() {
  std::visit([](auto& policy) { policy.clear(); }, policy_);
}

std::uint32_t CachePolicy::size() const {
  return std::visit([](const auto& policy) { return policy.size(); }, policy_);
}

void CachePolicy::lists(PolicyLists& out) const {
  std::visit([&](const auto& policy) { policy.lists(out); }, policy_);
}

void CachePolicy::add_to(StateHash& hash) const {
  std::visit([&](const auto& policy) { hash.add(policy); }, policy_);
}

BlockStatus* CachePolicy::find(OffloadKeyView key) {
  return std::visit([&](auto& policy) { return policy.find(key); }, policy_);
}

}  // namespace kvfence::reference
