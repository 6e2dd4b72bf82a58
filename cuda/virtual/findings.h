#pragma once

/// What a virtual device finds wrong with a program, as data and as a line of text.

#include <cstddef>
#include <cstdint>
#include <string>

#include "contract/core/words.h"
#include "cuda/virtual/address_space.h"
#include "cuda/virtual/happens_before.h"

namespace kvfence::virtual_device {

/// Two accesses to the same bytes, one of them a write, neither ordered before the other.
struct Race {
  Access first;   ///< the one whose call came first
  Access second;  ///< where it was found
  MemoryKind memory = MemoryKind::kDevice;
  std::uint32_t allocation = 0;
  std::uintptr_t base = 0;   ///< its address, from which reports count
  std::uintptr_t begin = 0;  ///< bytes that both touch, [begin, end)
  std::uintptr_t end = 0;
};

/// A call that the documentation forbids or leaves undefined, whatever it returned.
struct Misuse {
  enum class Kind : std::uint8_t {
    kFreeInFlight,         ///< memory given back while enqueued work still touches it
    kHostAddressOnDevice,  ///< the host's address, where the device has another
    kPageableMemory,       ///< host memory that the runtime does not know
    kLegacyStream,         ///< the NULL stream, or the per-thread one
    kOverlap,              ///< source and destination of one copy share bytes
    kWrongDirection,       ///< the kind of the copy contradicts the addresses
    kInvalidHandle,        ///< a stream or an event that is not, or no longer, there
    kCallInKernel,         ///< the runtime is called by a kernel's twin
    kInvalidAddress,       ///< not in live memory, or not in memory that the accessor can reach
    kHang,                 ///< a wait for work that cannot complete
  };
  Kind kind = Kind::kFreeInFlight;
  Function function = Function::kFree;
  std::uint64_t call = 0;
  Label label;
};

using kvfence::to_text;
constexpr auto words_of(Misuse::Kind) {
  return words({"memory is given back while work in flight touches it",
                "the host's address of registered memory, which the device knows by another",
                "host memory that is not registered", "the NULL or per-thread stream",
                "source and destination overlap", "the direction contradicts the addresses",
                "no such stream or event", "the runtime is called by a kernel",
                "an address outside of live memory", "waits for work that cannot complete"});
}

/// `race: write of cudaMalloc #0 [0, 64) by cudaMemcpyAsync (call 4, stream 2, entry 0, "store" 7)
/// and read of [32, 96) by launch (call 3, stream 1) share [32, 64) unordered`, on one line.
std::string to_text(const Race& race);
std::string to_text(const Misuse& misuse);

}  // namespace kvfence::virtual_device
