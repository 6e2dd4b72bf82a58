#include "cuda/copy_paths/pinned_memory.h"

#include <algorithm>

namespace kvfence::cuda {

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this == &other) return *this;
  static_cast<void>(release());
  host_address_ = std::exchange(other.host_address_, nullptr);
  device_address_ = std::exchange(other.device_address_, 0);
  size_ = std::exchange(other.size_, 0);
  is_registered_ = std::exchange(other.is_registered_, false);
  return *this;
}

cudaError_t PinnedMemory::translate() {
  void* address = nullptr;
  const cudaError_t code = cudaHostGetDevicePointer(&address, host_address_, 0);
  if (code == cudaSuccess) {
    device_address_ = reinterpret_cast<std::uintptr_t>(address);
  } else {
    static_cast<void>(release());
  }
  return code;
}

cudaError_t PinnedMemory::allocate(std::size_t size, PinnedMemory& memory) {
  void* address = nullptr;
  const cudaError_t code = cudaHostAlloc(&address, size, cudaHostAllocMapped);
  if (code != cudaSuccess) return code;
  PinnedMemory made;
  made.host_address_ = static_cast<std::byte*>(address);
  made.size_ = size;
  const cudaError_t translated = made.translate();
  memory = std::move(made);
  return translated;
}

cudaError_t PinnedMemory::pin(void* address, std::size_t size, PinnedMemory& memory) {
  const cudaError_t code = cudaHostRegister(address, size, cudaHostRegisterMapped);
  if (code != cudaSuccess) return code;
  PinnedMemory made;
  made.host_address_ = static_cast<std::byte*>(address);
  made.size_ = size;
  made.is_registered_ = true;
  const cudaError_t translated = made.translate();
  memory = std::move(made);
  return translated;
}

cudaError_t PinnedMemory::release() {
  if (host_address_ == nullptr) return cudaSuccess;
  const cudaError_t code =
      is_registered_ ? cudaHostUnregister(host_address_) : cudaFreeHost(host_address_);
  abandon();
  return code;
}

void PinnedMemory::abandon() {
  host_address_ = nullptr;
  device_address_ = 0;
  size_ = 0;
  is_registered_ = false;
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
