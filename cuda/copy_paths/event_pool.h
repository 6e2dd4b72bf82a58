#pragma once

/// Events that are used again. An event from this pool may have been recorded before, so it means
/// nothing until a new record of it has succeeded.

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
  /// Requires that no later call asks about its last record; waits that were enqueued are bound
  /// already.
  void give(cudaEvent_t event);
  /// Destroys the events that are not in use.
  void give_back_unused();
  std::size_t num_used() const { return num_used_; }

 private:
  std::vector<cudaEvent_t> unused_;
  std::size_t num_used_ = 0;  ///< recorded and not given back
};

}  // namespace kvfence::cuda
