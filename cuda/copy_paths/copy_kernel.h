#pragma once

/// The launcher of the kernel that copies pieces: copy_kernel.cu with the toolkit, or its twin on
/// the virtual device, virtual/copy_kernel_twin.cpp. A program links one of them. C++17, as nvcc
/// compiles the kernel.

#include <cuda_runtime_api.h>

#include <cstddef>

#include "cuda/copy_paths/copy_descriptor.h"

namespace kvfence::cuda {
/// Addresses and sizes of a kernel's pieces are multiples of it.
inline constexpr std::size_t kCopyKernelWordBytes = 16;
}  // namespace kvfence::cuda

extern "C" {
/// Enqueues. `descriptors` is an address that the device reads when the kernel runs, `expected`
/// what it holds now (the twin declares what will be touched; the kernel does not look at it).
/// Errors: those of the launch itself, never those of earlier calls.
cudaError_t kvfence_launch_copy_kernel(const kvfence::cuda::CopyDescriptor* descriptors,
                                       const kvfence::cuda::CopyDescriptor* expected,
                                       std::size_t count, cudaStream_t stream);
}
