#pragma once

/// OffloadingEventLog: the events of an offloading manager in flat storage, until the caller takes
/// them. The keys of all events have less than 4 GiB.

#include <cstddef>
#include <span>
#include <vector>

#include "contract/core/flat_lists.h"
#include "contract/core/state_digest.h"
#include "contract/offload/offloading_manager.h"

namespace kvfence::optimized {

class OffloadingEventLog {
 public:
  /// An event counts once it has a key.
  void begin(bool removed) { is_removed_ = removed, is_open_ = false; }

  /// Adds a key to the event begun last. Cost: O(bytes); the arenas keep their capacity.
  void add(OffloadKeyView key) {
    if (!is_open_) records_.push_back({.num_keys = 0, .removed = is_removed_});
    is_open_ = true;
    ++records_.back().num_keys;
    keys_.append(key);
    keys_.end_list();
  }

  /// Overwrites out with the events so far and empties the log. Cost: allocates what the events
  /// own.
  void take(std::vector<OffloadingEvent>& out) {
    out.clear();
    out.reserve(records_.size());
    std::size_t key = 0;
    for (const Record& record : records_) {
      OffloadingEvent& event = out.emplace_back();
      event.removed = record.removed;
      event.keys.reserve(record.num_keys);
      for (std::size_t i = 0; i < record.num_keys; ++i) {
        const std::span<const char> bytes = keys_[key++];
        event.keys.emplace_back(bytes.begin(), bytes.end());
      }
    }
    records_.clear();
    keys_.clear();
    is_open_ = false;
  }

  /// Adds the events. Leaves out whether one is open, since the operation that began it is over.
  void add_to(StateHash& hash) const { hash.add_all(records_, keys_); }

 private:
  struct Record {
    std::size_t num_keys = 0;
    bool removed = false;
  };

  bool is_removed_ = false;
  bool is_open_ = false;  ///< the event begun last has a key
  std::vector<Record> records_;
  FlatLists<char> keys_;
};

}  // namespace kvfence::optimized
