/// Functions that a worker might reach for, and that have no meaning here: each aborts with its
/// name. A function that is in no file of this folder is an error of the linker, with its name too.

#include <cuda_runtime_api.h>

#include "contract/core/check.h"

namespace {

[[noreturn]] cudaError_t unsupported(const char* function) {
  kvfence::check_failed(__FILE__, __LINE__, function, "the virtual device does not model it");
}

}  // namespace

// What would need the legacy stream, a pool's own dependencies, page migration, or another device.
cudaError_t cudaDeviceReset() { unsupported("cudaDeviceReset"); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned int) {
  unsupported("cudaEventRecordWithFlags");
}
cudaError_t cudaEventCreate(cudaEvent_t*) { unsupported("cudaEventCreate"); }
cudaError_t cudaFreeAsync(void*, cudaStream_t) { unsupported("cudaFreeAsync"); }
cudaError_t cudaMallocAsync(void**, std::size_t, cudaStream_t) { unsupported("cudaMallocAsync"); }
cudaError_t cudaMallocManaged(void**, std::size_t, unsigned int) {
  unsupported("cudaMallocManaged");
}
cudaError_t cudaMemcpy2D(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t,
                         cudaMemcpyKind) {
  unsupported("cudaMemcpy2D");
}
cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, std::size_t, cudaStream_t) {
  unsupported("cudaMemcpyPeerAsync");
}
cudaError_t cudaMemset(void*, int, std::size_t) { unsupported("cudaMemset"); }
cudaError_t cudaStreamCreate(cudaStream_t*) { unsupported("cudaStreamCreate"); }
