#pragma once

/// Stores for every byte the last write and the reads since, to compare the next access with them.
/// Freeing is a write of the host's, so that any later use of the address must come after it.

#include <cstdint>
#include <map>
#include <memory_resource>
#include <vector>

#include "cuda/virtual/happens_before.h"

namespace kvfence::virtual_device {

/// Ranges are exact to the byte. Adjacent bytes with one history are one segment, so the cost
/// depends on the number of different ranges, not of bytes. An access to exactly one segment costs
/// O(log segments) and allocates nothing.
class Shadow {
 public:
  Shadow() : segments_(&memory_) {}
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Records the access. Calls `conflict(prior, begin, end)` for each earlier access that shares
  /// [begin, end) with it, one of the two a write, and that did not happen before it.
  template <typename Conflict>
  void access(const Access& access, const Clock& clock, Conflict&& conflict) {
    if (access.begin == access.end) return;
    auto it = segments_.find(access.begin);
    if (it == segments_.end() || it->second.end != access.end) it = isolate(access);
    auto last = it;
    for (;; ++last) {
      compare(*last, access, clock, conflict);
      if (!access.is_write) add_read(last->second, access, clock);
      if (last->second.end == access.end) break;
    }
    if (!access.is_write) return;
    // One write is one history: the first segment replaces all.
    segments_.erase(std::next(it), std::next(last));
    it->second.end = access.end;
    it->second.has_write = true;
    it->second.write = access;
    it->second.reads.clear();
  }

  /// Whether the last write of each byte of [begin, end) happened before an actor with this clock.
  bool has_seen_writes(std::uintptr_t begin, std::uintptr_t end, const Clock& clock) const;

  std::size_t num_segments() const { return segments_.size(); }

 private:
  struct Segment {
    std::uintptr_t end = 0;
    bool has_write = false;
    Access write;
    std::vector<Access> reads;  ///< those not yet known to be over; at most one per actor
  };
  using Segments = std::pmr::map<std::uintptr_t, Segment>;

  template <typename Conflict>
  static void compare(const Segments::value_type& segment, const Access& access, const Clock& clock,
                      Conflict& conflict) {
    const auto& [begin, history] = segment;
    if (history.has_write && !is_ordered(history.write, access, clock)) {
      conflict(history.write, begin, history.end);
    }
    if (!access.is_write) return;
    for (const Access& read : history.reads) {
      if (!is_ordered(read, access, clock)) conflict(read, begin, history.end);
    }
  }

  /// Makes segments that cover [access.begin, access.end) exactly; returns the first.
  Segments::iterator isolate(const Access& access);
  /// Makes `at` a boundary where it lies inside a segment.
  void split(std::uintptr_t at);
  static void add_read(Segment& segment, const Access& access, const Clock& clock);

  std::pmr::unsynchronized_pool_resource memory_;
  Segments segments_;
};

}  // namespace kvfence::virtual_device
