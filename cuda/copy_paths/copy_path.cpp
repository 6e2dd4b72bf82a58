#include "cuda/copy_paths/copy_path.h"

#include "cuda/copy_paths/copy_kernel.h"

namespace kvfence::cuda {

bool can_copy(CopyPathKind kind, std::span<const CopyDescriptor> copies) {
  if (kind != CopyPathKind::kKernel) return true;
  std::uintptr_t bits = 0;
  for (const CopyDescriptor& copy : copies) bits |= copy.dst | copy.src | copy.size;
  return bits % kCopyKernelWordBytes == 0;
}

cudaError_t enqueue_copies(CopyPathKind kind, const CopyPathOptions& options,
                           std::span<const CopyDescriptor> copies, cudaStream_t stream,
                           PinnedPool& pool, std::vector<PinnedMemory>& held) {
  switch (kind) {
    case CopyPathKind::kBatched:
      return enqueue_batched(options, copies, stream);
    case CopyPathKind::kLooped:
      return enqueue_looped(copies, stream);
    case CopyPathKind::kStrided:
      return enqueue_strided(copies, stream);
    case CopyPathKind::kKernel:
      return enqueue_by_kernel(copies, stream, pool, held);
  }
  return cudaErrorInvalidValue;
}

}  // namespace kvfence::cuda
