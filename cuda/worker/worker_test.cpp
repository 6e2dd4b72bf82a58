/// Goal: the worker refuses what it cannot do, chooses paths, cuts batches, waits for the transfers
/// asked for, and gives everything back.

#include "cuda/worker/worker.h"

#include <gtest/gtest.h>

#include "cuda/worker/worker_test_rig.h"

namespace kvfence::cuda {
namespace {

using virtual_device::Schedule;

TEST(Worker, TheCalibrationChoosesThePath) {
  RigOptions options;
  options.worker.calibration = CopyCalibration({
      {Direction::kStore, 64, 1, {9, 1, 9, 9}},
      {Direction::kStore, 64, 8, {9, 9, 9, 1}},
      {Direction::kLoad, 64, 1, {9, 9, 1, 9}},
      {Direction::kLoad, 64, 8, {1, 9, 9, 9}},
  });
  WorkerRig rig(options);
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
  ASSERT_EQ(rig.store(2, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2})), ErrorCode::kNone);
  rig.worker().begin_step();
  ASSERT_EQ(rig.poll(2).size(), 2U);
  const cudaEvent_t after = rig.record(rig.compute_stream());
  ASSERT_EQ(rig.load(3, WorkerRig::spec({1}, {0}), {after}), ErrorCode::kNone);
  ASSERT_EQ(rig.load(4, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2}), {after}), ErrorCode::kNone);
  ASSERT_EQ(rig.poll(2).size(), 2U);
  EXPECT_EQ(rig.worker().counters().num_by_path,
            (std::array<std::uint64_t, kNumCopyPaths>{1, 1, 1, 1}));
  rig.check_all();
  EXPECT_TRUE(rig.wrong().empty());
}

TEST(Worker, ABlockMayBeStoredTwice) {
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    RigOptions options;
    options.worker.only_path = static_cast<CopyPathKind>(path);
    WorkerRig rig(options);
    // Equally far apart at the destination, and not at all at the source.
    ASSERT_EQ(rig.store(1, WorkerRig::spec({3, 3, 3}, {0, 2, 4})), ErrorCode::kNone);
    const auto results = rig.worker().shutdown();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_TRUE(results[0].succeeded()) << to_text(static_cast<CopyPathKind>(path));
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty());
  }
}

TEST(Worker, KernelsTakeOnlyWhatIsAligned) {
  const auto kernel_can_copy = [](CopyDescriptor copy) {
    const CopyDescriptor copies[] = {{4096, 8192, 32}, copy};
    return can_copy(CopyPathKind::kKernel, copies);
  };
  EXPECT_TRUE(kernel_can_copy({4096 + 64, 8192 + 64, 48}));
  EXPECT_FALSE(kernel_can_copy({4096 + 64, 8192 + 64, 40}));
  EXPECT_FALSE(kernel_can_copy({4096 + 72, 8192 + 64, 48}));
  EXPECT_FALSE(kernel_can_copy({4096 + 64, 8192 + 72, 48}));
}

TEST(Worker, AKernelIsReplacedWherePiecesAreNotAligned) {
  virtual_device::Device device{virtual_device::Options{}};
  const virtual_device::Installed installed(device);
  void* gpu = nullptr;
  ok(cudaMalloc(&gpu, 256));
  cudaStream_t compute = nullptr;
  ok(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  const auto opened =
      Worker::open({.gpu_layout = {.tensors = {{reinterpret_cast<std::uintptr_t>(gpu), 4, 40, 40}},
                                   .groups = {{{0, 40}}}},
                    .num_cpu_blocks = 2,
                    .compute_stream = compute,
                    .only_path = CopyPathKind::kKernel});
  ASSERT_EQ(opened.refusal, "");
  ASSERT_EQ(opened.worker->store(1, WorkerRig::spec({1}, {1})), ErrorCode::kNone);
  const auto results = opened.worker->shutdown();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].code, cudaSuccess);
}

TEST(Worker, HostMemoryMayNeedMoreThan32Bits) {
  constexpr std::size_t kPage = std::size_t{1} << 20;
  const KVLayout layout{.tensors = {{0, 8, kPage, kPage}, {8 * kPage, 8, kPage, kPage}},
                        .groups = {{{0, 16}, {1, 16}}}};
  EXPECT_EQ(cpu_memory_bytes(layout, 10'000, 4), 83'886'080'000U);
}

TEST(Worker, BuffersAreUsedAgainWhereTheyAreLargeEnough) {
  virtual_device::Device device{virtual_device::Options{}};
  const virtual_device::Installed installed(device);
  PinnedPool pool;
  PinnedMemory small;
  PinnedMemory large;
  ok(pool.take(100, small));
  const std::byte* address = small.host_address();
  pool.give(std::move(small));
  ok(pool.take(10000, large));
  EXPECT_GE(large.size(), 10000U);
  EXPECT_EQ(pool.num_unused(), 1U);
  ok(pool.take(200, small));
  EXPECT_EQ(small.host_address(), address);
  EXPECT_EQ(pool.num_unused(), 0U);
}

TEST(Worker, WaitIsForNoOtherTransfer) {
  RigOptions options;
  options.device.schedule = Schedule::kLazy;
  WorkerRig rig(options);
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
  ASSERT_EQ(rig.load(2, WorkerRig::spec({3}, {3}), {rig.record(rig.compute_stream())}),
            ErrorCode::kNone);
  const JobId job_ids[] = {1};
  ok(rig.worker().wait(job_ids));
  std::vector<TransferResult> results;
  rig.worker().poll(results);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].job_id, 1U);
  EXPECT_EQ(rig.poll(1).size(), 1U);
}

TEST(Worker, BatchesAreCut) {
  using virtual_device::Function;
  for (const std::size_t entries_max : {1U, 2U, 3U, 8U}) {
    RigOptions options;
    options.worker.only_path = CopyPathKind::kBatched;
    options.worker.copy.batch_entries_max = entries_max;
    options.device.batch_entries_max = entries_max;
    WorkerRig rig(options);
    // Two tensors, four blocks apart from each other.
    ASSERT_EQ(rig.store(1, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2})), ErrorCode::kNone);
    rig.worker().begin_step();
    const auto results = rig.poll(1);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_TRUE(results[0].succeeded());
    EXPECT_EQ(results[0].num_copies, 8U);
    EXPECT_EQ(results[0].num_bytes, 8 * 64U);
    const auto calls = rig.device().counters().num_calls;
    EXPECT_EQ(calls[static_cast<std::size_t>(Function::kMemcpyBatchAsync)],
              (8 + entries_max - 1) / entries_max);
  }
}

TEST(Worker, RefusesAndNothingHasChanged) {
  WorkerRig rig(RigOptions{});
  const cudaEvent_t after = rig.record(rig.compute_stream());
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
  const TransferSpec other = WorkerRig::spec({3}, {3});
  EXPECT_EQ(rig.worker().store(1, other), ErrorCode::kJobInFlight);
  EXPECT_EQ(rig.worker().load(2, other, {}), ErrorCode::kNotOrdered);
  const cudaEvent_t with_none[] = {after, nullptr};
  EXPECT_EQ(rig.worker().load(2, other, with_none), ErrorCode::kNotOrdered);
  const cudaEvent_t events[] = {after};
  // Into the source of a deferred store, and from its destination.
  EXPECT_EQ(rig.worker().load(2, WorkerRig::spec({0}, {3}), events), ErrorCode::kBlockInFlight);
  EXPECT_EQ(rig.worker().load(2, WorkerRig::spec({3}, {0}), events), ErrorCode::kBlockInFlight);
  EXPECT_EQ(rig.worker().store(2, WorkerRig::spec({8}, {0})), ErrorCode::kUnknownBlock);
  EXPECT_EQ(rig.worker().num_deferred(), 1U);
  EXPECT_EQ(rig.worker().num_in_flight(), 0U);
  rig.worker().begin_step();
  EXPECT_EQ(rig.poll(1).size(), 1U);
  // An id and blocks that are free again.
  EXPECT_EQ(rig.load(1, WorkerRig::spec({3}, {0}), {after}), ErrorCode::kNone);
  EXPECT_EQ(rig.worker().shutdown().size(), 1U);
  EXPECT_EQ(rig.worker().store(5, other), ErrorCode::kShutDown);
  EXPECT_TRUE(rig.worker().shutdown().empty());
  rig.check_all();
  EXPECT_TRUE(rig.wrong().empty());
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
}

TEST(Worker, AllIsGivenBack) {
  for (const bool has_given_memory : {false, true}) {
    RigOptions options;
    options.has_given_memory = has_given_memory;
    options.worker.only_path = CopyPathKind::kKernel;
    WorkerRig rig(options);
    const std::size_t num_streams = rig.device().num_streams();
    for (JobId job_id = 1; job_id <= 3; ++job_id) {
      const auto block = static_cast<std::uint32_t>(job_id);
      ASSERT_EQ(rig.store(job_id, WorkerRig::spec({block}, {block})), ErrorCode::kNone);
    }
    EXPECT_EQ(rig.worker().shutdown().size(), 3U);
    EXPECT_EQ(rig.device().num_streams(), num_streams - 2);
    // The GPU's memory is the rig's.
    EXPECT_EQ(rig.device().num_allocations(), 1U);
    EXPECT_EQ(rig.device().num_events(), 0U);
    EXPECT_EQ(rig.worker().counters().num_submitted, 3U);
    rig.close();
    EXPECT_EQ(rig.device().num_allocations(), 1U);
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(Worker, OptionsThatMakeNoSenseAreRefused) {
  const auto refusal = [](auto change) {
    RigOptions options;
    change(options.worker);
    return WorkerRig(options).refusal();
  };
  EXPECT_EQ(refusal([](WorkerOptions& o) { o.copy.batch_entries_max = 0; }),
            "batch_entries_max is 0");
  virtual_device::Device device{virtual_device::Options{}};
  const virtual_device::Installed installed(device);
  const KVLayout layout{.tensors = {{4096, 8, 64, 64}}, .groups = {{{0, 64}}}};
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const WorkerOptions right{.gpu_layout = layout, .num_cpu_blocks = 2, .compute_stream = stream};
  EXPECT_EQ(Worker::open(right).refusal, "");
  WorkerOptions wrong = right;
  wrong.compute_stream = nullptr;
  EXPECT_NE(Worker::open(wrong).refusal.find("default stream"), std::string::npos);
  wrong = right;
  wrong.gpu_layout = {};
  EXPECT_EQ(Worker::open(wrong).refusal, "a layout without tensors");
  wrong = right;
  wrong.num_cpu_blocks = 0;
  EXPECT_EQ(Worker::open(wrong).refusal, "no host blocks");
  wrong = right;
  wrong.block_size_factor = 0;
  EXPECT_EQ(Worker::open(wrong).refusal, "block_size_factor is 0");
  wrong = right;
  wrong.gpu_layout.tensors.push_back({8192, 4, 64, 64});
  EXPECT_EQ(Worker::open(wrong).refusal, "tensors of different numbers of blocks");
  wrong = right;
  wrong.gpu_layout.tensors[0].page_bytes = 65;
  EXPECT_EQ(Worker::open(wrong).refusal, "pages overlap");
  wrong = right;
  wrong.gpu_layout.groups[0][0].tensor_index = 1;
  EXPECT_EQ(Worker::open(wrong).refusal, "a group of a tensor that is not there");
  wrong = right;
  wrong.gpu_layout.groups[0][0].unpadded_page_bytes = 65;
  EXPECT_EQ(Worker::open(wrong).refusal, "an unpadded page that is longer than the page");
  wrong = right;
  std::array<std::byte, 100> memory{};
  wrong.cpu_memory = memory;
  EXPECT_EQ(Worker::open(wrong).refusal, "host memory of 100 bytes, expected 128");
  // The product wraps around to 0 bytes, which would do.
  wrong.num_cpu_blocks = std::size_t{1} << 58;
  EXPECT_EQ(Worker::open(wrong).refusal, "more host blocks than can have addresses");
}

}  // namespace
}  // namespace kvfence::cuda
