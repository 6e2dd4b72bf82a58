#pragma once

/// Host memory that the GPU may touch while the host goes on. It never falls back to pageable
/// memory: where pinning fails there is no memory, and the code says why.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kvfence::cuda {

/// Owns an allocation, or the registration of another's memory.
class PinnedMemory {
 public:
  // Errors: the code of the call that failed; `memory` stays as it was.

  static cudaError_t allocate(std::size_t size, PinnedMemory& memory);
  /// Pins memory of another owner during the lifetime of this object.
  static cudaError_t pin(void* address, std::size_t size, PinnedMemory& memory);

  /// Gives it back. Requires that nothing enqueued touches it.
  void release() { memory_.reset(); }
  /// Never gives it back: the device may still touch it.
  void abandon() { static_cast<void>(memory_.release()); }

  std::byte* host_address() const { return memory_.get(); }
  /// The address that copies and kernels use; may differ from the host's.
  std::uintptr_t device_address() const { return device_address_; }
  std::size_t size() const { return size_; }

 private:
  struct GiveBack {
    bool is_registered;
    void operator()(std::byte* address) const {
      static_cast<void>(is_registered ? cudaHostUnregister(address) : cudaFreeHost(address));
    }
  };
  /// Gives the memory back where the device has no address for it.
  static cudaError_t own(void* address, std::size_t size, bool is_registered, PinnedMemory& memory);

  std::unique_ptr<std::byte, GiveBack> memory_ = {nullptr, {.is_registered = false}};
  std::uintptr_t device_address_ = 0;
  std::size_t size_ = 0;
};

/// Buffers that are used again. Cost: a call of the runtime only where none is large enough.
class PinnedPool {
 public:
  /// Of at least `size` bytes. Errors: as PinnedMemory::allocate.
  cudaError_t take(std::size_t size, PinnedMemory& memory);
  /// Requires that nothing enqueued touches it.
  void give(PinnedMemory memory) { unused_.push_back(std::move(memory)); }
  std::size_t num_unused() const { return unused_.size(); }

 private:
  std::vector<PinnedMemory> unused_;
};

}  // namespace kvfence::cuda
