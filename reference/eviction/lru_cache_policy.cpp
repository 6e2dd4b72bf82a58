#include "reference/eviction/cache_policy.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/eviction/cache_policy.h"
#include "reference/eviction/policy_list.h"

namespace kvfence::reference {
namespace {

/// LRU: one list of blocks, oldest first. The rules of each function stand in
/// contract/eviction/cache_policy.h; reference/eviction/cache_policy.h checks what may be refused.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py LRUCachePolicy.
class LRUCachePolicy final : public Cloning<LRUCachePolicy, PolicyOfKind> {
 public:
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py get
  BlockStatus* find(OffloadKeyView key) override {
    const auto block = find_key(blocks_, key);
    return block == blocks_.end() ? nullptr : &block->status;
  }

  // The newest, and not ready.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py insert
  void insert(OffloadKeyView key, SlotId slot) override {
    blocks_.push_back({OffloadKey(key), {kNotReady, slot}});
  }

  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py remove
  void remove(OffloadKeyView key) override {
    const auto block = find_key(blocks_, key);
    KVFENCE_CHECK(block != blocks_.end(), "no such block to remove");
    blocks_.erase(block);
  }

  // From the last key to the first, so that the first ends as the newest; absent keys are passed
  // over.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py touch
  void touch(std::span<const OffloadKeyView> keys) override {
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
      const auto block = find_key(blocks_, *key);
      if (block != blocks_.end()) move_to_end(blocks_, block);
    }
  }

  // The oldest that may go, one after the other, out of a copy: if they do not suffice, nothing has
  // changed.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py evict
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out) override {
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
  void clear() override { blocks_.clear(); }

  std::uint32_t size() const override { return static_cast<std::uint32_t>(blocks_.size()); }

  void lists(PolicyLists& out) const override {
    out = PolicyLists{};
    out.t1 = blocks_;
  }

  void add_to(StateHash& hash) const override { hash.add(blocks_); }

 private:
  std::vector<PolicyEntry> blocks_;  ///< oldest first
};

}  // namespace

std::unique_ptr<PolicyOfKind> make_lru_cache_policy() { return std::make_unique<LRUCachePolicy>(); }

}  // namespace kvfence::reference
