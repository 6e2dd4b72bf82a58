#include "cuda/copy_paths/copy_calibration.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cuda/copy_paths/pinned_memory.h"

namespace kvfence::cuda {
namespace {

double distance(std::size_t a, std::size_t b) {
  return std::abs(std::log2(static_cast<double>(std::max<std::size_t>(a, 1))) -
                  std::log2(static_cast<double>(std::max<std::size_t>(b, 1))));
}

/// The resources of a measurement; given back in any case.
struct Bench {
  void* gpu = nullptr;
  PinnedMemory cpu;
  PinnedPool pool;
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;

  ~Bench() {
    if (stream != nullptr) {
      static_cast<void>(cudaStreamSynchronize(stream));
      static_cast<void>(cudaStreamDestroy(stream));
    }
    if (start != nullptr) static_cast<void>(cudaEventDestroy(start));
    if (end != nullptr) static_cast<void>(cudaEventDestroy(end));
    if (gpu != nullptr) static_cast<void>(cudaFree(gpu));
  }

  cudaError_t open(std::size_t size) {
    cudaError_t code = cudaMalloc(&gpu, size);
    if (code == cudaSuccess) code = PinnedMemory::allocate(size, cpu);
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&start, cudaEventDefault);
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&end, cudaEventDefault);
    return code;
  }

  cudaError_t time(CopyPathKind path, std::span<const CopyDescriptor> copies,
                   double& microseconds) {
    std::vector<PinnedMemory> held;
    float milliseconds = 0;
    cudaError_t code = cudaEventRecord(start, stream);
    if (code == cudaSuccess) code = enqueue_copies(path, {}, copies, stream, pool, held);
    if (code == cudaSuccess) code = cudaEventRecord(end, stream);
    // Also after an error: `held` is freed at the end of this scope.
    const cudaError_t over = cudaStreamSynchronize(stream);
    if (code == cudaSuccess) code = over;
    if (code == cudaSuccess) code = cudaEventElapsedTime(&milliseconds, start, end);
    for (PinnedMemory& memory : held) pool.give(std::move(memory));
    microseconds = 1e3 * static_cast<double>(milliseconds);
    return code;
  }
};

/// Pieces with unequal gaps, so that they form no runs.
std::vector<CopyDescriptor> scattered(std::uintptr_t dst, std::uintptr_t src,
                                      const CopyCost& cost) {
  std::vector<CopyDescriptor> copies;
  std::uintptr_t offset = 0;
  for (std::size_t index = 0; index < cost.num_copies; ++index) {
    copies.push_back({dst + offset, src + offset, cost.copy_bytes});
    offset += cost.copy_bytes * (index % 3 == 0 ? 2 : 1) + 16;
  }
  return copies;
}

std::size_t bytes_of(const CopyCost& cost) { return (2 * cost.copy_bytes + 16) * cost.num_copies; }

}  // namespace

CopyPathKind CopyCalibration::choose(Direction direction, std::size_t copy_bytes,
                                     std::size_t num_copies,
                                     const std::array<bool, kNumCopyPaths>& usable) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto away = [&](const CopyCost& cost) {
    if (cost.direction != direction) return kInfinity;
    return distance(cost.copy_bytes, copy_bytes) + distance(cost.num_copies, num_copies);
  };
  const auto nearest = std::ranges::min_element(costs_, {}, away);
  const bool has_row = nearest != costs_.end() && nearest->direction == direction;
  // Usable paths come first, among them measured ones.
  const auto rank = [&](std::size_t path) {
    const bool is_measured = has_row && nearest->microseconds[path] != 0;
    return std::pair(!usable[path], is_measured ? nearest->microseconds[path] : kInfinity);
  };
  std::size_t chosen = 0;
  for (std::size_t path = 1; path < kNumCopyPaths; ++path) {
    if (rank(path) < rank(chosen)) chosen = path;
  }
  return static_cast<CopyPathKind>(chosen);
}

std::string CopyCalibration::to_text() const {
  std::string text = "direction  copy_bytes  num_copies";
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    text += "  " + std::string(kvfence::to_text(static_cast<CopyPathKind>(path))) + "_us";
  }
  text += "\n";
  constexpr std::array<bool, kNumCopyPaths> kAll = {true, true, true, true};
  for (const CopyCost& cost : costs_) {
    char cell[64];
    std::snprintf(cell, sizeof cell, "%-9s  %10zu  %10zu", kvfence::to_text(cost.direction).data(),
                  cost.copy_bytes, cost.num_copies);
    text += cell;
    const CopyPathKind best = choose(cost.direction, cost.copy_bytes, cost.num_copies, kAll);
    for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
      std::snprintf(cell, sizeof cell, "  %9.2f%s", cost.microseconds[path],
                    static_cast<CopyPathKind>(path) == best ? "*" : " ");
      text += cell;
    }
    text += "\n";
  }
  return text;
}

cudaError_t measure_copy_costs(const CalibrationOptions& options, CopyCalibration& calibration) {
  std::vector<CopyCost> costs;
  std::size_t bytes = 0;
  for (const Direction direction : {Direction::kStore, Direction::kLoad}) {
    for (const std::size_t copy_bytes : options.copy_bytes) {
      for (const std::size_t num_copies : options.num_copies) {
        const CopyCost cost{direction, copy_bytes, num_copies};
        if (bytes_of(cost) > options.bytes_max) continue;
        costs.push_back(cost);
        bytes = std::max(bytes, bytes_of(cost));
      }
    }
  }
  if (costs.empty()) return cudaErrorInvalidValue;
  Bench bench;
  cudaError_t code = bench.open(bytes);
  const auto gpu = reinterpret_cast<std::uintptr_t>(bench.gpu);
  for (std::size_t path = 0; path < kNumCopyPaths && code == cudaSuccess; ++path) {
    const auto kind = static_cast<CopyPathKind>(path);
    for (CopyCost& cost : costs) {
      const bool is_store = cost.direction == Direction::kStore;
      const std::uintptr_t cpu = bench.cpu.device_address();
      const auto copies = scattered(is_store ? cpu : gpu, is_store ? gpu : cpu, cost);
      if (!can_copy(kind, copies)) continue;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t repeat = 0; repeat < std::max<std::size_t>(options.num_repeats, 1);
           ++repeat) {
        double microseconds = 0;
        code = bench.time(kind, copies, microseconds);
        if (code != cudaSuccess) return code;
        least = std::min(least, microseconds);
      }
      cost.microseconds[path] = least;
    }
  }
  if (code == cudaSuccess) calibration = CopyCalibration(std::move(costs));
  return code;
}

}  // namespace kvfence::cuda
