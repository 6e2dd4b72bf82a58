#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {

std::unique_ptr<CopyPath> make_copy_path(CopyPathKind kind, const CopyPathOptions& options) {
  switch (kind) {
    case CopyPathKind::kBatched:
      return make_batched_copy_path(options);
    case CopyPathKind::kLooped:
      return make_looped_copy_path();
    case CopyPathKind::kStrided:
      return make_strided_copy_path();
    case CopyPathKind::kKernel:
      return make_kernel_copy_path();
  }
  return nullptr;
}

}  // namespace kvfence::cuda
