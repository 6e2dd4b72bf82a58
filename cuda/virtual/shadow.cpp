#include "cuda/virtual/shadow.h"

#include <iterator>

namespace kvfence::virtual_device {

Shadow::Segments::iterator Shadow::isolate(const Access& access) {
  split(access.begin);
  split(access.end);
  std::uintptr_t at = access.begin;
  auto it = segments_.lower_bound(at);
  while (at < access.end) {
    if (it != segments_.end() && it->first == at) {
      at = it->second.end;
      ++it;
      continue;
    }
    Segment gap;
    gap.end = it != segments_.end() && it->first < access.end ? it->first : access.end;
    const std::uintptr_t gap_begin = at;
    at = gap.end;
    segments_.emplace_hint(it, gap_begin, std::move(gap));
  }
  return segments_.find(access.begin);
}

void Shadow::split(std::uintptr_t at) {
  auto it = segments_.upper_bound(at);
  if (it == segments_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Segment tail = it->second;
  it->second.end = at;
  segments_.emplace_hint(std::next(it), at, std::move(tail));
}

void Shadow::add_read(Segment& segment, const Access& access, const Clock& clock) {
  for (Access& read : segment.reads) {
    if (read.actor != access.actor) continue;
    // The later of two reads of one actor is over last. Two entries of a batch have one time, and
    // the first stays: an entry that writes here after both is not the first.
    if (access.time > read.time) read = access;
    return;
  }
  // An actor that knows that this read is over knows it of every read that happened before it.
  for (Access& read : segment.reads) {
    if (!is_ordered(read, access, clock)) continue;
    read = access;
    return;
  }
  segment.reads.push_back(access);
}

bool Shadow::has_seen_writes(std::uintptr_t begin, std::uintptr_t end, const Clock& clock) const {
  auto it = segments_.upper_bound(begin);
  if (it != segments_.begin()) --it;
  for (; it != segments_.end() && it->first < end; ++it) {
    const Segment& segment = it->second;
    if (segment.end <= begin || !segment.has_write) continue;
    if (clock.seen[segment.write.actor] < segment.write.time) return false;
  }
  return true;
}

}  // namespace kvfence::virtual_device
