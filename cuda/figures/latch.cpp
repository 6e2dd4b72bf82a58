#include "cuda/figures/latch.h"

#include <atomic>

namespace kvfence::cuda {
namespace {

/// Far longer than a host is delayed between two calls, and short enough to wait for.
constexpr std::uint64_t kTimeoutNs = 3'000'000'000;

}  // namespace

Latch::~Latch() {
  if (words() == nullptr) return;
  open();
  // After an error the kernel may still read the words.
  if (cudaDeviceSynchronize() != cudaSuccess) memory_.abandon();
}

cudaError_t Latch::make() {
  const cudaError_t code = PinnedMemory::allocate(sizeof(LatchWords), memory_);
  if (code == cudaSuccess) close();
  return code;
}

cudaError_t Latch::hold(cudaStream_t stream) {
  return kvfence_launch_latch_kernel(reinterpret_cast<LatchWords*>(memory_.device_address()),
                                     kTimeoutNs, stream);
}

void Latch::open() {
  if (words() != nullptr) std::atomic_ref(words()->is_open).store(1);
}

void Latch::close() {
  std::atomic_ref(words()->has_timed_out).store(0);
  std::atomic_ref(words()->is_open).store(0);
}

bool Latch::has_timed_out() const {
  return words() != nullptr && std::atomic_ref(words()->has_timed_out).load() != 0;
}

}  // namespace kvfence::cuda
