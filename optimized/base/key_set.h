#pragma once

/// KeySet: packed keys of one length, emptied in O(1).
///
/// An open-addressing table of indices into an arena of key bytes. Only slots with the current
/// epoch belong to the set, so clear() touches no slot; storage is kept.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "contract/core/table_secret.h"
#include "optimized/base/keyed_hash.h"

namespace kvfence::optimized {

class KeySet {
 public:
  explicit KeySet(const TableSecret& secret = {}) : hash_(secret) {}

  /// Requires: key is not empty, and as long as every other key of the set. Cost: O(1) expected.
  void insert(std::string_view key) {
    KVFENCE_CHECK(!key.empty(), "the empty key stands for no key");
    key_bytes_ = key.size();
    if (2 * (num_keys_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[find_slot(key)];
    if (slot.epoch == epoch_) return;
    slot = {.epoch = epoch_, .index = num_keys_++};
    bytes_.append(key);
  }

  bool contains(std::string_view key) const {
    return num_keys_ > 0 && key.size() == key_bytes_ && slots_[find_slot(key)].epoch == epoch_;
  }

  void clear() {
    bytes_.clear();
    num_keys_ = 0;
    if (++epoch_ != 0) return;
    slots_.assign(slots_.size(), Slot{});
    epoch_ = 1;
  }

  /// Adds the keys, in no particular order. Cost: O(keys).
  void add_to(StateHash& hash) const {
    StateHash all;
    for (std::uint32_t index = 0; index < num_keys_; ++index) {
      all.add_unordered(StateHash::hash_of(key_at(index)));
    }
    hash.add_all(num_keys_, all);
  }

 private:
  static constexpr std::size_t kNumSlotsMin = 16;

  struct Slot {
    std::uint32_t epoch = 0;
    std::uint32_t index = 0;
  };

  std::string_view key_at(std::uint32_t index) const {
    return std::string_view(bytes_).substr(index * key_bytes_, key_bytes_);
  }

  /// The slot of the key, or the empty one where it belongs.
  std::size_t find_slot(std::string_view key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash_(key) & mask;
    while (slots_[at].epoch == epoch_ && key_at(slots_[at].index) != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    slots_.assign(slots_.empty() ? kNumSlotsMin : 2 * slots_.size(), Slot{});
    for (std::uint32_t index = 0; index < num_keys_; ++index) {
      slots_[find_slot(key_at(index))] = {.epoch = epoch_, .index = index};
    }
  }

  KeyedHash hash_;
  std::vector<Slot> slots_;  ///< a power of two of them, at most half in use
  std::string bytes_;        ///< [num_keys][key_bytes]
  std::size_t key_bytes_ = 0;
  std::uint32_t num_keys_ = 0;
  std::uint32_t epoch_ = 1;
};

}  // namespace kvfence::optimized
