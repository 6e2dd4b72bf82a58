/// The copy engine, many pieces per call.

#include <algorithm>

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {

cudaError_t enqueue_batched(const CopyPathOptions& options, std::span<const CopyDescriptor> copies,
                            cudaStream_t stream) {
  std::vector<void*> dsts;
  std::vector<const void*> srcs;
  std::vector<std::size_t> sizes;
  dsts.reserve(copies.size());
  srcs.reserve(copies.size());
  sizes.reserve(copies.size());
  for (const CopyDescriptor& copy : copies) {
    dsts.push_back(reinterpret_cast<void*>(copy.dst));
    srcs.push_back(reinterpret_cast<const void*>(copy.src));
    sizes.push_back(copy.size);
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = options.source_order;
  // As many elements as attributes, not as entries.
  std::size_t attribute_start = 0;
  for (std::size_t begin = 0; begin < copies.size();) {
    const std::size_t count = std::min(copies.size() - begin, options.batch_entries_max);
    const cudaError_t code =
        cudaMemcpyBatchAsync(dsts.data() + begin, srcs.data() + begin, sizes.data() + begin, count,
                             &attributes, &attribute_start, 1, stream);
    if (code != cudaSuccess) return code;
    begin += count;
  }
  return cudaSuccess;
}

}  // namespace kvfence::cuda
