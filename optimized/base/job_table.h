#pragma once

/// JobTable: job id -> what is kept of the job, by open addressing. An entry that was given back is
/// taken again with its storage, so that lists in it keep their capacity.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/tiering/secondary_tier.h"

namespace kvfence::optimized {

template <class Job>
class JobTable {
 public:
  /// What was kept under this entry before is still in it. Requires: the id is not in the table.
  /// Cost: O(1) expected. The reference holds until the next insertion.
  Job& insert(TierJobId id) {
    if (2 * (num_jobs_ + 1) > slots_.size()) grow();
    std::uint32_t entry = static_cast<std::uint32_t>(jobs_.size());
    if (free_.empty()) {
      jobs_.emplace_back();
    } else {
      entry = free_.back();
      free_.pop_back();
    }
    put({id, entry});
    ++num_jobs_;
    return jobs_[entry];
  }

  /// Null for an id that is not in the table.
  Job* find(TierJobId id) {
    if (num_jobs_ == 0) return nullptr;
    const Slot& slot = slots_[place_of(id)];
    return slot.entry == kNone ? nullptr : &jobs_[slot.entry];
  }

  /// Requires: the id is in the table.
  void erase(TierJobId id) {
    std::size_t hole = place_of(id);
    free_.push_back(slots_[hole].entry);
    // The rest of the cluster moves up, so that no probe ends too early.
    for (std::size_t at = next(hole); slots_[at].entry != kNone; at = next(at)) {
      if (((at - home_of(slots_[at].id)) & mask()) < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --num_jobs_;
  }

  /// visit(id, job), in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.entry != kNone) visit(slot.id, jobs_[slot.entry]);
    }
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(num_jobs_); }

  void add_to(StateHash& hash) const {
    StateHash all;
    for_each([&all](TierJobId id, const Job& job) {
      StateHash one;
      one.add_all(id, job);
      all.add_unordered(one.digest());
    });
    hash.add_all(num_jobs_, all.digest());
  }

 private:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;
  static constexpr std::size_t kSlotsMin = 16;

  struct Slot {
    TierJobId id = 0;
    std::uint32_t entry = kNone;
  };

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  std::size_t home_of(TierJobId id) const {
    return static_cast<std::size_t>((id * 0x9E37'79B9'7F4A'7C15) >> 32) & mask();
  }

  /// The slot of the id, or the empty one where it belongs.
  std::size_t place_of(TierJobId id) const {
    std::size_t at = home_of(id);
    while (slots_[at].entry != kNone && slots_[at].id != id) at = next(at);
    return at;
  }

  void put(const Slot& slot) { slots_[place_of(slot.id)] = slot; }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kSlotsMin : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.entry != kNone) put(slot);
    }
  }

  std::vector<Slot> slots_;  ///< a power of two, at most half full
  std::vector<Job> jobs_;    ///< by entry
  std::vector<std::uint32_t> free_;
  std::size_t num_jobs_ = 0;
};

}  // namespace kvfence::optimized
