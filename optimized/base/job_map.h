#pragma once

/// JobMap: number of a transfer -> slot, by open addressing. Numbers ascend, and neighbours are
/// under way together: their homes are spread, or all of them were one cluster, which an erasure
/// would walk to its end.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/connectors/kv_connector.h"
#include "contract/core/state_digest.h"

namespace kvfence::optimized {

class JobMap {
 public:
  static constexpr std::uint32_t kNone = 0xFFFF'FFFF;

  /// kNone if it is not there. Cost: O(1) expected.
  std::uint32_t find(JobId job) const {
    return entries_.empty() ? kNone : entries_[find_entry(job)].slot;
  }

  /// Requires: it is not there, and slot is not kNone.
  void insert(JobId job, std::uint32_t slot) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    put({job, slot});
    ++size_;
  }

  /// Requires: it is there.
  void erase(JobId job) {
    std::size_t hole = find_entry(job);
    // The rest of the cluster moves up, so that no probe ends too early.
    for (std::size_t at = (hole + 1) & mask(); entries_[at].slot != kNone; at = (at + 1) & mask()) {
      const std::size_t distance_to_home = (at - home_of(entries_[at].job)) & mask();
      if (distance_to_home < ((at - hole) & mask())) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = {};
    --size_;
  }

  std::size_t size() const { return size_; }

  void add_to(StateHash& hash) const {
    StateHash all;
    for (const Entry& entry : entries_) {
      if (entry.slot != kNone)
        all.add_unordered(StateHash::digest_of(std::pair(entry.job, entry.slot)));
    }
    hash.add(all.digest());
  }

  void clear() {
    entries_.assign(entries_.size(), Entry{});
    size_ = 0;
  }

 private:
  struct Entry {
    JobId job = 0;
    std::uint32_t slot = kNone;
  };

  std::size_t mask() const { return entries_.size() - 1; }
  std::size_t home_of(JobId job) const {
    return static_cast<std::size_t>((std::uint64_t{job} * 0x9E37'79B9'7F4A'7C15) >> 32) & mask();
  }

  /// The entry of the number, or the empty one where it belongs.
  std::size_t find_entry(JobId job) const {
    std::size_t at = home_of(job);
    while (entries_[at].slot != kNone && entries_[at].job != job) at = (at + 1) & mask();
    return at;
  }

  void put(const Entry& entry) {
    std::size_t at = home_of(entry.job);
    while (entries_[at].slot != kNone) at = (at + 1) & mask();
    entries_[at] = entry;
  }

  void grow() {
    constexpr std::size_t kEntriesMin = 16;
    std::vector<Entry> old(entries_.empty() ? kEntriesMin : 2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.slot != kNone) put(entry);
    }
  }

  std::vector<Entry> entries_;  ///< a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace kvfence::optimized
