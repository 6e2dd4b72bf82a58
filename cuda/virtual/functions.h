#pragma once

/// The calls of the virtual device, as an enumeration that faults, counters and reports use. The
/// last three are not the runtime's: kernels and host accesses come through device.h.

#include <cstddef>
#include <cstdint>

// clang-format off
#define KVFENCE_VIRTUAL_FUNCTIONS(X)                                                            \
  X(kDeviceGetAttribute, "cudaDeviceGetAttribute")                                              \
  X(kRuntimeGetVersion, "cudaRuntimeGetVersion") X(kDriverGetVersion, "cudaDriverGetVersion")   \
  X(kDeviceSynchronize, "cudaDeviceSynchronize")\
  X(kMalloc, "cudaMalloc") X(kFree, "cudaFree") X(kHostAlloc, "cudaHostAlloc")                  \
  X(kFreeHost, "cudaFreeHost") X(kHostRegister, "cudaHostRegister")                             \
  X(kHostUnregister, "cudaHostUnregister") X(kHostGetDevicePointer, "cudaHostGetDevicePointer") \
  X(kStreamCreateWithFlags, "cudaStreamCreateWithFlags") X(kStreamDestroy, "cudaStreamDestroy") \
  X(kStreamQuery, "cudaStreamQuery") X(kStreamSynchronize, "cudaStreamSynchronize")             \
  X(kStreamWaitEvent, "cudaStreamWaitEvent")                                                    \
  X(kEventCreateWithFlags, "cudaEventCreateWithFlags") X(kEventDestroy, "cudaEventDestroy")     \
  X(kEventRecord, "cudaEventRecord") X(kEventQuery, "cudaEventQuery")                           \
  X(kEventSynchronize, "cudaEventSynchronize") X(kEventElapsedTime, "cudaEventElapsedTime")     \
  X(kMemcpyAsync, "cudaMemcpyAsync") X(kMemcpyBatchAsync, "cudaMemcpyBatchAsync")               \
  X(kMemcpy2DAsync, "cudaMemcpy2DAsync") X(kMemsetAsync, "cudaMemsetAsync")                     \
  X(kLaunch, "launch") X(kHostRead, "host_read") X(kHostWrite, "host_write")
// clang-format on

namespace kvfence::virtual_device {

enum class Function : std::uint8_t {
#define KVFENCE_VIRTUAL_ENUMERATOR(name, text) name,
  KVFENCE_VIRTUAL_FUNCTIONS(KVFENCE_VIRTUAL_ENUMERATOR)
#undef KVFENCE_VIRTUAL_ENUMERATOR
};

inline constexpr const char* kFunctionNames[] = {
#define KVFENCE_VIRTUAL_NAME(name, text) text,
    KVFENCE_VIRTUAL_FUNCTIONS(KVFENCE_VIRTUAL_NAME)
#undef KVFENCE_VIRTUAL_NAME
};
inline constexpr std::size_t kNumFunctions = sizeof kFunctionNames / sizeof kFunctionNames[0];

inline const char* to_text(Function function) {
  return kFunctionNames[static_cast<std::size_t>(function)];
}

}  // namespace kvfence::virtual_device
