#pragma once

/// The launchers of the kernels that fill memory with the contents of
/// contract/worker/content_pattern.h and check them: content_kernel.cu with the toolkit, or their
/// twins on the virtual device, virtual/content_kernel_twin.cpp. A program links one of them; both
/// run fill_granules and check_granules, so that the bytes are the same. C++17, as nvcc compiles
/// it.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "contract/worker/content_pattern.h"

namespace kvfence::cuda {

/// Threads that share a slot: thread t takes its granules t, t + kContentThreads, ...
inline constexpr unsigned kContentThreads = 256;

/// Memory as slots that are equally far apart, each with the contents of its own block.
struct ContentSlots {
  std::uintptr_t address = 0;      ///< the device's; a multiple of 16
  std::uint64_t stride_bytes = 0;  ///< from slot to slot; a multiple of 16
  std::uint64_t granules_per_slot = 0;
  std::uint64_t num_slots = 0;
  content::Tag first = {};  ///< of slot 0
  /// Slot s holds block first.block_id + s * block_step % num_slots: 1, or another order.
  std::uint64_t block_step = 1;
  std::uint64_t run_seed = 0;
};

KVFENCE_HOST_DEVICE constexpr content::Tag tag_of(const ContentSlots& slots, std::uint64_t slot) {
  return {slots.first.block_id + slot * slots.block_step % slots.num_slots, slots.first.generation};
}

/// There is at least one slot, granules are aligned, and slots do not overlap.
constexpr bool is_valid(const ContentSlots& slots) {
  return slots.num_slots > 0 && slots.granules_per_slot > 0 &&
         slots.address % content::kGranuleBytes == 0 &&
         slots.stride_bytes % content::kGranuleBytes == 0 &&
         (slots.num_slots == 1 ||
          slots.stride_bytes >= slots.granules_per_slot * content::kGranuleBytes);
}

}  // namespace kvfence::cuda

extern "C" {
/// Both enqueue; `slots` is copied by the call.
/// Errors: cudaErrorInvalidValue where slots are not valid; else of the launch itself.

cudaError_t kvfence_launch_fill_kernel(const kvfence::cuda::ContentSlots* slots,
                                       cudaStream_t stream);
/// `found[num_slots]`, a device address, gets the result of each slot's check, right ones too.
/// Cost: a block of kContentThreads threads per slot; reads each byte once.
cudaError_t kvfence_launch_check_kernel(const kvfence::cuda::ContentSlots* slots,
                                        kvfence::content::Mismatch* found, cudaStream_t stream);
}
