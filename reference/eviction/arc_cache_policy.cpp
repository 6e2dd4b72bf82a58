#include "reference/eviction/cache_policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
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

template <class List>
void remove_key(List& list, OffloadKeyView key) {
  const auto place = find_key(list, key);
  if (place != list.end()) list.erase(place);
}

// How far a hit on a ghost moves the target: by the quotient of the ghost lists, by 1 at least.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py touch (delta)
double target_step(std::size_t other_ghosts, std::size_t ghosts) {
  return std::max(1.0, static_cast<double>(other_ghosts) / static_cast<double>(ghosts));
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py evict (its end)
void drop_oldest(std::vector<OffloadKey>& ghosts, double capacity) {
  while (static_cast<double>(ghosts.size()) > capacity) ghosts.erase(ghosts.begin());
}

/// ARC: two lists of blocks, two of keys that were evicted from them, and one target. The rules of
/// each function stand in contract/eviction/cache_policy.h; reference/eviction/cache_policy.h
/// checks what may be refused.
/// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py ARCCachePolicy.
class ARCCachePolicy final : public Cloning<ARCCachePolicy, PolicyOfKind> {
 public:
  explicit ARCCachePolicy(const CachePolicyConfig& config)
      : capacity_(config.capacity), refuses_with_idle_t1_(config.arc_refuses_with_idle_t1) {}

  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py get
  BlockStatus* find(OffloadKeyView key) override {
    for (std::vector<PolicyEntry>* list : {&lists_.t1, &lists_.t2}) {
      const auto block = find_key(*list, key);
      if (block != list->end()) return &block->status;
    }
    return nullptr;
  }

  // The newest of T1, and not ready; no ghost any more.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py insert
  void insert(OffloadKeyView key, SlotId slot) override {
    lists_.t1.push_back({OffloadKey(key), {kNotReady, slot}});
    remove_key(lists_.b1, key);
    remove_key(lists_.b2, key);
  }

  // No ghost remembers it.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py remove
  void remove(OffloadKeyView key) override {
    KVFENCE_CHECK(find(key) != nullptr, "no such block to remove");
    remove_key(lists_.t1, key);
    remove_key(lists_.t2, key);
  }

  // From the last key to the first, so that the first ends as the newest.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py touch
  void touch(std::span<const OffloadKeyView> keys) override {
    for (auto key = keys.rbegin(); key != keys.rend(); ++key) touch_one(*key);
  }

  // One after the other, out of a copy: if they do not suffice, nothing has changed. The ghosts are
  // trimmed once, at the end.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py evict
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out) override {
    if (num_blocks == 0) return true;
    ARCCachePolicy after = *this;
    std::vector<EvictedBlock> evicted;
    for (std::uint32_t count = 0; count < num_blocks; ++count) {
      if (!after.evict_one(protected_keys, evicted)) return false;
    }
    drop_oldest(after.lists_.b1, capacity_);
    drop_oldest(after.lists_.b2, capacity_);
    *this = std::move(after);
    out.insert(out.end(), evicted.begin(), evicted.end());
    return true;
  }

  // Source: vLLM v0.23.0 v1/kv_offload/cpu/policies/arc.py clear
  void clear() override { lists_ = PolicyLists{}; }

  std::uint32_t size() const override {
    return static_cast<std::uint32_t>(lists_.t1.size() + lists_.t2.size());
  }

  void lists(PolicyLists& out) const override { out = lists_; }

  void add_to(StateHash& hash) const override { hash.add(lists_); }

 private:
  // Where the key stands decides: T1 -> T2, or T1 again if not ready; T2, B1 and B2 -> their end. A
  // ghost moves the target, and stays a ghost.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py touch (one round of its loop)
  void touch_one(OffloadKeyView key) {
    auto& [t1, t2, b1, b2, target] = lists_;
    if (const auto block = find_key(t1, key); block != t1.end()) {
      move_to_end(t1, block);
      if (t1.back().status.ref_cnt == kNotReady) return;
      t2.push_back(std::move(t1.back()));
      t1.pop_back();
    } else if (const auto used = find_key(t2, key); used != t2.end()) {
      move_to_end(t2, used);
    } else if (const auto recent = find_key(b1, key); recent != b1.end()) {
      target = std::min(target + target_step(b2.size(), b1.size()), capacity_);
      move_to_end(b1, recent);
    } else if (const auto frequent = find_key(b2, key); frequent != b2.end()) {
      target = std::max(target - target_step(b1.size(), b2.size()), 0.0);
      move_to_end(b2, frequent);
    }
  }

  /// One block into its ghost list and to the end of `out`; false if none may go.
  // |T1| is here what upstream's virtual size is: without those chosen before.
  // Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py evict (one round of its loop); the last
  // resort: ours (contract/core/rules.h arc_refuses_with_idle_t1)
  bool evict_one(std::span<const OffloadKeyView> protected_keys, std::vector<EvictedBlock>& out) {
    const auto evict_from = [&](std::vector<PolicyEntry>& blocks, std::vector<OffloadKey>& ghosts) {
      const auto victim = find_victim(blocks, protected_keys);
      if (victim == blocks.end()) return false;
      out.push_back({victim->key, victim->status.slot});
      ghosts.push_back(victim->key);
      blocks.erase(victim);
      return true;
    };
    const bool t1_first =
        static_cast<double>(lists_.t1.size()) >= std::floor(lists_.target_t1_size);
    if (t1_first && evict_from(lists_.t1, lists_.b1)) return true;
    if (evict_from(lists_.t2, lists_.b2)) return true;
    return !refuses_with_idle_t1_ && evict_from(lists_.t1, lists_.b1);
  }

  double capacity_;
  bool refuses_with_idle_t1_;
  PolicyLists lists_;  ///< the whole state
};

}  // namespace

std::unique_ptr<PolicyOfKind> make_arc_cache_policy(const CachePolicyConfig& config) {
  return std::make_unique<ARCCachePolicy>(config);
}

}  // namespace kvfence::reference
