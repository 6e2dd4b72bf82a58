#pragma once

/// ReuseTracker: counts the lookups of the keys that were looked up last.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "contract/core/state_digest.h"
#include "contract/core/table_secret.h"
#include "contract/eviction/cache_policy.h"
#include "optimized/base/key_table.h"
#include "optimized/base/timeline.h"

namespace kvfence::optimized {

class ReuseTracker {
 public:
  /// Cost: O(num_keys_max). The only allocations, but for keys beyond 50 bytes.
  explicit ReuseTracker(std::uint32_t num_keys_max, const TableSecret& secret = {})
      : num_keys_max_(num_keys_max),
        table_(num_keys_max_, secret),
        order_(num_keys_max_, {PlaceOrder::kOrdered}) {}

  /// Counts a lookup; the key becomes the newest. A new key drops the oldest if there are
  /// num_keys_max. Requires: num_keys_max > 0. Cost: O(1) expected.
  void count(OffloadKeyView key) {
    Table::Search found = table_.search(key);
    Index index = found.entry;
    if (index == Table::kNone) {
      if (order_.size(0) == num_keys_max_) {
        table_.erase(order_.pop_first(0, table_));
        found = table_.search(key);
      }
      index = table_.insert(key, found);
      table_[index].count = 0;
      order_.append(0, index, table_);
    } else {
      order_.erase(0, table_[index].place);
      order_.append(0, index, table_);
    }
    std::uint32_t& count = table_[index].count;
    if (count < std::numeric_limits<std::uint32_t>::max()) ++count;
  }

  /// 0 for a key that is not there.
  std::uint32_t count_of(OffloadKeyView key) const {
    const Index index = table_.find(key);
    return index == Table::kNone ? 0 : table_[index].count;
  }

  /// Adds the keys, oldest first, with their counts up to count_max, which the caller does not
  /// distinguish from larger ones. Cost: O(num_keys_max); no allocation.
  void add_to(StateHash& hash, std::uint32_t count_max) const {
    hash.add(order_.size(0));
    for (Place place = order_.first(0); place != order_.kNone; place = order_.next(0, place + 1)) {
      const Index index = order_.member_at(place);
      hash.add_all(table_.key_of(index), std::min(table_[index].count, count_max));
    }
  }

  void prefetch(OffloadKeyView key) const { table_.prefetch(key); }

 private:
  struct Counted {
    Place place = 0;
    std::uint32_t count = 0;
  };
  using Table = KeyTable<Counted>;
  using Index = Table::Index;

  std::uint32_t num_keys_max_;
  Table table_;
  Timeline order_;
};

}  // namespace kvfence::optimized
