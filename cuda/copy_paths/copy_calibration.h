#pragma once

/// Chooses the copy path of a transfer from measurements on this machine at start, never from a
/// constant.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/copy_paths/copy_path.h"

namespace kvfence::cuda {

/// One measurement: `num_copies` pieces of `copy_bytes` each.
struct CopyCost {
  Direction direction = Direction::kStore;
  std::size_t copy_bytes = 0;
  std::size_t num_copies = 0;
  std::array<double, kNumCopyPaths> microseconds = {};  ///< by CopyPathKind; 0: not measured
};

class CopyCalibration {
 public:
  CopyCalibration() = default;
  /// A given table.
  explicit CopyCalibration(std::vector<CopyCost> costs) : costs_(std::move(costs)) {}

  /// The cheapest of the `usable` paths in the row nearest in the logarithms of size and count.
  /// Without a row, or where no usable path was measured: the first usable one.
  /// Requires a usable path. Cost: O(rows).
  CopyPathKind choose(Direction direction, std::size_t copy_bytes, std::size_t num_copies,
                      const std::array<bool, kNumCopyPaths>& usable) const;

  /// The table, a line per row, the cheapest marked with `*`.
  std::string to_text() const;
  std::span<const CopyCost> costs() const { return costs_; }

 private:
  std::vector<CopyCost> costs_;
};

struct CalibrationOptions {
  std::vector<std::size_t> copy_bytes = {4096, 16384, 65536, 262144, 1048576};
  std::vector<std::size_t> num_copies = {1, 16, 256};
  std::size_t num_repeats = 5;                    ///< the least time counts
  std::size_t bytes_max = std::size_t{64} << 20;  ///< larger rows are left out
};

/// Measures every path both ways in memory of its own, which it gives back; `calibration` gets the
/// table. Time is the stream's own, between two events.
/// Errors: the first code of the runtime; `calibration` stays as it was.
cudaError_t measure_copy_costs(const CalibrationOptions& options, CopyCalibration& calibration);

}  // namespace kvfence::cuda
