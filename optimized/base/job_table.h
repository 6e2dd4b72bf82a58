#pragma once

/// JobTable: a map from job ids to records of jobs. It reuses freed entries with their storage, so
/// that lists in them keep their capacity.

#include <cstdint>

#include "contract/core/state_digest.h"
#include "contract/tiering/secondary_tier.h"
#include "optimized/base/open_table.h"
#include "optimized/base/slots.h"

namespace kvfence::optimized {

template <class Job>
class JobTable {
 public:
  /// The entry still has its former contents. Requires: the id is not in the table.
  /// Cost: O(1) expected. The reference holds until the next insertion.
  Job& insert(TierJobId id) {
    const std::uint32_t entry = jobs_.take();
    entry_of_.insert(id, entry);
    return jobs_[entry];
  }

  /// Null for an id that is not in the table.
  Job* find(TierJobId id) {
    const std::uint32_t entry = entry_of_.find(id);
    return entry == entry_of_.kNone ? nullptr : &jobs_[entry];
  }

  /// Requires: the id is in the table.
  void erase(TierJobId id) {
    jobs_.give_back(entry_of_.find(id));
    entry_of_.erase(id);
  }

  /// visit(id, job), in no order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    entry_of_.for_each([&](TierJobId id, std::uint32_t entry) { visit(id, jobs_[entry]); });
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(entry_of_.size()); }

  void add_to(StateHash& hash) const {
    StateHash all;
    for_each([&all](TierJobId id, const Job& job) {
      StateHash one;
      one.add_all(id, job);
      all.add_unordered(one);
    });
    hash.add_all(size(), all);
  }

 private:
  OpenTable<TierJobId> entry_of_;
  SlotPool<Job> jobs_;  ///< by entry
};

}  // namespace kvfence::optimized
