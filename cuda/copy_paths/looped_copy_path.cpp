/// The copy engine, a call a piece: for runtimes without batches, and to compare with.

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {
namespace {

class LoopedCopyPath : public CopyPath {
 public:
  CopyPathKind kind() const override { return CopyPathKind::kLooped; }

  cudaError_t enqueue(std::span<const CopyDescriptor> copies, cudaStream_t stream, PinnedPool&,
                      std::vector<PinnedMemory>&) override {
    for (const CopyDescriptor& copy : copies) {
      const cudaError_t code = cudaMemcpyAsync(reinterpret_cast<void*>(copy.dst),
                                               reinterpret_cast<const void*>(copy.src), copy.size,
                                               cudaMemcpyDefault, stream);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
};

}  // namespace

std::unique_ptr<CopyPath> make_looped_copy_path() { return std::make_unique<LoopedCopyPath>(); }

}  // namespace kvfence::cuda
