#pragma once

/// The launcher of the kernel that holds a stream: latch_kernel.cu with the toolkit, or its twin on
/// the virtual device, virtual/latch_kernel_twin.cpp. C++17, as nvcc compiles it. Callers use
/// latch.h.

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
/// Enqueues the kernel: later work of the stream starts when `words->is_open` is not 0, or after
/// `timeout_ns`. `words` is a device address. Errors: those of the launch itself.
cudaError_t kvfence_launch_latch_kernel(kvfence::cuda::LatchWords* words, std::uint64_t timeout_ns,
                                        cudaStream_t stream);
}
