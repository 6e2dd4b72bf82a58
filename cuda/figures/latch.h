#pragma once

/// Holds streams until the host opens the latch, so that a race on a GPU has one outcome, not a
/// likely one.
///
/// No operation that might wait for the whole GPU (an allocation, a kernel's first launch) may
/// happen while a stream is held: run everything once with the latch open first. A held stream goes
/// on by itself after a time, so that a mistake does not hang.

#include <cuda_runtime_api.h>

#include "cuda/copy_paths/pinned_memory.h"
#include "cuda/figures/latch_kernel.h"

namespace kvfence::cuda {

class Latch {
 public:
  Latch() = default;
  /// Opens it and waits for the whole device.
  ~Latch();
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;

  /// Closed. Errors: of allocating its words.
  cudaError_t make();
  /// Work enqueued in the stream from now on waits until the latch is open.
  cudaError_t hold(cudaStream_t stream);
  /// Does nothing without words.
  void open();
  /// Closed again. Requires that no stream is held.
  void close();
  /// Whether a stream went on before the latch was open, since it was closed. Read when the held
  /// streams are over.
  bool has_timed_out() const;

 private:
  /// Null before make().
  LatchWords* words() const { return reinterpret_cast<LatchWords*>(memory_.host_address()); }

  PinnedMemory memory_;
};

}  // namespace kvfence::cuda
