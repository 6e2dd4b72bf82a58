#include "reference/eviction/lru_cache_policy.h"

#include <utility>

#include "contract/core/check.h"
#include "reference/eviction/policy_list.h"

namespace kvfence::reference {

// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py get
BlockStatus* LRUCachePolicy::find(OffloadKeyView key) {
  const auto block = find_key(blocks_, key);
  return block == blocks_.end() ? nullptr : &block->status;
}

const BlockStatus* LRUCachePolicy::find(OffloadKeyView key) const {
  const auto block = find_key(blocks_, key);
  return block == blocks_.end() ? nullptr : &block->status;
}

// The newest, and not ready.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py insert
void LRUCachePolicy::insert(OffloadKeyView key, SlotId slot) {
  blocks_.push_back({OffloadKey(key), {kNotReady, slot}});
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py remove
void LRUCachePolicy::remove(OffloadKeyView key) {
  const auto block = find_key(blocks_, key);
  KVFENCE_CHECK(block != blocks_.end(), "no such block to remove");
  blocks_.erase(block);
}

// From the last key to the first, so that the first ends as the newest; absent keys are passed
// over.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py touch
void LRUCachePolicy::touch(std::span<const OffloadKeyView> keys) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto block = find_key(blocks_, *key);
    if (block != blocks_.end()) move_to_end(blocks_, block);
  }
}

// The oldest that may go, one after the other, out of a copy: if they do not suffice, nothing has
// changed.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py evict
bool LRUCachePolicy::evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                           std::vector<EvictedBlock>& out) {
  std::vector<PolicyEntry> left = blocks_;
  std::vector<EvictedBlock> evicted;
  for (std::uint32_t count = 0; count < num_blocks; ++count) {
    const auto victim = find_victim(left, protected_keys);
    if (victim == left.end()) return false;
    evicted.push_back({victim->key, victim->status.slot});
    left.erase(victim);
  }
  blocks_ = std::move(left);
  out.insert(out.end(), evicted.begin(), evicted.end());
  return true;
}

// Source: vLLM v0.23.0 v1/kv_offload/cpu/policies/lru.py clear
void LRUCachePolicy::clear() { blocks_.clear(); }

std::uint32_t LRUCachePolicy::size() const { return static_cast<std::uint32_t>(blocks_.size()); }

void LRUCachePolicy::lists(PolicyLists& out) const {
  out = PolicyLists{};
  out.t1 = blocks_;
}

}  // namespace kvfence::reference
