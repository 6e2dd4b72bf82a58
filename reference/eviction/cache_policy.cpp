#include "reference/eviction/cache_policy.h"

namespace kvfence::reference {

CachePolicy::CachePolicy(const CachePolicyConfig& config)
    : config_(config),
      policy_(config.policy == EvictionPolicy::kARC ? make_arc_cache_policy(config)
                                                    : make_lru_cache_policy()) {}

bool CachePolicy::get(OffloadKeyView key, BlockStatus& out) const {
  const BlockStatus* status = policy_->find(key);
  if (status) out = *status;
  return status != nullptr;
}

// Source: ours (contract/eviction/cache_policy.h); upstream would put a second block under the key,
// and counts no capacity here.
ErrorCode CachePolicy::insert(OffloadKeyView key, SlotId slot) {
  if (policy_->find(key)) return ErrorCode::kAlreadyStored;
  if (size() >= config_.capacity) return ErrorCode::kNoFreeBlocks;
  policy_->insert(key, slot);
  return ErrorCode::kNone;
}

// Source: ours (contract/eviction/cache_policy.h); upstream's LRU raises KeyError, its ARC does
// nothing.
ErrorCode CachePolicy::remove(OffloadKeyView key) {
  if (!policy_->find(key)) return ErrorCode::kUnknownKey;
  policy_->remove(key);
  return ErrorCode::kNone;
}

// -1 becomes 0.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_store
ErrorCode CachePolicy::make_ready(OffloadKeyView key) {
  BlockStatus* status = policy_->find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt != kNotReady) return ErrorCode::kAlreadyReady;
  status->ref_cnt = 0;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py prepare_load
ErrorCode CachePolicy::acquire(OffloadKeyView key) {
  BlockStatus* status = policy_->find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  ++status->ref_cnt;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_load
ErrorCode CachePolicy::release(OffloadKeyView key) {
  BlockStatus* status = policy_->find(key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  if (status->ref_cnt == 0) return ErrorCode::kNotReading;
  --status->ref_cnt;
  return ErrorCode::kNone;
}

void CachePolicy::touch(std::span<const OffloadKeyView> keys) { policy_->touch(keys); }

bool CachePolicy::evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out) {
  return policy_->evict(num_blocks, protected_keys, out);
}

void CachePolicy::clear() { policy_->clear(); }

std::uint32_t CachePolicy::size() const { return policy_->size(); }

void CachePolicy::lists(PolicyLists& out) const { policy_->lists(out); }

void CachePolicy::add_to(StateHash& hash) const { hash.add(policy_); }

}  // namespace kvfence::reference
