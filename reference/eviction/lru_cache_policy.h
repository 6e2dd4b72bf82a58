#pragma once

/// LRU: one list of blocks, oldest first. The rules of each function stand in
/// contract/eviction/cache_policy.h; reference/eviction/cache_policy.h checks what may be refused.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py LRUCachePolicy.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"

namespace kvfence::reference {

class LRUCachePolicy {
 public:
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
  void lists(PolicyLists& out) const;

  /// Takes in the whole state: what decides later answers.
  void add_to(StateHash& hash) const { hash.add(blocks_); }

 private:
  std::vector<PolicyEntry> blocks_;  ///< oldest first
};

}  // namespace kvfence::reference
