#pragma once

/// Slots that are reused with the storage of their former contents, so that lists in them keep
/// their capacity: SlotPool; NumberedSlots, which are found by the number of a job; NamedSlots,
/// which are found by the id of a request.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/table_secret.h"
#include "optimized/base/open_table.h"
#include "optimized/base/request_ids.h"

namespace kvfence::optimized {

/// Cost: O(1) per operation, amortized while the pool grows.
template <class Entry>
class SlotPool {
 public:
  /// The slot still has its former contents. A reference to an entry is valid until the next one is
  /// taken.
  std::uint32_t take() {
    if (free_.empty()) {
      entries_.emplace_back();
      return size() - 1;
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  /// The contents stay readable until the next slot is taken. Requires: this one is taken.
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

  Entry& operator[](std::uint32_t slot) { return entries_[slot]; }
  const Entry& operator[](std::uint32_t slot) const { return entries_[slot]; }

  /// With the free ones.
  std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }

  void add_to(StateHash& hash) const { hash.add_pool(entries_, free_); }

 private:
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
};

/// A map from numbers to entries. Cost: O(1) expected per operation, except for visits of all.
template <std::unsigned_integral Number, class Entry>
class NumberedSlots {
 public:
  static constexpr std::uint32_t kNone = OpenTable<Number>::kNone;

  /// kNone for a number that is not in the map.
  std::uint32_t find(Number number) const { return slot_of_.find(number); }

  /// The slot still has its former contents. Requires: the number is not in the map.
  std::uint32_t insert(Number number) {
    const std::uint32_t slot = slots_.take();
    slot_of_.insert(number, slot);
    return slot;
  }

  /// The entry stays readable until the next insertion. Requires: the number is in the map.
  void erase(Number number) {
    slots_.give_back(slot_of_.find(number));
    slot_of_.erase(number);
  }

  Entry& operator[](std::uint32_t slot) { return slots_[slot]; }
  const Entry& operator[](std::uint32_t slot) const { return slots_[slot]; }
  /// Without free slots.
  std::uint32_t size() const { return static_cast<std::uint32_t>(slot_of_.size()); }

  /// visit(number, entry), in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    slot_of_.for_each([&](Number number, std::uint32_t slot) { visit(number, slots_[slot]); });
  }

  void add_to(StateHash& hash) const {
    StateHash all;
    for_each([&all](Number number, const Entry& entry) {
      StateHash one;
      one.add_all(number, entry);
      all.add_unordered(one);
    });
    hash.add_all(size(), all);
  }

 private:
  SlotPool<Entry> slots_;
  OpenTable<Number> slot_of_;
};

/// Of entries that have a std::string id. Cost: O(1) expected per operation.
template <class Entry>
class NamedSlots {
 public:
  explicit NamedSlots(const TableSecret& secret = {}) : slot_of_id_(secret) {}

  std::optional<std::uint32_t> find(std::string_view id) const {
    return slot_of_id_.find(
        id, [this](std::uint32_t slot) { return std::string_view(slots_[slot].id); });
  }

  /// The slot keeps its former contents but for the id. Requires: no slot has the id.
  std::uint32_t insert(std::string_view id) {
    const std::uint32_t slot = slots_.take();
    slots_[slot].id = id;
    slot_of_id_.insert(id, slot);
    return slot;
  }

  /// The entry stays readable until the next insertion.
  void erase(std::uint32_t slot) {
    slot_of_id_.erase(slots_[slot].id, slot);
    slots_.give_back(slot);
  }

  Entry& operator[](std::uint32_t slot) { return slots_[slot]; }
  const Entry& operator[](std::uint32_t slot) const { return slots_[slot]; }
  std::uint32_t size() const { return slots_.size(); }
  void add_to(StateHash& hash) const { hash.add(slots_); }

 private:
  SlotPool<Entry> slots_;
  RequestIds slot_of_id_;
};

}  // namespace kvfence::optimized
