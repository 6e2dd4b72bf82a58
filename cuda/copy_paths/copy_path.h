#pragma once

/// The ways to copy a list of pieces between GPU and pinned host memory. All of them must have the
/// same result.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "contract/worker/worker.h"
#include "cuda/copy_paths/pinned_memory.h"
#include "cuda/copy_paths/transfer_plan.h"

namespace kvfence::cuda {

/// Batched: cudaMemcpyBatchAsync; looped: a cudaMemcpyAsync each; strided: cudaMemcpy2DAsync where
/// pieces lie equally far apart; kernel: the GPU's own threads read and write.
using CopyPathKind = worker::Path;
inline constexpr std::size_t kNumCopyPaths = 4;

struct CopyPathOptions {
  /// A batch of more entries is cut: other runtimes give up above this many, and CUDA 13.0 was
  /// reported to crash at 51,828 (vllm#49276).
  std::size_t batch_entries_max = 4096;
  /// An experiment: any order but Stream may read sources before what the stream waits for.
  cudaMemcpySrcAccessOrder source_order = cudaMemcpySrcAccessOrderStream;
};

/// Whether alignment lets this path take them. Cost: O(copies).
bool can_copy(CopyPathKind kind, std::span<const CopyDescriptor> copies);

/// Enqueues all copies in the stream, never the NULL one; the copies have no order among
/// themselves. `held` gets the host memory, of `pool`, that must stay unchanged until they are
/// over. Errors: the first code that is not cudaSuccess; part of the copies may have been enqueued,
/// so every destination is undefined, and none is at rest before the stream has come to this point.
cudaError_t enqueue_copies(CopyPathKind kind, const CopyPathOptions& options,
                           std::span<const CopyDescriptor> copies, cudaStream_t stream,
                           PinnedPool& pool, std::vector<PinnedMemory>& held);

// One file each, called by enqueue_copies.
cudaError_t enqueue_batched(const CopyPathOptions& options, std::span<const CopyDescriptor> copies,
                            cudaStream_t stream);
cudaError_t enqueue_looped(std::span<const CopyDescriptor> copies, cudaStream_t stream);
cudaError_t enqueue_strided(std::span<const CopyDescriptor> copies, cudaStream_t stream);
cudaError_t enqueue_by_kernel(std::span<const CopyDescriptor> copies, cudaStream_t stream,
                              PinnedPool& pool, std::vector<PinnedMemory>& held);

}  // namespace kvfence::cuda
