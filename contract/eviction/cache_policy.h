#pragma once

/// Eviction policies of the CPU cache: which blocks are cached, in which order they were used, and
/// which are evicted first.
///
/// This file states the rules of each operation once; `reference/` and `optimized/` implement them
/// independently. Source: vLLM v0.19.0 v1/kv_offload/cpu/policies/{abstract,lru,arc}.py; v0.23.0
/// evicts the same blocks and adds clear.
///
/// Common to all operations:
///   - A refused operation changes nothing. Error codes are checked in the order listed
///     (contract/core/status.h): the whole list of blocks is checked for the first code before the
///     second.
///   - A policy is a value: copyable, no clocks, no globals, no threads.

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/status.h"
#include "contract/core/table_secret.h"
#include "contract/core/types.h"
#include "contract/core/words.h"

namespace kvfence {

/// What names an offloaded block: a block hash, with its group id where groups are distinguished.
using OffloadKey = std::string;
using OffloadKeyView = std::string_view;

enum class EvictionPolicy : std::uint8_t { kLRU, kARC };

constexpr auto words_of(EvictionPolicy) { return words({"lru", "arc"}); }

struct CachePolicyConfig {
  EvictionPolicy policy = EvictionPolicy::kLRU;
  std::uint32_t capacity = 0;            ///< blocks
  bool arc_refuses_with_idle_t1 = true;  ///< the rule of that name
  TableSecret table_secret = {};
  friend bool operator==(const CachePolicyConfig&, const CachePolicyConfig&) = default;
};

/// -1: being written. 0: idle. Above: being read by so many transfers.
inline constexpr std::int32_t kNotReady = -1;

struct BlockStatus {
  std::int32_t ref_cnt = kNotReady;
  SlotId slot = 0;
  friend bool operator==(const BlockStatus&, const BlockStatus&) = default;
};

/// A block in one of a policy's lists.
struct PolicyEntry {
  OffloadKey key;
  BlockStatus status;
  friend bool operator==(const PolicyEntry&, const PolicyEntry&) = default;
};

struct EvictedBlock {
  OffloadKey key;
  SlotId slot = 0;
  friend bool operator==(const EvictedBlock&, const EvictedBlock&) = default;
};

/// A policy's lists, oldest first. LRU has only t1.
struct PolicyLists {
  std::vector<PolicyEntry> t1;
  std::vector<PolicyEntry> t2;
  std::vector<OffloadKey> b1;
  std::vector<OffloadKey> b2;
  double target_t1_size = 0;  ///< a real number: 0 <= target <= capacity
  friend bool operator==(const PolicyLists&, const PolicyLists&) = default;
};

/// CachePolicy.
///
/// LRU keeps one list. ARC keeps two lists of blocks, T1 and T2, two of keys of evicted ones, B1
/// and B2, and a target for the size of T1 that starts at 0. A key is in one of them at most.
/// *Idle*: ref_cnt is 0.
///
/// get(key, out) -> whether the block is held
///
/// insert(key, slot)
///     Held from now on, not ready, as the newest of LRU's list or T1; the key leaves B1 and B2.
///     Errors:
///       kAlreadyStored   the block is held
///       kNoFreeBlocks    capacity blocks are held
///
/// remove(key)
///     Not held any more; no ghost remembers it.
///     Errors: kUnknownKey
///
/// make_ready(key)
///     -1 becomes 0.
///     Errors: kUnknownKey, kAlreadyReady
///
/// acquire(key), release(key)
///     ref_cnt + 1, - 1.
///     Errors: kUnknownKey; kNotReady at -1; release also kNotReading at 0
///
/// touch(keys)
///     From the last key to the first, so that the first ends as the newest; absent keys are passed
///     over. LRU: to the end of the list. ARC, by the key's list:
///       T1  to the end of T2, or of T1 if not ready
///       T2  to its end
///       B1  target = min(target + max(1, |B2| / |B1|), capacity); to the end of B1
///       B2  target = max(target - max(1, |B1| / |B2|), 0); to the end of B2
///     The quotients are of IEEE doubles, of the sizes at that moment.
///
/// evict(num_blocks, protected, out) -> whether so many can go
///     Exactly num_blocks idle and not protected blocks leave, or nothing changes. LRU: the oldest
///     first. ARC, one after the other, with v = |T1| less the ones chosen there: if v >= floor of
///     target, the oldest of T1; if not, or if T1 has none, the oldest of T2; if T2 has none, all
///     is refused (without the rule arc_refuses_with_idle_t1, T1 is looked through before). The
///     chosen of T1 go to the end of B1, of T2 to B2, in the order of choice; then B1 and B2 lose
///     their oldest until each has at most capacity keys. out is appended to, in the order of
///     choice. num_blocks == 0: nothing happens.
///     Cost of the optimized side: O(num_blocks + protected).
///
/// clear()
///     As built. Source: vLLM v0.23.0.
///
/// size(): blocks held. lists(out): what an observer reads.
template <class P>
concept CachePolicy = std::copyable<P> && std::constructible_from<P, const CachePolicyConfig&> &&
    requires(P policy, const P& const_policy, OffloadKeyView key, SlotId slot, BlockStatus& status,
             std::span<const OffloadKeyView> keys, std::uint32_t num_blocks,
             std::vector<EvictedBlock>& evicted, PolicyLists& lists) {
  { const_policy.get(key, status) } -> std::same_as<bool>;
  { policy.insert(key, slot) } -> std::same_as<ErrorCode>;
  { policy.remove(key) } -> std::same_as<ErrorCode>;
  { policy.make_ready(key) } -> std::same_as<ErrorCode>;
  { policy.acquire(key) } -> std::same_as<ErrorCode>;
  { policy.release(key) } -> std::same_as<ErrorCode>;
  { policy.touch(keys) } -> std::same_as<void>;
  { policy.evict(num_blocks, keys, evicted) } -> std::same_as<bool>;
  { policy.clear() } -> std::same_as<void>;
  { const_policy.size() } -> std::same_as<std::uint32_t>;
  { const_policy.lists(lists) } -> std::same_as<void>;
  { const_policy.config() } -> std::same_as<const CachePolicyConfig&>;
};

}  // namespace kvfence
