#pragma once

/// The launcher of the kernel that holds a stream: latch_kernel.cu with the toolkit, its twin on
/// the virtual device in virtual/latch_kernel_twin.cpp. C++17, as nvcc compiles it. latch.h is how
/// it is used.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kvfence::cuda {

/// In mapped host memory.
struct LatchWords {
  std::uint32_t is_open = 0;        ///< the host sets it
  std::uint32_t has_timed_out = 0;  ///< a kernel sets it
};

}  // namespace kvfence::cuda

extern "C" {
/// Enqueues: what comes after it in the stream starts when `words->is_open` is not 0, or after
/// `timeout_ns`. `words` is an address that the device knows. Errors: of the launch itself.
cudaError_t kvfence_launch_latch_kernel(kvfence::cuda::LatchWords* words, std::uint64_t timeout_ns,
                                        cudaStream_t stream);
}
