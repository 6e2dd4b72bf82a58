#pragma once

/// ARC: two lists of blocks, two of keys that were evicted from them, and one target. The rules of
/// each function stand in contract/eviction/cache_policy.h; reference/eviction/cache_policy.h
/// checks what may be refused.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py ARCCachePolicy.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence::reference {

class ARCCachePolicy {
 public:
  explicit ARCCachePolicy(const CachePolicyConfig& config);

  /// Null if the block is not held. The pointer holds until the next operation.
  BlockStatus* find(OffloadKeyView key);
  const BlockStatus* find(OffloadKeyView key) const;

  /// Requires: the block is not held
  void insert(OffloadKeyView key, SlotId slot);
  /// Requires: the block is held
  void remove(OffloadKeyView key);
  void touch(std::span<const OffloadKeyView> keys);
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out);
  void clear();

  std::uint32_t size() const;
  void lists(PolicyLists& out) const { out = lists_; }

  /// Takes in the whole state: what decides later answers.
  void add_to(StateHash& hash) const { hash.add(lists_); }

 private:
  void touch_one(OffloadKeyView key);
  /// One block into its ghost list and to the end of `out`; false if none may go.
  bool evict_one(std::span<const OffloadKeyView> protected_keys, std::vector<EvictedBlock>& out);

  double capacity_;
  bool refuses_with_idle_t1_;
  PolicyLists lists_;  ///< the whole state
};

}  // namespace kvfence::reference
