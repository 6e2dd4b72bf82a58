#include "cuda/copy_paths/event_pool.h"

namespace kvfence::cuda {

EventPool::~EventPool() { give_back_unused(); }

void EventPool::give_back_unused() {
  for (cudaEvent_t event : unused_) static_cast<void>(cudaEventDestroy(event));
  unused_.clear();
}

cudaError_t EventPool::record(cudaStream_t stream, cudaEvent_t& event) {
  event = nullptr;
  cudaEvent_t taken = nullptr;
  if (unused_.empty()) {
    const cudaError_t code = cudaEventCreateWithFlags(&taken, cudaEventDisableTiming);
    if (code != cudaSuccess) return code;
  } else {
    taken = unused_.back();
    unused_.pop_back();
  }
  const cudaError_t code = cudaEventRecord(taken, stream);
  if (code != cudaSuccess) {
    unused_.push_back(taken);
    return code;
  }
  event = taken;
  ++num_used_;
  return cudaSuccess;
}

void EventPool::give(cudaEvent_t event) {
  if (event == nullptr) return;
  unused_.push_back(event);
  --num_used_;
}

}  // namespace kvfence::cuda
