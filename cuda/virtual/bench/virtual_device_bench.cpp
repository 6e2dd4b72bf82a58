/// Copies of 4 KiB per second through the virtual device, with the checker on and off: the cost of
/// a test that uses it.

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <array>
#include <vector>

#include "contract/core/check.h"
#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {
namespace {

constexpr std::size_t kBlockBytes = 4096;
constexpr std::size_t kNumBlocks = 256;
constexpr std::size_t kCopiesPerStep = 16;

void ok(cudaError_t code) { KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code)); }

struct Setup {
  explicit Setup(const benchmark::State& state)
      : device({.schedule = static_cast<Schedule>(state.range(0)),
                .checks_happens_before = state.range(1) != 0}),
        installed(device) {
    void* memory = nullptr;
    ok(cudaMalloc(&memory, kNumBlocks * kBlockBytes));
    gpu = static_cast<std::byte*>(memory);
    ok(cudaHostAlloc(&memory, kNumBlocks * kBlockBytes, cudaHostAllocDefault));
    cpu = static_cast<std::byte*>(memory);
    for (cudaStream_t& stream : streams) {
      ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  void finish(benchmark::State& state) {
    KVFENCE_CHECK(device.is_clean(), device.report());
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kCopiesPerStep));
    state.SetLabel(std::string(to_text(static_cast<Schedule>(state.range(0)))) +
                   (state.range(1) != 0 ? ", checked" : ", unchecked"));
  }

  Device device;
  Installed installed;
  std::byte* gpu = nullptr;
  std::byte* cpu = nullptr;
  std::array<cudaStream_t, 2> streams{};
  cudaEvent_t event = nullptr;
};

/// A step: stores on one stream, then loads of the same blocks on another, and one wait of the
/// host.
void BM_Loop(benchmark::State& state) {
  Setup s(state);
  std::size_t block = 0;
  for (auto _ : state) {
    const std::size_t first = block;
    for (std::size_t copy = 0; copy < kCopiesPerStep / 2; ++copy) {
      ok(cudaMemcpyAsync(s.cpu + block * kBlockBytes, s.gpu + block * kBlockBytes, kBlockBytes,
                         cudaMemcpyDeviceToHost, s.streams[0]));
      block = (block + 1) % kNumBlocks;
    }
    ok(cudaEventRecord(s.event, s.streams[0]));
    ok(cudaStreamWaitEvent(s.streams[1], s.event, 0));
    for (std::size_t copy = 0; copy < kCopiesPerStep / 2; ++copy) {
      const std::size_t again = (first + copy) % kNumBlocks;
      ok(cudaMemcpyAsync(s.gpu + again * kBlockBytes, s.cpu + again * kBlockBytes, kBlockBytes,
                         cudaMemcpyHostToDevice, s.streams[1]));
    }
    ok(cudaStreamSynchronize(s.streams[1]));
  }
  s.finish(state);
}

/// A step: one batch, one wait of the host.
void BM_Batch(benchmark::State& state) {
  Setup s(state);
  std::vector<void*> dsts(kCopiesPerStep);
  std::vector<const void*> srcs(kCopiesPerStep);
  std::vector<std::size_t> sizes(kCopiesPerStep, kBlockBytes);
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t start = 0;
  std::size_t block = 0;
  for (auto _ : state) {
    for (std::size_t copy = 0; copy < kCopiesPerStep; ++copy) {
      dsts[copy] = s.cpu + block * kBlockBytes;
      srcs[copy] = s.gpu + block * kBlockBytes;
      block = (block + 1) % kNumBlocks;
    }
    ok(cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), kCopiesPerStep, &attributes,
                            &start, 1, s.streams[0]));
    ok(cudaStreamSynchronize(s.streams[0]));
  }
  s.finish(state);
}

void each_schedule(benchmark::internal::Benchmark* benchmark) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                  Schedule::kPriority, Schedule::kCommanded}) {
    for (const int checks : {1, 0}) benchmark->Args({static_cast<int>(schedule), checks});
  }
}

BENCHMARK(BM_Loop)->Apply(each_schedule);
BENCHMARK(BM_Batch)->Apply(each_schedule);

}  // namespace
}  // namespace kvfence::virtual_device

BENCHMARK_MAIN();
