#pragma once

/// OffloadingEventLog: the events of an offloading manager, flat, until the caller takes them.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/offload/offloading_manager.h"

namespace kvfence::optimized {

class OffloadingEventLog {
 public:
  /// An event without keys counts as none as long as none is added.
  void begin(bool removed) { is_removed_ = removed, is_open_ = false; }

  /// To the event begun last. Cost: O(bytes); the arenas keep their capacity.
  void add(OffloadKeyView key) {
    if (!is_open_) records_.push_back({.num_keys = 0, .removed = is_removed_});
    is_open_ = true;
    ++records_.back().num_keys;
    key_bytes_.push_back(key.size());
    bytes_.append(key);
  }

  /// Overwrites out with the events so far and empties the log. Cost: allocates what the events
  /// own.
  void take(std::vector<OffloadingEvent>& out) {
    out.clear();
    out.reserve(records_.size());
    auto key_bytes = key_bytes_.begin();
    std::string_view rest = bytes_;
    for (const Record& record : records_) {
      OffloadingEvent& event = out.emplace_back();
      event.removed = record.removed;
      event.keys.reserve(record.num_keys);
      for (std::size_t i = 0; i < record.num_keys; ++i) {
        event.keys.emplace_back(rest.substr(0, *key_bytes));
        rest.remove_prefix(*key_bytes++);
      }
    }
    records_.clear();
    key_bytes_.clear();
    bytes_.clear();
    is_open_ = false;
  }

  /// Takes in the events. What was begun last stays out: the operation is over that had begun it.
  void add_to(StateHash& hash) const {
    hash.add(records_);
    hash.add(key_bytes_);
    hash.add(bytes_);
  }

 private:
  struct Record {
    std::size_t num_keys = 0;
    bool removed = false;
    void add_to(StateHash& hash) const {
      hash.add(num_keys);
      hash.add(removed);
    }
  };

  bool is_removed_ = false;
  bool is_open_ = false;  ///< the event begun last has a key
  std::vector<Record> records_;
  std::vector<std::size_t> key_bytes_;  ///< one per key
  std::string bytes_;                   ///< the keys, back to back
};

}  // namespace kvfence::optimized
