#include "cuda/figures/gpu_figures.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "cuda/copy_paths/host_access.h"
#include "cuda/copy_paths/pinned_memory.h"
#include "cuda/figures/content_kernel.h"

namespace kvfence::cuda {
namespace {

constexpr std::uint64_t kRunSeed = 21;
/// The gap between blocks, so that no two merge into one copy.
constexpr std::size_t kGap = 64;
constexpr std::uint64_t kStoredBlock = 1 << 20;
constexpr std::uint64_t kLoadedBlock = 1 << 21;
constexpr int kPoisonByte = 0xA5;

double now_microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double gb_per_second(std::size_t num_bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(num_bytes) / microseconds / 1e3 : 0;
}

using Sides = std::span<const std::size_t>;

/// Which of Bench's two sides a copy uses.
struct Way {
  const char* direction = "";
  Sides sides;
  bool in_any_order = false;  ///< never for a store: it would read before what it has to wait for
  double Figures::*ceiling = nullptr;

  bool stores() const { return sides.front() == 0; }
  bool loads() const { return sides.back() == 1; }
};

constexpr std::size_t kSides[] = {0, 1};
constexpr Way kWays[] = {
    {"both", {kSides, 2}, false, &Figures::both_ceiling},
    {"store", {kSides, 1}, false, &Figures::store_ceiling},
    {"load", {kSides + 1, 1}, false, &Figures::load_ceiling},
    {"load", {kSides + 1, 1}, true, &Figures::load_ceiling},
};

/// What is measured: which path, which way, how many blocks of what size.
struct Row {
  CopyPathKind path = CopyPathKind::kBatched;
  const Way* way = nullptr;
  std::size_t block_bytes = 0;
  std::size_t num_blocks = 0;

  std::size_t stride() const { return block_bytes + kGap; }
  std::size_t num_bytes() const { return block_bytes * num_blocks * way->sides.size(); }
};

struct Time {
  double device_microseconds = 0;
  double call_microseconds = 0;
};

/// One of each kind per direction: [0] of stores, [1] of loads.
class Bench {
 public:
  Bench() = default;
  ~Bench() {
    for (const cudaStream_t stream : streams_) {
      if (stream == nullptr) continue;
      static_cast<void>(cudaStreamSynchronize(stream));
      static_cast<void>(cudaStreamDestroy(stream));
    }
    for (const cudaEvent_t event : {start_, ends_[0], ends_[1]}) {
      if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
    }
    for (void* memory : gpu_) {
      if (memory != nullptr) static_cast<void>(cudaFree(memory));
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Sizes of each memory; the host has none if its size is 0. `slots_max`: checked at once.
  cudaError_t open(std::size_t gpu_size, std::size_t cpu_size, std::size_t slots_max) {
    for (std::size_t side = 0; side < kNumDirections && is_ok(); ++side) {
      ok(cudaMalloc(&gpu_[side], gpu_size));
      if (cpu_size > 0) ok(PinnedMemory::allocate(cpu_size, cpu_[side]));
      ok(cudaStreamCreateWithFlags(&streams_[side], cudaStreamNonBlocking));
      ok(cudaEventCreateWithFlags(&ends_[side], cudaEventDefault));
    }
    ok(cudaEventCreateWithFlags(&start_, cudaEventDefault));
    ok(PinnedMemory::allocate(slots_max * sizeof(content::Mismatch), found_));
    return code_;
  }
  cudaError_t code() const { return code_; }

  /// Contiguous memory, the ceiling of all others.
  double large_copy(std::size_t size, Sides sides, std::size_t num_repeats) {
    return rate(size * sides.size(), num_repeats, sides, [&](std::size_t side) {
      void* const cpu = address(cpu_[side].device_address());
      void* const dst = side == 0 ? cpu : gpu_[side];
      const void* const src = side == 0 ? gpu_[side] : cpu;
      return cudaMemcpyAsync(dst, src, size, cudaMemcpyDefault, streams_[side]);
    });
  }
  /// Times a row, and counts the bytes that are wrong afterwards.
  CopyFigure measure(const Row& row, std::size_t num_repeats) {
    const Way& way = *row.way;
    CopyFigure figure{.path = std::string(to_text(row.path)),
                      .direction = way.direction,
                      .block_bytes = row.block_bytes,
                      .num_blocks = row.num_blocks};
    CopyPathOptions options;
    if (way.in_any_order) {
      figure.path += "_any";
      options.source_order = cudaMemcpySrcAccessOrderAny;
    }
    const std::vector<CopyDescriptor> copies[] = {copies_of(row, 0), copies_of(row, 1)};
    // Bytes that a path leaves out stay poison.
    prepare(row);
    std::vector<PinnedMemory> held;
    const Time time = repeat(
        num_repeats, way.sides,
        [&](std::size_t side) {
          return enqueue_copies(row.path, options, copies[side], streams_[side], pool_, held);
        },
        [&] {
          for (PinnedMemory& memory : held) pool_.give(std::move(memory));
          held.clear();
        });
    figure.microseconds = time.device_microseconds;
    figure.call_microseconds = time.call_microseconds;
    figure.gb_per_second = gb_per_second(row.num_bytes(), time.device_microseconds);
    if (way.stores()) figure.num_wrong_bytes += check_stored(row);
    if (way.loads()) figure.num_wrong_bytes += check(slots_of(row, gpu_[1], kLoadedBlock));
    return figure;
  }

  /// Times the GPU alone: its whole memory as slots.
  void measure_kernels(std::size_t size, std::size_t slot_bytes, std::size_t num_repeats,
                       Figures& figures) {
    const ContentSlots slots{.address = reinterpret_cast<std::uintptr_t>(gpu_[0]),
                             .stride_bytes = slot_bytes,
                             .granules_per_slot = slot_bytes / content::kGranuleBytes,
                             .num_slots = size / slot_bytes,
                             .first = {1, 1},
                             .run_seed = kRunSeed};
    figures.fill_kernel = rate(size, num_repeats, kFirst, [&](std::size_t) {
      return kvfence_launch_fill_kernel(&slots, streams_[0]);
    });
    figures.check_kernel =
        rate(size, num_repeats, kFirst, [&](std::size_t) { return launch_check(slots); });
    figures.num_wrong_in_check = check(slots);
    figures.device_copy = rate(2 * size, num_repeats, kFirst, [&](std::size_t) {
      return cudaMemcpyAsync(gpu_[1], gpu_[0], size, cudaMemcpyDeviceToDevice, streams_[0]);
    });
  }

 private:
  bool is_ok() const { return code_ == cudaSuccess; }
  void ok(cudaError_t code) {
    if (code_ == cudaSuccess) code_ = code;
  }
  static void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }
  /// Destinations one after the other, sources in another order: nothing merges, and pieces are
  /// not equally far apart. The strided path gets equal distances.
  static std::uint64_t step_of(const Row& row) {
    return row.path == CopyPathKind::kStrided || row.num_blocks < 4 ? 1 : row.num_blocks / 2 - 1;
  }
  std::vector<CopyDescriptor> copies_of(const Row& row, std::size_t side) const {
    const std::uintptr_t cpu = cpu_[side].device_address();
    const auto gpu = reinterpret_cast<std::uintptr_t>(gpu_[side]);
    const std::uintptr_t dst = side == 0 ? cpu : gpu;
    const std::uintptr_t src = side == 0 ? gpu : cpu;
    const std::uint64_t step = step_of(row);
    std::vector<CopyDescriptor> copies;
    for (std::size_t block = 0; block < row.num_blocks; ++block) {
      copies.push_back({dst + block * row.stride(),
                        src + block * step % row.num_blocks * row.stride(), row.block_bytes});
    }
    return copies;
  }
  /// The destination slots of a row's copies, with their expected contents.
  static ContentSlots slots_of(const Row& row, void* memory, std::uint64_t first_block) {
    return {.address = reinterpret_cast<std::uintptr_t>(memory),
            .stride_bytes = row.stride(),
            .granules_per_slot = row.block_bytes / content::kGranuleBytes,
            .num_slots = row.num_blocks,
            .first = {first_block, 1},
            .block_step = step_of(row),
            .run_seed = kRunSeed};
  }
  /// Sources hold their blocks, in the order of their slots; destinations hold poison.
  void prepare(const Row& row) {
    const std::size_t size = row.num_blocks * row.stride();
    if (row.way->loads()) {
      ContentSlots loaded = slots_of(row, gpu_[1], kLoadedBlock);
      loaded.block_step = 1;
      ok(kvfence_launch_fill_kernel(&loaded, streams_[0]));
      copy(address(cpu_[1].device_address()), gpu_[1], size);
      ok(cudaMemsetAsync(gpu_[1], kPoisonByte, size, streams_[0]));
    }
    if (row.way->stores()) {
      ContentSlots stored = slots_of(row, gpu_[0], kStoredBlock);
      stored.block_step = 1;
      ok(kvfence_launch_fill_kernel(&stored, streams_[0]));
      kvfence_host_write(cpu_[0].host_address(), size);
      std::memset(cpu_[0].host_address(), kPoisonByte, size);
    }
    ok(cudaStreamSynchronize(streams_[0]));
  }
  cudaError_t launch_check(const ContentSlots& slots) {
    auto* const found = reinterpret_cast<content::Mismatch*>(found_.device_address());
    return kvfence_launch_check_kernel(&slots, found, streams_[0]);
  }
  /// Wrong bytes of slots on the GPU.
  std::uint64_t check(const ContentSlots& slots) {
    ok(launch_check(slots));
    ok(cudaStreamSynchronize(streams_[0]));
    if (!is_ok()) return 0;
    std::vector<content::Mismatch> found(slots.num_slots);
    const std::size_t size = found.size() * sizeof found[0];
    kvfence_host_read(found_.host_address(), size);
    std::memcpy(found.data(), found_.host_address(), size);
    std::uint64_t num_wrong = 0;
    for (const content::Mismatch& mismatch : found) num_wrong += mismatch.num_wrong;
    return num_wrong * content::kGranuleBytes;
  }
  /// Copies the host's memory back to the GPU in one piece, over other bytes, and checks it there.
  std::uint64_t check_stored(const Row& row) {
    const std::size_t size = row.num_blocks * row.stride();
    ok(cudaMemsetAsync(gpu_[0], kPoisonByte, size, streams_[0]));
    copy(gpu_[0], address(cpu_[0].device_address()), size);
    return check(slots_of(row, gpu_[0], kStoredBlock));
  }
  void copy(void* dst, const void* src, std::size_t size) {
    ok(cudaMemcpyAsync(dst, src, size, cudaMemcpyDefault, streams_[0]));
    ok(cudaStreamSynchronize(streams_[0]));
  }

  /// Times what `enqueue(side)` puts into the streams: `num_repeats` rounds after a first one that
  /// does not count.
  template <class Enqueue, class Over = decltype([] {})>
  Time repeat(std::size_t num_repeats, Sides sides, Enqueue enqueue, Over over = {}) {
    std::vector<double> device;
    std::vector<double> calls;
    for (std::size_t round = 0; round <= num_repeats && is_ok(); ++round) {
      ok(cudaEventRecord(start_, streams_[sides.front()]));
      if (sides.size() > 1) ok(cudaStreamWaitEvent(streams_[sides.back()], start_, 0));
      const double begin = now_microseconds();
      for (const std::size_t side : sides) ok(enqueue(side));
      const double end = now_microseconds();
      double longest = 0;
      for (const std::size_t side : sides) ok(cudaEventRecord(ends_[side], streams_[side]));
      for (const std::size_t side : sides) {
        // Also after an error: held memory is freed now.
        ok(cudaStreamSynchronize(streams_[side]));
        float milliseconds = 0;
        ok(cudaEventElapsedTime(&milliseconds, start_, ends_[side]));
        longest = std::max(longest, 1e3 * static_cast<double>(milliseconds));
      }
      over();
      if (round == 0) continue;
      device.push_back(longest);
      calls.push_back(end - begin);
    }
    return {median(std::move(device)), median(std::move(calls))};
  }
  /// GB/s of so many bytes per round.
  template <class Enqueue>
  double rate(std::size_t num_bytes, std::size_t num_repeats, Sides sides, Enqueue enqueue) {
    return gb_per_second(num_bytes, repeat(num_repeats, sides, enqueue).device_microseconds);
  }

  static constexpr Sides kFirst{kSides, 1};

  void* gpu_[kNumDirections] = {};
  PinnedMemory cpu_[kNumDirections];
  PinnedMemory found_;
  PinnedPool pool_;
  cudaStream_t streams_[kNumDirections] = {};
  cudaEvent_t start_ = nullptr;
  cudaEvent_t ends_[kNumDirections] = {};
  cudaError_t code_ = cudaSuccess;
};

std::vector<Row> rows_of(const FigureOptions& options) {
  std::vector<Row> rows;
  for (const std::size_t num_blocks : options.num_blocks) {
    for (const std::size_t block_bytes : options.block_bytes) {
      if (num_blocks * block_bytes > options.bytes_max) continue;
      for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
        for (const Way& way : kWays) {
          const auto kind = static_cast<CopyPathKind>(path);
          if (way.in_any_order && kind != CopyPathKind::kBatched) continue;
          rows.push_back({kind, &way, block_bytes, num_blocks});
        }
      }
    }
  }
  return rows;
}

cudaError_t describe(Figures& figures) {
  cudaError_t code = cudaRuntimeGetVersion(&figures.runtime_version);
  if (code == cudaSuccess) code = cudaDriverGetVersion(&figures.driver_version);
  constexpr std::pair<const char*, cudaDeviceAttr> kAttributes[] = {
      {"MultiProcessorCount", cudaDevAttrMultiProcessorCount},
      {"AsyncEngineCount", cudaDevAttrAsyncEngineCount},
      {"CanMapHostMemory", cudaDevAttrCanMapHostMemory},
      {"UnifiedAddressing", cudaDevAttrUnifiedAddressing},
      {"PageableMemoryAccess", cudaDevAttrPageableMemoryAccess},
      {"CanUseHostPointerForRegisteredMem", cudaDevAttrCanUseHostPointerForRegisteredMem},
      {"HostRegisterSupported", cudaDevAttrHostRegisterSupported},
      {"HostNumaId", cudaDevAttrHostNumaId},
  };
  for (const auto& [name, attribute] : kAttributes) {
    int value = 0;
    if (code == cudaSuccess) code = cudaDeviceGetAttribute(&value, attribute, 0);
    if (code == cudaSuccess) figures.attributes.emplace_back(name, value);
  }
  return code;
}

cudaError_t measure_copies(const FigureOptions& options, double begin, Figures& figures) {
  const std::vector<Row> rows = rows_of(options);
  std::size_t size = options.large_bytes;
  std::size_t slots_max = 1;
  for (const Row& row : rows) {
    size = std::max(size, row.num_blocks * row.stride());
    slots_max = std::max(slots_max, row.num_blocks);
  }
  Bench bench;
  if (bench.open(size, size, slots_max) != cudaSuccess) return bench.code();
  for (const Way& way : kWays) {
    if (way.in_any_order) continue;
    figures.*way.ceiling = bench.large_copy(options.large_bytes, way.sides, options.num_repeats);
  }
  for (const Row& row : rows) {
    if (bench.code() != cudaSuccess) break;
    if (now_microseconds() - begin > 1e6 * options.seconds_max) {
      ++figures.num_rows_left_out;
      continue;
    }
    CopyFigure figure = bench.measure(row, options.num_repeats);
    const double ceiling = figures.*row.way->ceiling;
    figure.of_ceiling = ceiling > 0 ? figure.gb_per_second / ceiling : 0;
    if (bench.code() == cudaSuccess) figures.copies.push_back(std::move(figure));
  }
  return bench.code();
}

cudaError_t measure_checks(const FigureOptions& options, Figures& figures) {
  constexpr std::size_t kSlot = 65536;
  const std::size_t size = options.check_bytes / kSlot * kSlot;
  if (size == 0) return cudaSuccess;
  Bench bench;
  if (bench.open(size, 0, size / kSlot) != cudaSuccess) return bench.code();
  bench.measure_kernels(size, kSlot, options.num_repeats, figures);
  return bench.code();
}

}  // namespace

bool RaceFigure::is_as_expected() const {
  if (outcome.has_timed_out || !outcome.refusal.empty()) return false;
  if (has_barrier) return !is_corrupt() && !outcome.is_early;
  return is_corrupt() || !race.must_corrupt;
}

std::size_t Figures::num_failures() const {
  std::size_t num_failed = num_wrong_in_check > 0 ? 1 : 0;
  for (const CopyFigure& figure : copies) num_failed += figure.num_wrong_bytes > 0 ? 1 : 0;
  for (const RaceFigure& race : races) num_failed += race.is_as_expected() ? 0 : 1;
  return num_failed;
}

cudaError_t measure_rates(const FigureOptions& options, Figures& figures) {
  const double begin = now_microseconds();
  cudaError_t code = measure_checks(options, figures);
  if (code == cudaSuccess) code = measure_copy_costs(options.calibration, figures.calibration);
  // Last: copies get the time that is left.
  if (code == cudaSuccess) code = measure_copies(options, begin, figures);
  return code;
}

cudaError_t measure_gpu(const FigureOptions& options, Figures& figures) {
  figures = {};
  cudaError_t code = describe(figures);
  for (const HeldRace& race : held_races()) {
    for (const CopyPathKind path : race.paths) {
      for (const bool has_barrier : {true, false}) {
        if (code != cudaSuccess) return code;
        figures.races.push_back(
            {race, path, has_barrier, run_race(race, path, has_barrier, options.race_page_bytes)});
        code = figures.races.back().outcome.code;
      }
    }
  }
  return code == cudaSuccess ? measure_rates(options, figures) : code;
}

}  // namespace kvfence::cuda
