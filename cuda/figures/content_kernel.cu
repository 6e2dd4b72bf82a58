/// Fills and checks slots of self-describing granules: a block of threads per slot, a granule per
/// load.

#include "cuda/figures/content_kernel.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace {

using kvfence::content::Granule;
using kvfence::content::Mismatch;
using kvfence::cuda::ContentSlots;
using kvfence::cuda::kContentThreads;

/// As many as 132 multiprocessors hold at once; each block takes one slot after the other.
constexpr std::uint64_t kBlocksMax = 132 * 8;

__device__ Granule* granules_of(const ContentSlots& slots, std::uint64_t slot) {
  return reinterpret_cast<Granule*>(slots.address + slot * slots.stride_bytes);
}

__global__ void __launch_bounds__(kContentThreads) fill_slots(const ContentSlots slots) {
  for (std::uint64_t slot = blockIdx.x; slot < slots.num_slots; slot += gridDim.x) {
    kvfence::content::fill_granules(granules_of(slots, slot), slots.granules_per_slot,
                                    tag_of(slots, slot), slots.run_seed, threadIdx.x,
                                    kContentThreads);
  }
}

__global__ void __launch_bounds__(kContentThreads)
    check_slots(const ContentSlots slots, Mismatch* __restrict__ found) {
  __shared__ unsigned long long num_wrong;
  __shared__ unsigned long long first_wrong_index;
  for (std::uint64_t slot = blockIdx.x; slot < slots.num_slots; slot += gridDim.x) {
    if (threadIdx.x == 0) {
      num_wrong = 0;
      first_wrong_index = ~0ULL;
    }
    __syncthreads();
    const Mismatch mine = kvfence::content::check_granules(
        granules_of(slots, slot), slots.granules_per_slot, tag_of(slots, slot), slots.run_seed,
        threadIdx.x, kContentThreads);
    if (mine.num_wrong != 0) {
      atomicAdd(&num_wrong, static_cast<unsigned long long>(mine.num_wrong));
      atomicMin(&first_wrong_index, static_cast<unsigned long long>(mine.first_wrong_index));
    }
    __syncthreads();
    // Each index belongs to one thread; where nothing is wrong thread 0 writes.
    const bool writes = num_wrong == 0
                            ? threadIdx.x == 0
                            : mine.num_wrong != 0 && mine.first_wrong_index == first_wrong_index;
    if (writes) {
      found[slot].num_wrong = num_wrong;
      found[slot].first_wrong_index = first_wrong_index;
      found[slot].first_wrong.first = mine.first_wrong.first;
      found[slot].first_wrong.second = mine.first_wrong.second;
    }
    // All threads have read the counts before the next slot resets them.
    __syncthreads();
  }
}

cudaError_t launch(const void* kernel, const ContentSlots& slots, void** arguments,
                   cudaStream_t stream) {
  if (!kvfence::cuda::is_valid(slots)) return cudaErrorInvalidValue;
  const std::uint64_t num_blocks = slots.num_slots < kBlocksMax ? slots.num_slots : kBlocksMax;
  return cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(num_blocks)), dim3(kContentThreads),
                          arguments, 0, stream);
}

}  // namespace

extern "C" cudaError_t kvfence_launch_fill_kernel(const ContentSlots* slots, cudaStream_t stream) {
  ContentSlots copied = *slots;
  void* arguments[] = {&copied};
  return launch(reinterpret_cast<const void*>(&fill_slots), copied, arguments, stream);
}

extern "C" cudaError_t kvfence_launch_check_kernel(const ContentSlots* slots, Mismatch* found,
                                                   cudaStream_t stream) {
  ContentSlots copied = *slots;
  void* arguments[] = {&copied, &found};
  return launch(reinterpret_cast<const void*>(&check_slots), copied, arguments, stream);
}
