#pragma once

/// An index of hashes that is built from the pool's events alone, as in an external router.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/kv_events.h"
#include "properties/core/invariant_values.h"

namespace kvfence {

/// A value: copyable. Entries keep their storage: no allocation once warm.
class EventMirror {
 public:
  void clear() { size_ = 0; }

  /// Applies events, oldest first. Reports the first wrong one: one that was sent although events
  /// are off, has content that the rules exclude, or removes what the index does not hold.
  std::optional<detail::Mismatch> take(std::span<const KVCacheEvent> events,
                                       const BlockPoolConfig& config);

  /// A hash that the index has too often or too seldom, if events are on.
  /// Cost: the keys times the hashes in the index.
  std::optional<detail::Mismatch> compare(const KeyList& keys, const BlockPoolConfig& config);

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

  std::vector<Entry> entries_;  ///< the first size_ count, none of them 0 times
  std::size_t size_ = 0;
};

}  // namespace kvfence
