// How fast the file tier moves blocks: jobs of many blocks over a pool of threads, on files in
// TMPDIR, or in memory where that is not set.
//
// Bytes per second are those of the blocks. A store makes new files, without fsync; a load reads
// files that were just written, so the system's page cache serves them: what is measured is the
// tier, not a disk. The CPU column is that of all threads.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <benchmark/benchmark.h>

#include "optimized/files/file_tier.h"
#include "optimized/files/posix_file_operations.h"
#include "optimized/files/test_folder.h"

namespace kvfence {
namespace {

constexpr std::uint32_t kBlocks = 32;

/// A tier over a folder of its own, and a job with all slots.
struct Setup {
  explicit Setup(benchmark::State& state)
      : folder("file_tier_bench"),
        config(optimized::test_config(folder.path())),
        slots(static_cast<std::size_t>(state.range(0)), kBlocks) {
    config.n_read_threads = static_cast<std::uint32_t>(state.range(1));
    for (SlotId slot = 0; slot < kBlocks; ++slot) {
      slots.fill(slot, slot);
      keys.push_back(optimized::nearby_key(slot));
      numbers.push_back(slot);
    }
    views.assign(keys.begin(), keys.end());
  }

  /// Whether the job succeeded.
  bool finish(optimized::FileTier& tier) {
    tier.wait_idle();
    std::vector<JobResult> results;
    tier.get_finished_jobs(results);
    return results.size() == 1 && results[0].success;
  }

  optimized::TestFolder folder;
  FileTierConfig config;
  optimized::TestSlots slots;
  optimized::PosixFileOperations files;
  std::vector<OffloadKey> keys;
  std::vector<OffloadKeyView> views;
  std::vector<SlotId> numbers;
};

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * kBlocks * state.range(0));
}

void BM_Store(benchmark::State& state) {
  Setup setup(state);
  optimized::FileTier tier(setup.config, setup.slots.view(), setup.files);
  const FileMapper mapper(setup.config.files);
  bool success = true;
  for (auto _ : state) {
    tier.submit_store({0, setup.views, setup.numbers, {"r"}});
    success = setup.finish(tier) && success;
    state.PauseTiming();
    for (const OffloadKey& key : setup.keys) std::filesystem::remove(mapper.get_file_name(key));
    state.ResumeTiming();
  }
  if (!success) state.SkipWithError("a store failed: is the disk full?");
  count_bytes(state);
}

void BM_Load(benchmark::State& state) {
  Setup setup(state);
  optimized::FileTier tier(setup.config, setup.slots.view(), setup.files);
  tier.submit_store({0, setup.views, setup.numbers, {"r"}});
  bool success = setup.finish(tier);
  for (auto _ : state) {
    tier.submit_load({0, setup.views, setup.numbers, {"r"}});
    success = setup.finish(tier) && success;
  }
  if (!success) state.SkipWithError("a job failed: is the disk full?");
  count_bytes(state);
}

void each_size(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"block_bytes", "threads"})->MeasureProcessCPUTime()->UseRealTime();
  for (std::int64_t bytes : {16 << 10, 256 << 10, 1 << 20}) {
    for (std::int64_t threads : {1, 2}) bench->Args({bytes, threads});
  }
}

BENCHMARK(BM_Store)->Apply(each_size);
BENCHMARK(BM_Load)->Apply(each_size);

}  // namespace
}  // namespace kvfence

BENCHMARK_MAIN();
