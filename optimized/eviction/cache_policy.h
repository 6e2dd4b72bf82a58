#pragma once

/// CachePolicy: LRU and ARC at O(1) per block, without an allocation in steady state.
///
/// Blocks and ghosts are entries of one table of keys. Their lists are timelines
/// (optimized/base/timeline.h): T1 and T2 share one, with a separate list of busy blocks; B1 and B2
/// share the other. So the oldest block that can go is the first of a list, however many older ones
/// are being read or written. A protected block counts as busy during the call. LRU is ARC without
/// T2 and without ghosts: its target stays 0.
///
/// The rules of every operation are in contract/eviction/cache_policy.h. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/eviction/cache_policy.h"
#include "optimized/base/key_table.h"
#include "optimized/base/timeline.h"

namespace kvfence::optimized {

class CachePolicy {
  enum class List : std::uint8_t { kT1, kT2, kB1, kB2 };

  struct Block {
    Place place = 0;  ///< in the timeline of its list
    std::int32_t ref_cnt = kNotReady;
    SlotId slot = 0;
    List list = List::kT1;
  };

  using Table = KeyTable<Block>;

 public:
  /// Requires: capacity <= 2^28.
  /// Cost: O(capacity); all allocations but those of the lists that the caller passes in, one list
  /// as long as the longest eviction, and of keys beyond 42 bytes.
  explicit CachePolicy(const CachePolicyConfig& config);

  bool get(OffloadKeyView key, BlockStatus& out) const;
  ErrorCode insert(OffloadKeyView key, SlotId slot);
  ErrorCode remove(OffloadKeyView key);
  ErrorCode make_ready(OffloadKeyView key);
  ErrorCode acquire(OffloadKeyView key);
  ErrorCode release(OffloadKeyView key);
  void touch(std::span<const OffloadKeyView> keys);

  /// Cost: O(num_blocks + protected); a refusal O(protected). It skips no block.
  bool evict(std::uint32_t num_blocks, std::span<const OffloadKeyView> protected_keys,
             std::vector<EvictedBlock>& out);

  /// Cost: O(capacity).
  void clear();

  std::uint32_t size() const { return num_held_; }
  void lists(PolicyLists& out) const;
  const CachePolicyConfig& config() const { return config_; }

  /// Adds the state in canonical form: all that decides later answers, but not history (places in
  /// the timelines and in the table, the victims of the last eviction). The configuration, which
  /// never changes, stays out. Cost: O(capacity); no allocation.
  void add_to(StateHash& hash) const;

  // For the manager, which looks a key up once and has checked its arguments.

  using Index = Table::Index;
  static constexpr Index kNone = Table::kNone;

  /// The block of a key, or kNone. Valid until the block is evicted or removed.
  [[gnu::always_inline]] Index find(OffloadKeyView key) const {
    const Index index = table_.find(key);
    return index != kNone && is_held(table_[index]) ? index : kNone;
  }

  std::int32_t ref_cnt(Index index) const { return table_[index].ref_cnt; }
  SlotId slot(Index index) const { return table_[index].slot; }
  OffloadKeyView key_of(Index index) const { return table_.key_of(index); }
  void set_ref_cnt(Index index, std::int32_t ref_cnt);
  void remove(Index index);

  /// Requires: the key is not held, and fewer than capacity blocks are.
  Index insert_new(OffloadKeyView key, SlotId slot);

  /// As above; the evicted ones are victims().
  bool evict(std::uint32_t num_blocks, std::span<const Index> protected_blocks);

  /// The blocks that the last evict removed, in the order of choice. Their key_of and slot are
  /// valid until the next insertion.
  std::span<const Index> victims() const { return victims_; }

  /// Called at each key by a caller that looks keys up in turn.
  void prefetch_ahead(std::span<const OffloadKeyView> keys, std::size_t i) const {
    if (i + kKeysAhead < keys.size()) table_.prefetch(keys[i + kKeysAhead]);
    if (i + kKeysAhead / 2 < keys.size()) table_.prefetch_entry(keys[i + kKeysAhead / 2]);
  }

 private:
  /// How many keys ahead a lookup of a list prefetches.
  static constexpr std::size_t kKeysAhead = 16;

  /// The lists of resident_: idle in T1, idle in T2, busy.
  static constexpr std::size_t kBusy = 2;
  static std::size_t idle(List list) { return static_cast<std::size_t>(list); }
  static std::size_t part_of(const Block& block) {
    return block.ref_cnt == 0 ? idle(block.list) : kBusy;
  }
  static std::size_t ghost_part(List list) { return list == List::kB1 ? 0 : 1; }

  static bool is_held(const Block& block) { return block.list <= List::kT2; }
  bool is_arc() const { return config_.policy == EvictionPolicy::kARC; }

  template <class Visit>
  void for_each_block(List list, Visit visit) const;
  template <class Visit>
  void for_each_ghost(List list, Visit visit) const;

  Index admit(OffloadKeyView key, const Table::Search& found, SlotId slot);
  void touch(OffloadKeyView key);
  void move_to_end(Index index, List list);
  void adapt_target(List ghost_list);
  void count_as_busy(std::span<const Index> blocks, bool is_busy);
  bool choose(std::uint32_t num_blocks);
  void let_go(List list, std::uint32_t num_blocks);
  void remember(Index index, List ghost_list);

  CachePolicyConfig config_;
  double target_t1_size_ = 0;
  std::uint32_t num_held_ = 0;
  std::uint32_t num_in_t1_ = 0;
  Table table_;
  Timeline resident_;
  Timeline ghosts_;  ///< B1, B2
  std::vector<Index> victims_;
  std::vector<Index> protected_;  ///< of the call of evict that runs
};

static_assert(kvfence::CachePolicy<CachePolicy>);

}  // namespace kvfence::optimized
