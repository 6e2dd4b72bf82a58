/// The functions of the CUDA runtime, by their own names: a test links this library instead of
/// cudart. Compiled against the toolkit's header where there is one, so that no signature can
/// drift.

#include <cuda_runtime_api.h>

#include "cuda/virtual/device.h"

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
#error "with the per-thread default stream the runtime's functions have other names (*_ptsz)"
#endif

namespace {

using kvfence::virtual_device::current;
using kvfence::virtual_device::Function;

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

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) { return current().get_device_count(count); }
cudaError_t cudaSetDevice(int device) { return current().set_device(device); }
cudaError_t cudaGetDevice(int* device) { return current().get_device(device); }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return current().device_get_attribute(value, attr, device);
}
cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  return current().runtime_get_version(runtimeVersion);
}
cudaError_t cudaDriverGetVersion(int* driverVersion) {
  return current().driver_get_version(driverVersion);
}
cudaError_t cudaDeviceSynchronize() { return current().device_synchronize(); }
cudaError_t cudaGetLastError() { return current().get_last_error(); }
cudaError_t cudaPeekAtLastError() { return current().peek_at_last_error(); }
const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = find_text(error);
  return found != nullptr ? found->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = find_text(error);
  return found != nullptr ? found->text : "unrecognized error code";
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return current().mem_get_info(free, total);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return current().device_get_stream_priority_range(leastPriority, greatestPriority);
}

cudaError_t cudaMalloc(void** devPtr, std::size_t size) { return current().malloc(devPtr, size); }
cudaError_t cudaFree(void* devPtr) { return current().free(devPtr); }
cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned int flags) {
  return current().host_alloc(Function::kHostAlloc, pHost, size, flags);
}
cudaError_t cudaMallocHost(void** ptr, std::size_t size) {
  return current().host_alloc(Function::kMallocHost, ptr, size, 0);
}
cudaError_t cudaFreeHost(void* ptr) { return current().free_host(ptr); }
cudaError_t cudaHostRegister(void* ptr, std::size_t size, unsigned int flags) {
  return current().host_register(ptr, size, flags);
}
cudaError_t cudaHostUnregister(void* ptr) { return current().host_unregister(ptr); }
cudaError_t cudaHostGetDevicePointer(void** pDevice, void* pHost, unsigned int flags) {
  return current().host_get_device_pointer(pDevice, pHost, flags);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return current().pointer_get_attributes(attributes, ptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return current().stream_create(Function::kStreamCreateWithFlags, pStream, flags);
}
// A priority promises nothing, and does not reach copies at all: it is accepted and ignored.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int) {
  return current().stream_create(Function::kStreamCreateWithPriority, pStream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return current().stream_destroy(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return current().stream_query(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return current().stream_synchronize(stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return current().stream_wait_event(stream, event, flags);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return current().event_create(event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return current().event_destroy(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return current().event_record(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return current().event_query(event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return current().event_synchronize(event); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return current().event_elapsed_time(ms, start, end);
}

cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind) {
  return current().memcpy(dst, src, count, kind);
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return current().memcpy_async(dst, src, count, kind, stream);
}
cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs,
                                 const std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attrs, std::size_t* attrsIdxs,
                                 std::size_t numAttrs, cudaStream_t stream) {
  return current().memcpy_batch_async(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, stream);
}
cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return current().memcpy_2d_async(dst, dpitch, src, spitch, width, height, kind, stream);
}
cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream) {
  return current().memset_async(devPtr, value, count, stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return current().launch_host_func(stream, fn, userData);
}
