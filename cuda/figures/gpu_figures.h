#pragma once

/// Measures the cost of copies and checks on a GPU in one run, in its own memory, and checks every
/// byte that it copied. gpu_bench.cpp prints it; on the virtual device times mean nothing.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/copy_paths/copy_calibration.h"
#include "cuda/figures/held_races.h"

namespace kvfence::cuda {

struct FigureOptions {
  std::vector<std::size_t> block_bytes = {4096,   8192,   16384,   32768,   65536,  131072,
                                          262144, 524288, 1048576, 2097152, 4194304};
  std::vector<std::size_t> num_blocks = {1, 16, 256, 4096};
  std::size_t bytes_max = std::size_t{512} << 20;    ///< of a row; larger ones are left out
  std::size_t large_bytes = std::size_t{256} << 20;  ///< of the copy that is the ceiling
  std::size_t check_bytes = std::size_t{4} << 30;    ///< of what is filled and checked on the GPU
  std::size_t num_repeats = 7;                       ///< the median counts
  /// Of a race's blocks, and of the calibration; as those take them.
  std::size_t race_page_bytes = std::size_t{1} << 20;
  CalibrationOptions calibration = {};
  /// No row begins after this many seconds; the figures count the rows left out.
  double seconds_max = 240;
};

/// GB are 10^9 bytes.
struct CopyFigure {
  std::string path = {};       ///< of CopyPathKind; batched_any: in Any order, loads alone
  std::string direction = {};  ///< store, load; both: a store and a load at once
  std::size_t block_bytes = 0;
  std::size_t num_blocks = 0;  ///< of each direction
  double microseconds = 0;     ///< by events, from the first stream's start to the last one's end
  double gb_per_second = 0;    ///< bytes copied over it
  double of_ceiling = 0;  ///< gb_per_second over the large copy's of the same direction and run
  double call_microseconds = 0;  ///< the host's, for all calls of the row
  std::uint64_t num_wrong_bytes = 0;
};

/// A race with a barrier or without.
struct RaceFigure {
  HeldRace race = {};
  CopyPathKind path = CopyPathKind::kBatched;
  bool has_barrier = false;
  RaceOutcome outcome = {};

  bool must_corrupt() const { return !has_barrier && race.must_corrupt; }
  bool is_corrupt() const { return !outcome.wrong.empty(); }
  bool is_as_expected() const;
};

struct Figures {
  int runtime_version = 0;
  int driver_version = 0;
  /// By the runtime's name, without "cudaDevAttr".
  std::vector<std::pair<std::string, int>> attributes;
  double store_ceiling = 0;  ///< GB/s of one large copy
  double load_ceiling = 0;
  double both_ceiling = 0;  ///< of two at once, together
  std::vector<CopyFigure> copies;
  std::size_t num_rows_left_out = 0;  ///< for want of time
  std::vector<RaceFigure> races;
  CopyCalibration calibration;
  double device_copy = 0;   ///< GB/s that a large copy within the GPU reads and writes
  double fill_kernel = 0;   ///< GB/s that it writes
  double check_kernel = 0;  ///< GB/s that it reads
  std::uint64_t num_wrong_in_check = 0;

  /// Wrong bytes, races that did not show, and races that showed with their barrier.
  std::size_t num_failures() const;
};

// Errors: the first code of the runtime, with what was measured before it in `figures`.

/// Measures everything: the races, then the rates.
cudaError_t measure_gpu(const FigureOptions& options, Figures& figures);
/// The kernels, the calibration and the copies.
cudaError_t measure_rates(const FigureOptions& options, Figures& figures);

/// Tables for people; and one JSON object with what the structures above hold.
std::string to_tables(const Figures& figures);
std::string to_json(const Figures& figures, const std::string& device_name);

}  // namespace kvfence::cuda
