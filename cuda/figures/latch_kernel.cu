/// One thread that polls a word of the host's until it changes, or time is up.

#include "cuda/figures/latch_kernel.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace {

using kvfence::cuda::LatchWords;

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(1) hold(volatile LatchWords* words, std::uint64_t timeout_ns) {
  const std::uint64_t begin = nanoseconds();
  while (words->is_open == 0) {
    if (nanoseconds() - begin > timeout_ns) {
      words->has_timed_out = 1;
      return;
    }
    __nanosleep(500);
  }
}

}  // namespace

extern "C" cudaError_t kvfence_launch_latch_kernel(LatchWords* words, std::uint64_t timeout_ns,
                                                   cudaStream_t stream) {
  void* arguments[] = {&words, &timeout_ns};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&hold), dim3(1), dim3(1), arguments, 0,
                          stream);
}
