/// The calls that allocate, register and free.

#include "contract/core/check.h"
#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {

cudaError_t Device::malloc(void** address, std::size_t size) {
  if (const auto code = enter(Function::kMalloc)) return *code;
  if (address == nullptr) return fail(cudaErrorInvalidValue);
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  const Allocation* allocation = memory_.allocate_device(size);
  if (allocation == nullptr) return fail(cudaErrorMemoryAllocation);
  *address = reinterpret_cast<void*>(allocation->address);
  return cudaSuccess;
}

cudaError_t Device::free(void* address) {
  if (const auto code = enter(Function::kFree)) return *code;
  if (address == nullptr) return cudaSuccess;
  const Allocation* allocation = memory_.starting_at(address, MemoryKind::kDevice);
  if (allocation == nullptr) return fail(cudaErrorInvalidValue);
  give_back(*allocation);
  return cudaSuccess;
}

cudaError_t Device::host_alloc(Function function, void** address, std::size_t size,
                               unsigned int flags) {
  if (const auto code = enter(function)) return *code;
  constexpr unsigned int kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (address == nullptr || (flags & ~kKnown) != 0) return fail(cudaErrorInvalidValue);
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  *address = memory_.allocate_pinned(size)->bytes;
  return cudaSuccess;
}

cudaError_t Device::free_host(void* address) {
  if (const auto code = enter(Function::kFreeHost)) return *code;
  if (address == nullptr) return cudaSuccess;
  const Allocation* allocation = memory_.starting_at(address, MemoryKind::kPinned);
  if (allocation == nullptr) return fail(cudaErrorInvalidValue);
  give_back(*allocation);
  return cudaSuccess;
}

cudaError_t Device::host_register(void* address, std::size_t size, unsigned int flags) {
  if (const auto code = enter(Function::kHostRegister)) return *code;
  constexpr unsigned int kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (address == nullptr || size == 0 || (flags & ~kKnown) != 0) {
    return fail(cudaErrorInvalidValue);
  }
  if (memory_.register_host(address, size) == nullptr) {
    return fail(cudaErrorHostMemoryAlreadyRegistered);
  }
  return cudaSuccess;
}

cudaError_t Device::host_unregister(void* address) {
  if (const auto code = enter(Function::kHostUnregister)) return *code;
  const Allocation* allocation = memory_.starting_at(address, MemoryKind::kRegistered);
  if (allocation == nullptr) return fail(cudaErrorHostMemoryNotRegistered);
  give_back(*allocation);
  return cudaSuccess;
}

void Device::give_back(const Allocation& allocation) {
  Place place;
  place.canonical = allocation.address;
  Access made = describe(place, allocation.size, true);
  made.time = host_clock_.seen[kHost];
  access(made, host_clock_);
  // Registered memory is its owner's from now on: nothing here may touch it again.
  const bool is_owned_elsewhere = allocation.kind == MemoryKind::kRegistered;
  const std::size_t num_in_flight =
      queue_.take_away(allocation.bytes, allocation.bytes + allocation.size, is_owned_elsewhere);
  if (num_in_flight > 0) misuse(Misuse::Kind::kFreeInFlight);
  memory_.release(allocation);
}

cudaError_t Device::host_get_device_pointer(void** device_address, void* address,
                                            unsigned int flags) {
  if (const auto code = enter(Function::kHostGetDevicePointer)) return *code;
  if (device_address == nullptr || flags != 0) return fail(cudaErrorInvalidValue);
  const Place place = memory_.place(address, 1);
  if (place.kind != Place::Kind::kInside || place.allocation->kind == MemoryKind::kDevice) {
    return fail(cudaErrorInvalidValue);
  }
  const std::uintptr_t offset = place.canonical - place.allocation->address;
  *device_address = reinterpret_cast<void*>(place.allocation->device_address + offset);
  return cudaSuccess;
}

cudaError_t Device::pointer_get_attributes(cudaPointerAttributes* attributes, const void* address) {
  if (const auto code = enter(Function::kPointerGetAttributes)) return *code;
  if (attributes == nullptr) return fail(cudaErrorInvalidValue);
  *attributes = {};
  const Place place = memory_.place(address, 1);
  if (place.kind != Place::Kind::kInside) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // what the runtime gives for memory that is not its own
    attributes->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  const Allocation& allocation = *place.allocation;
  const std::uintptr_t offset = place.canonical - allocation.address;
  attributes->devicePointer = reinterpret_cast<void*>(allocation.device_address + offset);
  attributes->type = cudaMemoryTypeDevice;
  if (allocation.kind == MemoryKind::kDevice) return cudaSuccess;
  attributes->type = cudaMemoryTypeHost;
  attributes->hostPointer = reinterpret_cast<void*>(allocation.address + offset);
  return cudaSuccess;
}

}  // namespace kvfence::virtual_device
