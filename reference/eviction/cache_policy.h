#pragma once

/// A cache policy: the executable specification. LRU and ARC differ in touch and in evict alone;
/// LRU has only the list T1. The rules of each function, and its errors in order, are in
/// contract/eviction/cache_policy.h.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/{abstract,lru,arc}.py.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence::reference {

class CachePolicy {
 public:
  explicit CachePolicy(const CachePolicyConfig& config) : config_(config) {}

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
  void lists(PolicyLists& out) const { out = lists_; }
  const CachePolicyConfig& config() const { return config_; }

  /// Takes in the whole state: what decides later answers. The configuration, which never changes,
  /// stays out.
  void add_to(StateHash& hash) const { hash.add(lists_); }

 private:
  bool is_arc() const { return config_.policy == EvictionPolicy::kARC; }
  void touch_in_lru(OffloadKeyView key);
  void touch_in_arc(OffloadKeyView key);
  /// One block leaves, to the end of `out`; false if none may go.
  bool evict_one_of_lru(std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out);
  bool evict_one_of_arc(std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out);

  CachePolicyConfig config_;
  PolicyLists lists_;  ///< the whole state
};

}  // namespace kvfence::reference

static_assert(kvfence::CachePolicy<kvfence::reference::CachePolicy>);
