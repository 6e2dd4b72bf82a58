#pragma once

/// A record of what a program asked of a device and what the device did, in order. Kept only where
/// a story is set (Device::set_story): other runs pay one comparison with null.

#include <cstdint>
#include <vector>

#include "cuda/virtual/happens_before.h"
#include "cuda/virtual/work.h"

namespace kvfence::virtual_device {

struct StoryEntry {
  enum class Kind : std::uint8_t {
    kAccess,    ///< bytes that work, about to be enqueued, will touch; or the host touches
    kEnqueued,  ///< the call returns; its accesses stand before it
    kStarted,   ///< the first of its steps
    kEnded,     ///< all of its bytes are there
    kRecorded,  ///< `event` takes in `moment`
    kWaits,     ///< all later work of `stream` comes after `moment`, which `event` holds
    kHostSaw,   ///< a query or a wait reported to the host that `moment` is over
  };
  Kind kind = Kind::kAccess;
  Function function = Function::kHostRead;
  Actor stream = kHost;
  Time time = 0;  ///< of kEnqueued, kStarted, kEnded: which work of the stream
  std::uint64_t call = 0;
  Label label = {};  ///< of kEnqueued, kStarted, kEnded
  std::uint32_t event = 0;
  Moment moment = {};
  Access access = {};
};

struct Story {
  std::vector<StoryEntry> entries;
};

}  // namespace kvfence::virtual_device
