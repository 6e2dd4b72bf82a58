#include "reference/eviction/cache_policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "contract/core/lists.h"

namespace kvfence::reference {
namespace {

OffloadKeyView key_of(const PolicyEntry& entry) { return entry.key; }
OffloadKeyView key_of(const OffloadKey& ghost) { return ghost; }

/// The place of the key in a list of blocks or of ghosts; its end if it is not there.
template <class List>
auto find_key(List& list, OffloadKeyView key) {
  return std::ranges::find_if(list, [key](const auto& element) { return key_of(element) == key; });
}

template <class List>
void remove_key(List& list, OffloadKeyView key) {
  const auto place = find_key(list, key);
  if (place != list.end()) list.erase(place);
}

/// Makes the element at `place` the newest; all others keep their order.
template <class List>
void move_to_end(List& list, typename List::iterator place) {
  std::rotate(place, place + 1, list.end());
}

/// Null if the block is not held.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py and arc.py get
template <class Lists>
auto* find_block(Lists& lists, OffloadKeyView key) {
  auto block = find_key(lists.t1, key);
  if (block != lists.t1.end()) return &block->status;
  block = find_key(lists.t2, key);
  return block != lists.t2.end() ? &block->status : nullptr;
}

/// The oldest block that may go: idle, and not protected. The list's end if there is none.
auto find_victim(const std::vector<PolicyEntry>& blocks,
                 std::span<const OffloadKeyView> protected_keys) {
  return std::ranges::find_if(blocks, [&](const PolicyEntry& block) {
    return block.status.ref_cnt == 0 && !contains(protected_keys, block.key);
  });
}

// How far a hit on a ghost moves the target: by the quotient of the ghost lists, by 1 at least.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py touch (delta)
double target_step(std::size_t other_ghosts, std::size_t ghosts) {
  return std::max(1.0, static_cast<double>(other_ghosts) / static_cast<double>(ghosts));
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py evict (its end)
void drop_oldest(std::vector<OffloadKey>& ghosts, std::uint32_t capacity) {
  while (ghosts.size() > capacity) ghosts.erase(ghosts.begin());
}

}  // namespace

bool CachePolicy::get(OffloadKeyView key, BlockStatus& out) const {
  const BlockStatus* status = find_block(lists_, key);
  if (status) out = *status;
  return status != nullptr;
}

// The newest of T1, and not ready; no ghost any more.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py and arc.py insert; refusals: ours
// (contract/eviction/cache_policy.h); upstream would put a second block under the key, and counts
// no capacity here.
ErrorCode CachePolicy::insert(OffloadKeyView key, SlotId slot) {
  if (find_block(lists_, key)) return ErrorCode::kAlreadyStored;
  if (size() >= config_.capacity) return ErrorCode::kNoFreeBlocks;
  lists_.t1.push_back({OffloadKey(key), {kNotReady, slot}});
  remove_key(lists_.b1, key);
  remove_key(lists_.b2, key);
  return ErrorCode::kNone;
}

// No ghost remembers it.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py and arc.py remove; refusal: ours
// (contract/eviction/cache_policy.h); upstream's LRU raises KeyError, its ARC does nothing.
ErrorCode CachePolicy::remove(OffloadKeyView key) {
  if (!find_block(lists_, key)) return ErrorCode::kUnknownKey;
  remove_key(lists_.t1, key);
  remove_key(lists_.t2, key);
  return ErrorCode::kNone;
}

// -1 becomes 0.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_store
ErrorCode CachePolicy::make_ready(OffloadKeyView key) {
  BlockStatus* status = find_block(lists_, key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt != kNotReady) return ErrorCode::kAlreadyReady;
  status->ref_cnt = 0;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py prepare_load
ErrorCode CachePolicy::acquire(OffloadKeyView key) {
  BlockStatus* status = find_block(lists_, key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  ++status->ref_cnt;
  return ErrorCode::kNone;
}

// Source: vLLM v0.19.0 v1/kv_offload/cpu/manager.py complete_load
ErrorCode CachePolicy::release(OffloadKeyView key) {
  BlockStatus* status = find_block(lists_, key);
  if (!status) return ErrorCode::kUnknownKey;
  if (status->ref_cnt == kNotReady) return ErrorCode::kNotReady;
  if (status->ref_cnt == 0) return ErrorCode::kNotReading;
  --status->ref_cnt;
  return ErrorCode::kNone;
}

// From the last key to the first, so that the first ends as the newest.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py and arc.py touch
void CachePolicy::touch(std::span<const OffloadKeyView> keys) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    is_arc() ? touch_in_arc(*key) : touch_in_lru(*key);
  }
}

// Absent keys are passed over.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py touch (one round of its loop)
void CachePolicy::touch_in_lru(OffloadKeyView key) {
  const auto block = find_key(lists_.t1, key);
  if (block != lists_.t1.end()) move_to_end(lists_.t1, block);
}

// The key's list decides: T1 -> T2, or T1 again if not ready; T2, B1 and B2 -> their end. A ghost
// moves the target, and stays a ghost.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py touch (one round of its loop)
void CachePolicy::touch_in_arc(OffloadKeyView key) {
  auto& [t1, t2, b1, b2, target] = lists_;
  if (const auto block = find_key(t1, key); block != t1.end()) {
    move_to_end(t1, block);
    if (t1.back().status.ref_cnt == kNotReady) return;
    t2.push_back(std::move(t1.back()));
    t1.pop_back();
  } else if (const auto used = find_key(t2, key); used != t2.end()) {
    move_to_end(t2, used);
  } else if (const auto recent = find_key(b1, key); recent != b1.end()) {
    target = std::min<double>(target + target_step(b2.size(), b1.size()), config_.capacity);
    move_to_end(b1, recent);
  } else if (const auto frequent = find_key(b2, key); frequent != b2.end()) {
    target = std::max(target - target_step(b1.size(), b2.size()), 0.0);
    move_to_end(b2, frequent);
  }
}

// One after the other, out of a copy: if they do not suffice, nothing has changed. The ghosts are
// trimmed once, at the end.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py and arc.py evict
bool CachePolicy::evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
                        std::vector<EvictedBlock>& out) {
  if (num_blocks == 0) return true;
  CachePolicy after = *this;
  std::vector<EvictedBlock> evicted;
  for (std::uint32_t count = 0; count < num_blocks; ++count) {
    const bool has_gone = is_arc() ? after.evict_one_of_arc(protected_keys, evicted)
                                   : after.evict_one_of_lru(protected_keys, evicted);
    if (!has_gone) return false;
  }
  drop_oldest(after.lists_.b1, config_.capacity);
  drop_oldest(after.lists_.b2, config_.capacity);
  *this = std::move(after);
  out.insert(out.end(), evicted.begin(), evicted.end());
  return true;
}

// The oldest that may go.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/lru.py evict (one round of its loop)
bool CachePolicy::evict_one_of_lru(std::span<const OffloadKeyView> protected_keys,
                                   std::vector<EvictedBlock>& out) {
  const auto victim = find_victim(lists_.t1, protected_keys);
  if (victim == lists_.t1.end()) return false;
  out.push_back({victim->key, victim->status.slot});
  lists_.t1.erase(victim);
  return true;
}

// The victim goes into its ghost list. Here |T1| is upstream's virtual size: without those chosen
// before.
// Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/arc.py evict (one round of its loop); the last
// resort: ours (contract/core/rules.h arc_refuses_with_idle_t1)
bool CachePolicy::evict_one_of_arc(std::span<const OffloadKeyView> protected_keys,
                                   std::vector<EvictedBlock>& out) {
  const auto evict_from = [&](std::vector<PolicyEntry>& blocks, std::vector<OffloadKey>& ghosts) {
    const auto victim = find_victim(blocks, protected_keys);
    if (victim == blocks.end()) return false;
    out.push_back({victim->key, victim->status.slot});
    ghosts.push_back(victim->key);
    blocks.erase(victim);
    return true;
  };
  const bool t1_first = static_cast<double>(lists_.t1.size()) >= std::floor(lists_.target_t1_size);
  if (t1_first && evict_from(lists_.t1, lists_.b1)) return true;
  if (evict_from(lists_.t2, lists_.b2)) return true;
  return !config_.arc_refuses_with_idle_t1 && evict_from(lists_.t1, lists_.b1);
}

// Source: vLLM v0.23.0 v1/kv_offload/cpu/policies/lru.py and arc.py clear
void CachePolicy::clear() { lists_ = PolicyLists{}; }

std::uint32_t CachePolicy::size() const {
  return static_cast<std::uint32_t>(lists_.t1.size() + lists_.t2.size());
}

}  // namespace kvfence::reference
