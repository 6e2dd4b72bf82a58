#pragma once

/// The happens-before order: vector clocks over the host and the streams, and accesses.
///
/// Work number `time` of stream s happened before X where X's clock has seen[s] >= time. A batch
/// has one time; its entries are unordered, which the entry's number decides. A source that may be
/// read out of stream order (Any) is read with the host's clock at the call, and is over when its
/// work is. All edges are known when work is enqueued, so a verdict depends on the program's calls
/// and the outcomes of its queries, not on the order in which the device works.

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/virtual/functions.h"

namespace kvfence::virtual_device {

/// 0 is the host, the others are streams. A stream's number is given again when the host has seen
/// all of its work complete.
using Actor = std::uint32_t;
inline constexpr Actor kHost = 0;
/// The most streams that live at once, and the host. A worker has a handful; a pool with one stream
/// per job has some more.
inline constexpr Actor kActorsMax = 32;

/// Work of a stream is numbered from 1; the host's time passes at each call that hands over work.
using Time = std::uint64_t;

struct Clock {
  std::array<Time, kActorsMax> seen{};

  void join(const Clock& other, Actor num_actors) {
    for (Actor actor = 0; actor < num_actors; ++actor) {
      seen[actor] = std::max(seen[actor], other.seen[actor]);
    }
  }
};

/// A caller's label for its calls, which reports repeat. The text is a literal.
struct Label {
  const char* text = "";
  std::uint64_t number = 0;
};

/// One access to bytes of a known allocation, [begin, end).
struct Access {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  Time time = 0;
  std::uint64_t call = 0;  ///< number of the call in the program, from 1
  Label label;
  Actor actor = kHost;
  std::uint32_t entry = 0;  ///< of a batch
  Function function = Function::kHostRead;
  bool is_write = false;
  bool is_out_of_order = false;  ///< a source read with order Any
};

/// Whether `prior`, recorded earlier, happened before `access`, whose clock this is.
inline bool is_ordered(const Access& prior, const Access& access, const Clock& clock) {
  if (prior.actor == access.actor && prior.time == access.time && access.actor != kHost) {
    return prior.entry == access.entry;
  }
  return clock.seen[prior.actor] >= prior.time;
}

}  // namespace kvfence::virtual_device
