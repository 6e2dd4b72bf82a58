#pragma once

/// OpenTable: numbers by key, with open addressing and linear probing. Ascending keys are in the
/// table together, so their home slots are spread. Otherwise they would form one cluster, which an
/// erasure would walk to its end.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"

namespace kvfence::optimized {

/// Cost: O(1) expected per operation, except for visits of all entries.
template <std::unsigned_integral Key>
class OpenTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  /// The number of the key, or kNone.
  std::uint32_t find(Key key) const {
    return find(key, [](std::uint32_t) { return true; });
  }

  /// The number of the key that is_right, where several may have it; or kNone.
  template <class IsRight>
  std::uint32_t find(Key key, IsRight is_right) const {
    if (slots_.empty()) return kNone;
    for (std::size_t at = home_of(key);; at = next(at)) {
      const Slot& slot = slots_[at];
      if (slot.number == kNone || (slot.key == key && is_right(slot.number))) return slot.number;
    }
  }

  /// Requires: the key does not have this number, which is not kNone.
  void insert(Key key, std::uint32_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    put({key, number});
    ++size_;
  }

  /// Requires: the key has one number.
  void erase(Key key) { erase(key, find(key)); }

  /// Requires: the key has this number.
  void erase(Key key, std::uint32_t number) {
    std::size_t hole = home_of(key);
    while (slots_[hole].key != key || slots_[hole].number != number) hole = next(hole);
    // The rest of the cluster moves up, so that no probe ends too early.
    for (std::size_t at = next(hole); slots_[at].number != kNone; at = next(at)) {
      const std::size_t distance_to_home = (at - home_of(slots_[at].key)) & mask();
      if (distance_to_home < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --size_;
  }

  void clear() {
    slots_.assign(slots_.size(), Slot{});
    size_ = 0;
  }

  std::size_t size() const { return size_; }

  /// visit(key, number), in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.number != kNone) visit(slot.key, slot.number);
    }
  }

  void add_to(StateHash& hash) const {
    StateHash all;
    for_each([&all](Key key, std::uint32_t number) {
      all.add_unordered(StateHash::hash_of(std::pair(key, number)));
    });
    hash.add(all);
  }

 private:
  static constexpr std::size_t kSlotsMin = 16;

  struct Slot {
    Key key = 0;
    std::uint32_t number = kNone;
  };

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  std::size_t home_of(Key key) const {
    return static_cast<std::size_t>((std::uint64_t{key} * 0x9E37'79B9'7F4A'7C15) >> 32) & mask();
  }

  void put(const Slot& slot) {
    std::size_t at = home_of(slot.key);
    while (slots_[at].number != kNone) at = next(at);
    slots_[at] = slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kSlotsMin : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != kNone) put(slot);
    }
  }

  std::vector<Slot> slots_;  ///< a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace kvfence::optimized
