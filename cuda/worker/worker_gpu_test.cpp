/// Goal: the worker's objects drive a GPU through the real runtime. Each copy path moves blocks
/// there and back, byte for byte; without a driver there is a reason instead of a worker.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "contract/worker/content_report.h"
#include "cuda/figures/devices.h"
#include "cuda/figures/needs_gpu_test_support.h"
#include "cuda/worker/worker.h"

namespace kvfence::cuda {
namespace {

constexpr std::size_t kPage = 16384;
constexpr std::size_t kNumGpuBlocks = 64;
constexpr std::size_t kNumCpuBlocks = 32;
constexpr std::uint64_t kRunSeed = 3;

#define KVFENCE_ASSERT_OK(call) ASSERT_EQ(call, cudaSuccess)

void round_trip(CopyPathKind path) {
  void* memory = nullptr;
  cudaStream_t compute = nullptr;
  cudaEvent_t after = nullptr;
  KVFENCE_ASSERT_OK(cudaMalloc(&memory, kNumGpuBlocks * kPage));
  KVFENCE_ASSERT_OK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  KVFENCE_ASSERT_OK(cudaEventCreateWithFlags(&after, cudaEventDisableTiming));
  std::vector<std::byte> expected(kNumGpuBlocks * kPage);
  const auto copy_all = [&](void* dst, const void* src) {
    const cudaError_t code = cudaMemcpyAsync(dst, src, expected.size(), cudaMemcpyDefault, compute);
    return code == cudaSuccess ? cudaStreamSynchronize(compute) : code;
  };
  for (std::size_t block = 0; block < kNumGpuBlocks; ++block) {
    content::fill({expected.data() + block * kPage, kPage}, {block, 1}, kRunSeed);
  }
  KVFENCE_ASSERT_OK(copy_all(memory, expected.data()));

  const std::size_t half = kNumGpuBlocks / 2;
  Worker::Opened opened =
      Worker::open({.gpu_layout = {.tensors = {{reinterpret_cast<std::uintptr_t>(memory),
                                                kNumGpuBlocks, kPage, kPage}},
                                   .groups = {{{0, kPage - 64}}}},
                    .num_cpu_blocks = kNumCpuBlocks,
                    .compute_stream = compute,
                    .block_size_factor = 2,
                    .only_path = path});
  ASSERT_EQ(opened.refusal, "");
  Worker& worker = *opened.worker;
  // Every other block of the first half; then into the second half, backwards.
  TransferSpec store{.group_sizes = {half / 2}, .block_indices = {3}};
  TransferSpec load = store;
  for (std::size_t index = 0; index < half / 2; ++index) {
    const std::size_t from = 2 * index;
    const std::size_t to = kNumGpuBlocks - 1 - index;
    store.gpu_blocks.push_back(static_cast<std::uint32_t>(from));
    load.gpu_blocks.push_back(static_cast<std::uint32_t>(to));
    std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(from * kPage), kPage - 64,
                expected.begin() + static_cast<std::ptrdiff_t>(to * kPage));
  }
  for (std::uint32_t row = 0; row <= half / 4; ++row) store.cpu_blocks.push_back(row * 3 % 32);
  load.cpu_blocks = store.cpu_blocks;
  ASSERT_EQ(worker.store(1, store), ErrorCode::kNone);
  const JobId stored[] = {1};
  KVFENCE_ASSERT_OK(worker.wait(stored));
  std::vector<TransferResult> results;
  while (results.empty()) worker.poll(results);
  EXPECT_TRUE(results[0].succeeded()) << cudaGetErrorName(results[0].code);
  KVFENCE_ASSERT_OK(cudaEventRecord(after, compute));
  const cudaEvent_t load_after[] = {after};
  ASSERT_EQ(worker.load(2, load, load_after), ErrorCode::kNone);
  results = worker.shutdown();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].succeeded()) << cudaGetErrorName(results[0].code);

  std::vector<std::byte> actual(expected.size());
  KVFENCE_ASSERT_OK(copy_all(actual.data(), memory));
  EXPECT_TRUE(actual == expected);
  KVFENCE_ASSERT_OK(cudaEventDestroy(after));
  KVFENCE_ASSERT_OK(cudaStreamDestroy(compute));
  KVFENCE_ASSERT_OK(cudaFree(memory));
}

TEST(WorkerOnGpu, EveryPathTakesBlocksThereAndBack) {
  KVFENCE_NEEDS_GPU();
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    SCOPED_TRACE(to_text(static_cast<CopyPathKind>(path)));
    round_trip(static_cast<CopyPathKind>(path));
  }
}

TEST(WorkerOnGpu, CostsAreMeasured) {
  KVFENCE_NEEDS_GPU();
  CopyCalibration calibration;
  KVFENCE_ASSERT_OK(measure_copy_costs({}, calibration));
  std::cout << find_devices().devices[0].name << "\n" << calibration.to_text();
}

TEST(WorkerOnGpu, WithoutADriverThereIsAReason) {
  if (!find_devices().devices.empty()) return;  // the others run
  const KVLayout layout{.tensors = {{4096, 8, 64, 64}}, .groups = {{{0, 64}}}};
  const Worker::Opened opened =
      Worker::open({.gpu_layout = layout,
                    .num_cpu_blocks = 2,
                    .compute_stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{4096})});
  EXPECT_EQ(opened.worker, nullptr);
  EXPECT_EQ(opened.refusal.rfind("host memory could not be pinned: cudaError", 0), 0U)
      << opened.refusal;
}

}  // namespace
}  // namespace kvfence::cuda
