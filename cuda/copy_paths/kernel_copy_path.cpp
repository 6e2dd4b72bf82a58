/// The GPU's own threads: gathers and scatters over mapped host memory, one launch for all pieces.

#include <cstring>
#include <utility>

#include "cuda/copy_paths/copy_kernel.h"
#include "cuda/copy_paths/copy_path.h"
#include "cuda/copy_paths/host_access.h"

namespace kvfence::cuda {

cudaError_t enqueue_by_kernel(std::span<const CopyDescriptor> copies, cudaStream_t stream,
                              PinnedPool& pool, std::vector<PinnedMemory>& held) {
  if (copies.empty()) return cudaSuccess;
  if (!can_copy(CopyPathKind::kKernel, copies)) return cudaErrorInvalidValue;
  // The kernel reads its descriptors when it runs: the transfer keeps them until it is over.
  PinnedMemory memory;
  const cudaError_t code = pool.take(copies.size_bytes(), memory);
  if (code != cudaSuccess) return code;
  kvfence_host_write(memory.host_address(), copies.size_bytes());
  std::memcpy(memory.host_address(), copies.data(), copies.size_bytes());
  const auto* descriptors = reinterpret_cast<const CopyDescriptor*>(memory.device_address());
  held.push_back(std::move(memory));
  return kvfence_launch_copy_kernel(descriptors, copies.data(), copies.size(), stream);
}

}  // namespace kvfence::cuda
