#pragma once

/// One piece of work in a stream, and its steps.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "contract/core/state_digest.h"
#include "cuda/virtual/happens_before.h"

namespace kvfence::virtual_device {

/// Undefined bytes of a destination. Contents do not hold this value by chance.
inline constexpr int kPoisonByte = 0xA5;

/// A moment of a stream: all of its work up to `time`. One comparison says whether it is over.
struct Moment {
  Actor stream = kHost;
  Time time = 0;
  std::uint64_t hold = 0;  ///< other than 0: not over before this hold is released
};

/// One copy of a batch, or all of a copy, or one row of it. Addresses are where the bytes are.
struct Entry {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;  ///< nullptr: memset
  std::size_t size = 0;
  std::size_t bounce_offset = 0;   ///< where its bytes wait in Work::bounce between read and write
  std::size_t written_max = 0;     ///< bytes that arrive; less than `size` of a short copy
  std::uint8_t value = 0;          ///< of memset
  bool may_be_read_early = false;  ///< order Any
  bool is_poisoned = false;        ///< the destination has been overwritten
  bool is_orphan = false;          ///< the memory was freed: its steps do nothing
};

/// A part of an entry: first read, then written.
struct Chunk {
  std::uint32_t entry = 0;
  std::uint32_t number = 0;  ///< in the work, for the identity of steps
  std::size_t begin = 0;     ///< in the entry
  std::size_t size = 0;
  bool is_read = false;
};

struct ByteRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool is_written = false;
};

inline bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.begin < b.end && b.begin < a.end;
}

struct Work {
  enum class Kind : std::uint8_t {
    kCopy,    ///< entries in chunks
    kAction,  ///< a kernel: one step
    kWait,    ///< no step: the stream goes on when `waits_for` is over
  };
  Kind kind = Kind::kCopy;
  Function function = Function::kMemcpyAsync;
  Actor stream = kHost;
  Time time = 0;
  std::uint64_t call = 0;
  Label label;
  Clock clock;  ///< what happened before it
  Moment waits_for;
  cudaError_t fails_with = cudaSuccess;  ///< when it completes
  std::vector<Entry> entries;
  /// What is still to be done; the first `num_early` may be read before the work's turn.
  std::vector<Chunk> chunks;
  std::uint32_t num_early = 0;
  std::uint32_t num_chunks = 0;
  std::vector<std::byte> bounce;
  std::byte* flips = nullptr;  ///< the byte whose lowest bit is flipped at the end
  std::function<void()> action;
  bool is_skipped = false;        ///< the action will not run
  bool has_started = false;       ///< kept only for a story
  std::vector<ByteRange> ranges;  ///< that the action declares; the explorer's footprint

  /// The call fills in the rest.
  void add_to(StateHash& hash) const { hash.add_all(call, chunks, num_early, bounce, is_skipped); }
};

/// What a device can do next. `chunk` is meaningless for actions.
struct Step {
  enum class Phase : std::uint8_t { kRead, kWrite, kRun };
  Actor stream = kHost;
  Time time = 0;
  std::uint32_t chunk = 0;
  Phase phase = Phase::kRead;

  bool operator==(const Step&) const = default;
};

}  // namespace kvfence::virtual_device
