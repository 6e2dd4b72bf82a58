#pragma once

/// An index of hashes that is built from the pool's events alone, as in an external router.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/kv_events.h"
#include "properties/core/divergence.h"

namespace kvfence {

/// A value: copyable. Entries keep their storage: no allocation once warm.
class EventMirror {
 public:
  /// rule: thrown as broken (broken_rule.h).
  explicit EventMirror(const Invariant* rule) : rule_(rule) {}

  void clear() { size_ = 0; }

  /// Applies events, oldest first. A wrong one was sent although events are off, has content that
  /// the rules exclude, or removes what the index does not hold.
  void take(std::span<const KVCacheEvent> events, const BlockPoolConfig& config);

  /// If events are on, no hash may be in the index too often or too seldom.
  /// Cost: the keys times the hashes in the index.
  void compare(const KeyList& keys, const BlockPoolConfig& config);

 private:
  struct Entry {
    std::uint64_t fingerprint = 0;
    BlockHash hash;
    GroupId group = 0;  ///< 0 where events carry no group
    std::int64_t count = 0;
  };

  /// Below size_; size_ where the index has none.
  std::size_t find(BlockHashView hash, GroupId group) const;
  void change(BlockHashView hash, GroupId group, std::int64_t by);

  const Invariant* rule_;
  std::vector<Entry> entries_;  ///< the first size_ count, none of them 0 times
  std::size_t size_ = 0;
};

}  // namespace kvfence
