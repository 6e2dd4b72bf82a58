/// The calls that allocate, register and free.

#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {

void Device::give_back(const Allocation& allocation) {
  Place place;
  place.canonical = allocation.address;
  access(describe(place, allocation.size, true), host_clock_);
  // Registered memory belongs to its owner from now on: the device must not touch it again.
  const bool is_owned_elsewhere = allocation.kind == MemoryKind::kRegistered;
  const std::size_t num_in_flight =
      queue_.take_away(allocation.bytes, allocation.bytes + allocation.size, is_owned_elsewhere);
  if (num_in_flight > 0) misuse(Misuse::Kind::kFreeInFlight);
  memory_.release(allocation);
}

namespace {

/// A call that gives back what begins at `address`.
cudaError_t give_back(Function function, MemoryKind kind, void* address) {
  Device& device = current();
  if (const auto code = device.enter(function)) return *code;
  const bool is_registered = kind == MemoryKind::kRegistered;
  if (address == nullptr && !is_registered) return cudaSuccess;
  const Allocation* allocation = device.memory_.starting_at(address, kind);
  if (allocation == nullptr) {
    return is_registered ? cudaErrorHostMemoryNotRegistered : cudaErrorInvalidValue;
  }
  device.give_back(*allocation);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t size) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMalloc)) return *code;
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  const Allocation* allocation = device.memory_.allocate_device(size);
  if (allocation == nullptr) return cudaErrorMemoryAllocation;
  *address = reinterpret_cast<void*>(allocation->address);
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  return give_back(Function::kFree, MemoryKind::kDevice, address);
}

cudaError_t cudaHostAlloc(void** address, std::size_t size, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kHostAlloc)) return *code;
  constexpr unsigned int kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (address == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  *address = nullptr;
  if (size == 0) return cudaSuccess;
  *address = device.memory_.allocate_pinned(size)->bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  return give_back(Function::kFreeHost, MemoryKind::kPinned, address);
}

cudaError_t cudaHostRegister(void* address, std::size_t size, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kHostRegister)) return *code;
  constexpr unsigned int kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (address == nullptr || size == 0 || (flags & ~kKnown) != 0) {
    return cudaErrorInvalidValue;
  }
  if (device.memory_.register_host(address, size) == nullptr) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  return give_back(Function::kHostUnregister, MemoryKind::kRegistered, address);
}

cudaError_t cudaHostGetDevicePointer(void** device_address, void* address, unsigned int flags) {
  Device& device = current();
  if (const auto code = device.enter(Function::kHostGetDevicePointer)) return *code;
  if (device_address == nullptr || flags != 0) return cudaErrorInvalidValue;
  const Place place = device.memory_.place(address, 1);
  if (place.kind != Place::Kind::kInside || place.allocation->kind == MemoryKind::kDevice) {
    return cudaErrorInvalidValue;
  }
  const std::uintptr_t offset = place.canonical - place.allocation->address;
  *device_address = reinterpret_cast<void*>(place.allocation->device_address + offset);
  return cudaSuccess;
}

}  // extern "C"

}  // namespace kvfence::virtual_device
