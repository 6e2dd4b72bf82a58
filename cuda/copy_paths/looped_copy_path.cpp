/// The copy engine, a call a piece: for runtimes without batches, and to compare with.

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {
namespace {

class LoopedCopyPath : public CopyPath {
 public:
  explicit LoopedCopyPath(const CopyPathOptions& options) : options_(options) {}

  CopyPathKind kind() const override { return CopyPathKind::kLooped; }

  cudaError_t enqueue(std::span<const CopyDescriptor> copies, cudaStream_t stream, PinnedPool&,
                      std::vector<PinnedMemory>&) override {
    cudaError_t code = cudaSuccess;
    for (const CopyDescriptor& copy : copies) {
      code = cudaMemcpyAsync(reinterpret_cast<void*>(copy.dst),
                             reinterpret_cast<const void*>(copy.src), copy.size, cudaMemcpyDefault,
                             stream);
      if (code != cudaSuccess && options_.stops_at_error) break;
    }
    return code;
  }

 private:
  CopyPathOptions options_;
};

}  // namespace

std::unique_ptr<CopyPath> make_looped_copy_path(const CopyPathOptions& options) {
  return std::make_unique<LoopedCopyPath>(options);
}

}  // namespace kvfence::cuda
