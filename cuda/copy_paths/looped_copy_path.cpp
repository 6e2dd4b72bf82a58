/// The copy engine, one call per piece: for runtimes without batches, and as a baseline.

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {

cudaError_t enqueue_looped(std::span<const CopyDescriptor> copies, cudaStream_t stream) {
  for (const CopyDescriptor& copy : copies) {
    const cudaError_t code =
        cudaMemcpyAsync(reinterpret_cast<void*>(copy.dst), reinterpret_cast<const void*>(copy.src),
                        copy.size, cudaMemcpyDefault, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

}  // namespace kvfence::cuda
