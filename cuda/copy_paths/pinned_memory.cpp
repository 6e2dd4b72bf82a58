#include "cuda/copy_paths/pinned_memory.h"

#include <algorithm>

namespace kvfence::cuda {

cudaError_t PinnedMemory::own(void* address, std::size_t size, bool is_registered,
                              PinnedMemory& memory) {
  PinnedMemory owned;
  owned.memory_ = {static_cast<std::byte*>(address), GiveBack{is_registered}};
  owned.size_ = size;
  void* device_address = nullptr;
  const cudaError_t code = cudaHostGetDevicePointer(&device_address, address, 0);
  if (code != cudaSuccess) return code;
  owned.device_address_ = reinterpret_cast<std::uintptr_t>(device_address);
  memory = std::move(owned);
  return cudaSuccess;
}

cudaError_t PinnedMemory::allocate(std::size_t size, PinnedMemory& memory) {
  void* address = nullptr;
  const cudaError_t code = cudaHostAlloc(&address, size, cudaHostAllocMapped);
  return code == cudaSuccess ? own(address, size, false, memory) : code;
}

cudaError_t PinnedMemory::pin(void* address, std::size_t size, PinnedMemory& memory) {
  const cudaError_t code = cudaHostRegister(address, size, cudaHostRegisterMapped);
  return code == cudaSuccess ? own(address, size, true, memory) : code;
}

cudaError_t PinnedPool::take(std::size_t size, PinnedMemory& memory) {
  const auto found = std::find_if(unused_.begin(), unused_.end(),
                                  [size](const PinnedMemory& m) { return m.size() >= size; });
  if (found != unused_.end()) {
    memory = std::move(*found);
    unused_.erase(found);
    return cudaSuccess;
  }
  // Rounded up, so that transfers of about one size share buffers.
  std::size_t rounded = 4096;
  while (rounded < size) rounded *= 2;
  return PinnedMemory::allocate(rounded, memory);
}

}  // namespace kvfence::cuda
