/// The copy engine, many pieces a call.

#include <algorithm>

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {
namespace {

class BatchedCopyPath : public CopyPath {
 public:
  explicit BatchedCopyPath(const CopyPathOptions& options) : options_(options) {}

  CopyPathKind kind() const override { return CopyPathKind::kBatched; }

  cudaError_t enqueue(std::span<const CopyDescriptor> copies, cudaStream_t stream, PinnedPool&,
                      std::vector<PinnedMemory>&) override {
    while (!copies.empty()) {
      const std::size_t count = std::min(copies.size(), options_.batch_entries_max);
      const cudaError_t code = enqueue_batch(copies.first(count), stream);
      if (code != cudaSuccess) return code;
      copies = copies.subspan(count);
    }
    return cudaSuccess;
  }

 private:
  cudaError_t enqueue_batch(std::span<const CopyDescriptor> copies, cudaStream_t stream) {
    dsts_.clear();
    srcs_.clear();
    sizes_.clear();
    for (const CopyDescriptor& copy : copies) {
      dsts_.push_back(reinterpret_cast<void*>(copy.dst));
      srcs_.push_back(reinterpret_cast<const void*>(copy.src));
      sizes_.push_back(copy.size);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = options_.source_order;
    // As long as the attributes are, not as the entries.
    std::size_t attribute_start = 0;
    return cudaMemcpyBatchAsync(dsts_.data(), srcs_.data(), sizes_.data(), copies.size(),
                                &attributes, &attribute_start, 1, stream);
  }

  CopyPathOptions options_;
  // Kept for their memory: the call has copied them when it returns.
  std::vector<void*> dsts_;
  std::vector<const void*> srcs_;
  std::vector<std::size_t> sizes_;
};

}  // namespace

std::unique_ptr<CopyPath> make_batched_copy_path(const CopyPathOptions& options) {
  return std::make_unique<BatchedCopyPath>(options);
}

}  // namespace kvfence::cuda
