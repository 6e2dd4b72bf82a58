#pragma once

/// The options of a virtual device: schedule, seed, and the faults to inject. They and the program
/// decide everything that happens.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "contract/core/words.h"
#include "cuda/virtual/functions.h"

namespace kvfence::virtual_device {

class Chooser;

enum class Schedule : std::uint8_t {
  kEager,      ///< all work is done before its call returns, where its dependencies allow
  kLazy,       ///< work is done only when the program waits for it
  kRandom,     ///< some steps at each call, any that could run
  kPriority,   ///< streams and the host have priorities that change now and then (PCT)
  kChosen,     ///< Options::chooser decides each step
  kCommanded,  ///< steps are done by Device::advance, and where the program waits
};

using kvfence::to_text;
constexpr auto words_of(Schedule) {
  return words({"eager", "lazy", "random", "priority", "chosen", "commanded"});
}

/// Memory that a kernel reads or writes, by the device's address.
struct MemoryRange {
  const void* address = nullptr;
  std::size_t size = 0;
};

/// One injected fault: at the nth call (from 1) of a function.
struct Fault {
  enum class Kind : std::uint8_t {
    kReturnCode,    ///< the call does nothing and returns `code`
    kAsynchronous,  ///< the work runs into `code`: nothing runs after it, and calls return it
    kPartialBatch,  ///< `count` entries are enqueued (of other copies and of kernels: nothing),
                    ///< then the call returns `code`
    kNeverReady,    ///< of cudaEventRecord: never completes, until release_completions()
    kReadyLate,     ///< of cudaEventRecord: `count` queries more say NotReady
    kShortCopy,     ///< entry `entry` ends `count` bytes early
    kFlippedBit,    ///< of entry `entry`, bit 0 of byte `count` of the destination
  };
  Kind kind = Kind::kReturnCode;
  Function function = Function::kMemcpyAsync;
  std::uint64_t nth = 1;
  cudaError_t code = cudaErrorUnknown;
  std::size_t entry = 0;
  std::size_t count = 0;
  /// Of kPartialBatch and kAsynchronous: the memory that they leave undefined beside their own
  /// copies, by the host's or the device's addresses. It becomes poison in the stream's turn.
  std::vector<MemoryRange> undefined = {};
};

struct Options {
  Schedule schedule = Schedule::kRandom;
  std::uint64_t seed = 1;
  Chooser* chooser = nullptr;      ///< of kChosen; outlives the device
  std::vector<Fault> faults = {};  ///< given to Device::inject_once

  std::size_t device_memory_bytes = std::size_t{64} << 20;
  /// A copy is torn into at most this many parts, each with a read step and a write step. kRandom
  /// and kPriority draw their number and bounds; kChosen and kCommanded take this many, equally
  /// long; kEager and kLazy do not tear.
  std::uint32_t chunks_max = 4;
  /// A destination is overwritten first, since its bytes are undefined while the copy runs.
  bool poisons_destinations = true;
  bool checks_happens_before = true;
  /// kRandom and kPriority: this many queries in a row may say NotReady though the work is over.
  std::uint32_t spurious_not_ready_max = 2;
  /// Bounds every polling loop: after this many NotReady, the work asked for runs (not under
  /// kCommanded).
  std::uint32_t polls_max = 16;
  /// As where cudaDevAttrCanUseHostPointerForRegisteredMem is 0.
  bool registered_memory_has_own_device_address = false;
  /// A batch of more entries is refused; 0: none is.
  std::size_t batch_entries_max = 0;
};

}  // namespace kvfence::virtual_device
