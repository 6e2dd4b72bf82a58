/// Copies pieces between mapped host memory and the GPU's: a block of threads per piece, 16 bytes
/// per load, four loads in flight per thread. Also what only a tool that watches the GPU sees.

#include "cuda/copy_paths/copy_kernel.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/copy_paths/host_access.h"

namespace {

using kvfence::cuda::CopyDescriptor;

#if defined(KVFENCE_CANARY_SPILLS)
// More than the registers hold: the build must fail.
constexpr unsigned kThreads = 1024;
constexpr unsigned kLoadsInFlight = 24;
#else
constexpr unsigned kThreads = 256;
constexpr unsigned kLoadsInFlight = 4;
#endif
/// Enough to fill the link, few enough to leave the rest of the GPU to compute.
constexpr unsigned kBlocksMax = 16;

__global__ void __launch_bounds__(kThreads)
    copy_pieces(const CopyDescriptor* __restrict__ descriptors, std::size_t count) {
  for (std::size_t piece = blockIdx.x; piece < count; piece += gridDim.x) {
    const CopyDescriptor copy = descriptors[piece];
    const auto* src = reinterpret_cast<const ulonglong2*>(copy.src);
    auto* dst = reinterpret_cast<ulonglong2*>(copy.dst);
    const std::size_t num_words = copy.size / sizeof(ulonglong2);
    std::size_t word = threadIdx.x;
    for (; word + (kLoadsInFlight - 1) * kThreads < num_words; word += kLoadsInFlight * kThreads) {
      ulonglong2 words[kLoadsInFlight];
#pragma unroll
      for (unsigned load = 0; load < kLoadsInFlight; ++load) {
        words[load] = src[word + load * kThreads];
      }
#pragma unroll
      for (unsigned load = 0; load < kLoadsInFlight; ++load) {
        dst[word + load * kThreads] = words[load];
      }
    }
    for (; word < num_words; word += kThreads) dst[word] = src[word];
  }
}

}  // namespace

extern "C" cudaError_t kvfence_launch_copy_kernel(const CopyDescriptor* descriptors,
                                                  const CopyDescriptor* /*expected*/,
                                                  std::size_t count, cudaStream_t stream) {
  const unsigned num_blocks = count < kBlocksMax ? static_cast<unsigned>(count) : kBlocksMax;
  void* arguments[] = {&descriptors, &count};
  // The launch's own code: cudaGetLastError would also return that of an earlier call.
  return cudaLaunchKernel(reinterpret_cast<const void*>(&copy_pieces), dim3(num_blocks),
                          dim3(kThreads), arguments, 0, stream);
}

extern "C" void kvfence_host_read(const void*, std::size_t) {}
extern "C" void kvfence_host_write(const void*, std::size_t) {}
extern "C" void kvfence_label(const char*, std::uint64_t) {}
