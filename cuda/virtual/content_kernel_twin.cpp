/// The kernels that fill and check contents, on the virtual device.

#include "cuda/figures/content_kernel.h"

#include <vector>

#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {
namespace {

using content::Granule;
using content::Mismatch;
using cuda::ContentSlots;

MemoryRange range_of(const ContentSlots& slots, std::uint64_t slot) {
  return {reinterpret_cast<const void*>(slots.address + slot * slots.stride_bytes),
          slots.granules_per_slot * content::kGranuleBytes};
}

std::vector<MemoryRange> ranges_of(const ContentSlots& slots) {
  std::vector<MemoryRange> ranges;
  for (std::uint64_t slot = 0; slot < slots.num_slots; ++slot) {
    ranges.push_back(range_of(slots, slot));
  }
  return ranges;
}

Granule* granules_of(const Device& device, const MemoryRange& range) {
  return reinterpret_cast<Granule*>(device.bytes(range.address, range.size));
}

}  // namespace
}  // namespace kvfence::virtual_device

cudaError_t kvfence_launch_fill_kernel(const kvfence::cuda::ContentSlots* slots,
                                       cudaStream_t stream) {
  using namespace kvfence::virtual_device;
  if (!kvfence::cuda::is_valid(*slots)) return cudaErrorInvalidValue;
  Device& device = current();
  return device.launch(stream, {}, ranges_of(*slots), [&device, slots = *slots] {
    for (std::uint64_t slot = 0; slot < slots.num_slots; ++slot) {
      kvfence::content::fill_granules(granules_of(device, range_of(slots, slot)),
                                      slots.granules_per_slot, tag_of(slots, slot), slots.run_seed);
    }
  });
}

cudaError_t kvfence_launch_check_kernel(const kvfence::cuda::ContentSlots* slots,
                                        kvfence::content::Mismatch* found, cudaStream_t stream) {
  using namespace kvfence::virtual_device;
  if (!kvfence::cuda::is_valid(*slots)) return cudaErrorInvalidValue;
  const MemoryRange results{found, slots->num_slots * sizeof *found};
  Device& device = current();
  return device.launch(stream, ranges_of(*slots), {results}, [&device, slots = *slots, results] {
    auto* out = reinterpret_cast<Mismatch*>(device.bytes(results.address, results.size));
    for (std::uint64_t slot = 0; slot < slots.num_slots; ++slot) {
      out[slot] = kvfence::content::check_granules(granules_of(device, range_of(slots, slot)),
                                                   slots.granules_per_slot, tag_of(slots, slot),
                                                   slots.run_seed);
    }
  });
}
