/// The calls that describe the device and its state, and the one that waits for all of it.

#include <utility>

#include "cuda/virtual/device.h"

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#error "with the per-thread default stream the runtime's functions have other names (*_ptsz)"
#endif

namespace kvfence::virtual_device {
namespace {

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

// The names are the runtime's own, the texts ours.
constexpr ErrorText kErrorTexts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization failed"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "driver missing or too old"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device number"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable memory error"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "illegal address"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "timed out"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "memory already registered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "memory not registered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "launch failed"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* find_text(cudaError_t code) {
  for (const ErrorText& text : kErrorTexts) {
    if (text.code == code) return &text;
  }
  return nullptr;
}

/// A call that does nothing but answer with a number.
cudaError_t answer(Function function, int* out, int value) {
  Device& device = current();
  if (const auto code = device.enter(function)) return *code;
  if (out == nullptr) return device.fail(cudaErrorInvalidValue);
  *out = value;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return answer(Function::kGetDeviceCount, count, 1); }
cudaError_t cudaGetDevice(int* device) { return answer(Function::kGetDevice, device, 0); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  return answer(Function::kRuntimeGetVersion, version, 13000);
}
cudaError_t cudaDriverGetVersion(int* version) {
  return answer(Function::kDriverGetVersion, version, 13000);
}

cudaError_t cudaSetDevice(int number) {
  Device& device = current();
  if (const auto code = device.enter(Function::kSetDevice)) return *code;
  return device.fail(number == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  Device& device = current();
  if (const auto code = device.enter(Function::kDeviceGetAttribute)) return *code;
  if (value == nullptr) return device.fail(cudaErrorInvalidValue);
  if (number != 0) return device.fail(cudaErrorInvalidDevice);
  const int host_pointer_can_be_used =
      device.options_.registered_memory_has_own_device_address ? 0 : 1;
  const std::pair<cudaDeviceAttr, int> attributes[] = {
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrPageableMemoryAccess, 0},
      {cudaDevAttrCanUseHostPointerForRegisteredMem, host_pointer_can_be_used},
      {cudaDevAttrHostRegisterSupported, 1},
      {cudaDevAttrHostNumaId, -1},
  };
  for (const auto& [known, answer] : attributes) {
    if (known != attribute) continue;
    *value = answer;
    return cudaSuccess;
  }
  return device.fail(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSynchronize() {
  Device& device = current();
  if (const auto code = device.enter(Function::kDeviceSynchronize)) return *code;
  for (Actor stream = 1; stream < device.streams_.size(); ++stream) {
    const Clock clock = device.streams_[stream].clock;
    const cudaError_t code = device.wait_for({stream, device.queue_.enqueued(stream)}, clock);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  Device& device = current();
  if (const auto code = device.enter(Function::kGetLastError)) return *code;
  return std::exchange(device.last_error_, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  Device& device = current();
  if (const auto code = device.enter(Function::kPeekAtLastError)) return *code;
  return device.last_error_;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = find_text(error);
  return found != nullptr ? found->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = find_text(error);
  return found != nullptr ? found->text : "unrecognized error code";
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Device& device = current();
  if (const auto code = device.enter(Function::kMemGetInfo)) return *code;
  if (free == nullptr || total == nullptr) return device.fail(cudaErrorInvalidValue);
  *free = device.memory_.device_bytes_free();
  *total = device.memory_.device_bytes();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  Device& device = current();
  if (const auto code = device.enter(Function::kDeviceGetStreamPriorityRange)) return *code;
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}

}  // extern "C"

}  // namespace kvfence::virtual_device
