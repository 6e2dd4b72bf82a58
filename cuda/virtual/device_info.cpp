/// The calls that describe the device and its state, and the one that waits for all its work.

#include <utility>

#include "cuda/virtual/device.h"

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#error "with the per-thread default stream the runtime's functions have other names (*_ptsz)"
#endif

namespace kvfence::virtual_device {
namespace {

constexpr std::pair<cudaError_t, const char*> kErrorNames[] = {
    {cudaSuccess, "cudaSuccess"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {cudaErrorNotReady, "cudaErrorNotReady"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted"},
    {cudaErrorUnknown, "cudaErrorUnknown"},
};

/// A call that only answers with a number.
cudaError_t answer(Function function, int* out, int value) {
  Device& device = current();
  if (const auto code = device.enter(function)) return *code;
  if (out == nullptr) return cudaErrorInvalidValue;
  *out = value;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  return answer(Function::kRuntimeGetVersion, version, 13000);
}
cudaError_t cudaDriverGetVersion(int* version) {
  return answer(Function::kDriverGetVersion, version, 13000);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  Device& device = current();
  if (const auto code = device.enter(Function::kDeviceGetAttribute)) return *code;
  if (value == nullptr) return cudaErrorInvalidValue;
  if (number != 0) return cudaErrorInvalidDevice;
  const int host_pointer_can_be_used =
      device.options_.registered_memory_has_own_device_address ? 0 : 1;
  const std::pair<cudaDeviceAttr, int> attributes[] = {
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrUnifiedAddressing, 1},
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
  return cudaErrorInvalidValue;
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

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& [code, name] : kErrorNames) {
    if (code == error) return name;
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return std::exchange(current().last_error_, cudaSuccess); }

}  // extern "C"

}  // namespace kvfence::virtual_device
