/// The calls that describe the device and its state, and the one that waits for all of it.

#include <utility>

#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {

cudaError_t Device::get_device_count(int* count) {
  if (const auto code = enter(Function::kGetDeviceCount)) return *code;
  if (count == nullptr) return fail(cudaErrorInvalidValue);
  *count = 1;
  return cudaSuccess;
}

cudaError_t Device::set_device(int device) {
  if (const auto code = enter(Function::kSetDevice)) return *code;
  return fail(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t Device::get_device(int* device) {
  if (const auto code = enter(Function::kGetDevice)) return *code;
  if (device == nullptr) return fail(cudaErrorInvalidValue);
  *device = 0;
  return cudaSuccess;
}

cudaError_t Device::device_get_attribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const auto code = enter(Function::kDeviceGetAttribute)) return *code;
  if (value == nullptr) return fail(cudaErrorInvalidValue);
  if (device != 0) return fail(cudaErrorInvalidDevice);
  const bool has_own_address = options_.registered_memory_has_own_device_address;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      return cudaSuccess;
    case cudaDevAttrCanMapHostMemory:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrAsyncEngineCount:
      *value = 3;
      return cudaSuccess;
    case cudaDevAttrUnifiedAddressing:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrPageableMemoryAccess:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
      *value = has_own_address ? 0 : 1;
      return cudaSuccess;
    case cudaDevAttrHostRegisterSupported:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrHostNumaId:
      *value = -1;
      return cudaSuccess;
    default:
      return fail(cudaErrorInvalidValue);
  }
}

cudaError_t Device::runtime_get_version(int* version) {
  if (const auto code = enter(Function::kRuntimeGetVersion)) return *code;
  if (version == nullptr) return fail(cudaErrorInvalidValue);
  *version = 13000;
  return cudaSuccess;
}

cudaError_t Device::driver_get_version(int* version) {
  if (const auto code = enter(Function::kDriverGetVersion)) return *code;
  if (version == nullptr) return fail(cudaErrorInvalidValue);
  *version = 13000;
  return cudaSuccess;
}

cudaError_t Device::device_synchronize() {
  if (const auto code = enter(Function::kDeviceSynchronize)) return *code;
  for (Actor stream = 1; stream < streams_.size(); ++stream) {
    const Clock clock = streams_[stream].clock;
    const cudaError_t code = wait_for({stream, queue_.enqueued(stream)}, clock);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t Device::get_last_error() {
  if (const auto code = enter(Function::kGetLastError)) return *code;
  return std::exchange(last_error_, cudaSuccess);
}

cudaError_t Device::peek_at_last_error() {
  if (const auto code = enter(Function::kPeekAtLastError)) return *code;
  return last_error_;
}

cudaError_t Device::mem_get_info(std::size_t* free, std::size_t* total) {
  if (const auto code = enter(Function::kMemGetInfo)) return *code;
  if (free == nullptr || total == nullptr) return fail(cudaErrorInvalidValue);
  *free = memory_.device_bytes_free();
  *total = memory_.device_bytes();
  return cudaSuccess;
}

cudaError_t Device::device_get_stream_priority_range(int* least, int* greatest) {
  if (const auto code = enter(Function::kDeviceGetStreamPriorityRange)) return *code;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

}  // namespace kvfence::virtual_device
