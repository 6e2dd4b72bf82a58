/// The copy engine, a call for each run of pieces that are equally long and equally far apart on
/// both sides.

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {
namespace {

/// What cudaDevAttrMaxPitch is on every device so far.
constexpr std::size_t kPitchMax = 0x7FFF'FFFF;

/// How many of the first copies are rows of one rectangle.
std::size_t rows_of(std::span<const CopyDescriptor> copies) {
  const CopyDescriptor& first = copies[0];
  if (copies.size() < 2) return 1;
  const std::size_t dst_pitch = copies[1].dst - first.dst;
  const std::size_t src_pitch = copies[1].src - first.src;
  // A step backwards wraps around and is too long.
  if (dst_pitch < first.size || src_pitch < first.size || dst_pitch > kPitchMax ||
      src_pitch > kPitchMax) {
    return 1;
  }
  std::size_t rows = 1;
  while (rows < copies.size() && copies[rows].size == first.size &&
         copies[rows].dst == first.dst + rows * dst_pitch &&
         copies[rows].src == first.src + rows * src_pitch) {
    ++rows;
  }
  return rows;
}

cudaError_t enqueue_rows(std::span<const CopyDescriptor> rows, cudaStream_t stream) {
  const CopyDescriptor& first = rows[0];
  auto* dst = reinterpret_cast<void*>(first.dst);
  const auto* src = reinterpret_cast<const void*>(first.src);
  if (rows.size() == 1) return cudaMemcpyAsync(dst, src, first.size, cudaMemcpyDefault, stream);
  return cudaMemcpy2DAsync(dst, rows[1].dst - first.dst, src, rows[1].src - first.src, first.size,
                           rows.size(), cudaMemcpyDefault, stream);
}

}  // namespace

cudaError_t enqueue_strided(std::span<const CopyDescriptor> copies, cudaStream_t stream) {
  while (!copies.empty()) {
    const std::size_t rows = rows_of(copies);
    const cudaError_t code = enqueue_rows(copies.first(rows), stream);
    if (code != cudaSuccess) return code;
    copies = copies.subspan(rows);
  }
  return cudaSuccess;
}

}  // namespace kvfence::cuda
