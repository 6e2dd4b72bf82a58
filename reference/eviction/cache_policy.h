#pragma once

/// A cache policy: the executable specification. Picks LRU or ARC, checks everything that may be
/// refused, and counts the readers of a block, which is the same for both. The rules of each
/// function, and its errors in order, stand in contract/eviction/cache_policy.h.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/abstract.py CachePolicy.

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"
#include "reference/eviction/arc_cache_policy.h"
#include "reference/eviction/lru_cache_policy.h"

namespace kvfence::reference {

class CachePolicy {
 public:
  explicit CachePolicy(const CachePolicyConfig& config);

  bool get(OffloadKeyView key, BlockStatus& out) const;
  ErrorCode insert(OffloadKeyView key, SlotId slot);
  ErrorCode remove(OffloadKeyView key);
  ErrorCode make_ready(OffloadKeyView key);
  ErrorCode acquire(OffloadKeyView key);
  ErrorCode release(OffloadKeyView key);
  void touch(std::span<const OffloadKeyView> keys);
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out);
  void clear();

  std::uint32_t size() const;
  void lists(PolicyLists& out) const;
  const CachePolicyConfig& config() const { return config_; }

  /// Takes in the whole state: what decides later answers. The configuration, which never changes,
  /// stays out.
  void add_to(StateHash& hash) const;

 private:
  /// Null if the block is not held. The pointer holds until the next operation.
  BlockStatus* find(OffloadKeyView key);

  CachePolicyConfig config_;
  std::variant<LRUCachePolicy, ARCCachePolicy> policy_;
};

}  // namespace kvfence::reference

static_assert(kvfence::CachePolicy<kvfence::reference::CachePolicy>);
