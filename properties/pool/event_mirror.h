#pragma once

/// An index of hashes that knows the pool from its events alone, as a router outside does.

#include <optional>
#include <span>

#include "contract/pool/block_pool.h"
#include "contract/pool/block_pool_target.h"
#include "contract/pool/kv_events.h"
#include "properties/core/invariant_values.h"
#include "properties/pool/ledger.h"

namespace kvfence {

/// A value: copyable.
class EventMirror {
 public:
  void clear() { index_.clear(); }

  /// Takes events in, oldest first. What is wrong with one: it is there although events are off, it
  /// carries what the rules say it does not, or it removes what the index does not hold.
  std::optional<detail::Mismatch> take(std::span<const KVCacheEvent> events,
                                       const BlockPoolConfig& config);

  /// A hash that the index has too often or too seldom, if the events are on.
  std::optional<detail::Mismatch> compare(const KeyList& keys, const BlockPoolConfig& config);

 private:
  block_pool::EventDebt index_;  ///< hashes that the events say are there
};

}  // namespace kvfence
