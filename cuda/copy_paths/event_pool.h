#pragma once

/// Events that are used again. One that comes from here may have been recorded before: it means
/// nothing until it is recorded anew, and that record has succeeded.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace kvfence::cuda {

class EventPool {
 public:
  EventPool() = default;
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// A new record in the stream's present place. `event` stays null on an error.
  cudaError_t record(cudaStream_t stream, cudaEvent_t& event);
  /// Requires that nobody asks about its last record any more; waits that were enqueued are bound
  /// already.
  void give(cudaEvent_t event);
  /// Destroys the events that nobody has.
  void give_back_unused();
  std::size_t num_used() const { return num_used_; }

 private:
  std::vector<cudaEvent_t> unused_;
  std::size_t num_used_ = 0;  ///< recorded and not given back
};

}  // namespace kvfence::cuda
