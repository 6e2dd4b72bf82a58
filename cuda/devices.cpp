#include "cuda/devices.h"

#include <cuda_runtime_api.h>

namespace kvfence::cuda {

Devices find_devices() {
  Devices found;
  int num_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&num_devices);
  for (int index = 0; error == cudaSuccess && index < num_devices; ++index) {
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) break;
    found.devices.push_back({.name = properties.name,
                             .compute_capability_major = properties.major,
                             .compute_capability_minor = properties.minor,
                             .memory_bytes = properties.totalGlobalMem});
  }
  if (found.devices.empty()) {
    found.none_because =
        error == cudaSuccess ? "the machine has no GPU" : cudaGetErrorString(error);
  }
  return found;
}

}  // namespace kvfence::cuda
