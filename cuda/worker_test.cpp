/// Goal: whatever the layout, the copy path, the factor and the schedule, exactly the right bytes
/// arrive: neighbours, padding and sources stay as they were, and nothing races.

#include "cuda/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "cuda/worker_test_rig.h"

namespace kvfence::cuda {
namespace {

using virtual_device::Schedule;

constexpr Schedule kSchedules[] = {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                   Schedule::kPriority, Schedule::kCommanded};
constexpr std::size_t kSteps = 30;
constexpr std::uint64_t kSeeds = 4;

struct Reached {
  std::size_t num_programs = 0;
  std::size_t num_stores = 0;
  std::size_t num_loads = 0;
  std::size_t num_refused = 0;
  std::size_t num_partial = 0;  ///< transfers that begin inside a host block
  std::uint64_t num_pages = 0;
  std::uint64_t num_copies = 0;
  std::array<std::uint64_t, kNumCopyPaths> num_by_path = {};
};

/// A scheduler that touches only what no transfer touches, as far as it has been told.
class Program {
 public:
  Program(WorkerRig& rig, FirstBlockRule rule, std::uint64_t seed)
      : rig_(rig), rule_(rule), random_(seed) {}

  void run(Reached& reached) {
    for (std::size_t step = 0; step < kSteps; ++step) {
      rig_.worker().begin_step();
      for (std::size_t kernel = 0; kernel < 2; ++kernel) run_kernel();
      transfer(draw(2) == 0 ? Direction::kStore : Direction::kLoad, reached);
      if (draw(2) == 0) take_results();
      if (draw(3) == 0) rig_.device().yield();
      if (draw(3) == 0) rig_.advance_if_commanded();
    }
    if (draw(2) == 0) wait_for_all();
    const auto results = rig_.worker().shutdown();
    for (const TransferResult& result : results) take(result);
    ASSERT_TRUE(in_flight_.empty());
    ok(cudaDeviceSynchronize());
    rig_.check_all();
    const auto& counters = rig_.worker().counters();
    reached.num_pages += counters.num_pages;
    reached.num_copies += counters.num_copies;
    for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
      reached.num_by_path[path] += counters.num_by_path[path];
    }
    ++reached.num_programs;
  }

 private:
  std::size_t draw(std::size_t bound) { return random_() % bound; }
  std::size_t num_groups() const { return rig_.layout().groups.size(); }

  /// Groups that share a tensor share no block.
  std::vector<std::uint32_t> free_blocks(std::size_t group) {
    const std::size_t share = kRigGpuBlocks / num_groups();
    std::vector<std::uint32_t> blocks;
    for (std::size_t block = group * share; block < (group + 1) * share; ++block) {
      if (!busy_gpu_.contains(static_cast<std::uint32_t>(block))) {
        blocks.push_back(static_cast<std::uint32_t>(block));
      }
    }
    std::shuffle(blocks.begin(), blocks.end(), random_);
    return blocks;
  }

  void run_kernel() {
    const std::size_t group = draw(num_groups());
    const auto blocks = free_blocks(group);
    if (blocks.empty()) return;
    if (draw(2) == 0) {
      rig_.compute(group, blocks[0]);
    } else {
      rig_.attend(group, blocks[0]);
    }
  }

  void transfer(Direction direction, Reached& reached) {
    const std::size_t factor = rig_.factor();
    const bool is_store = direction == Direction::kStore;
    TransferSpec spec;
    std::size_t num_rows = 0;
    bool is_partial = false;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      auto blocks = free_blocks(group);
      std::size_t count = draw(std::min<std::size_t>(blocks.size(), 4) + 1);
      std::size_t skipped = 0;
      const std::size_t index = draw(9);
      if (rule_ == FirstBlockRule::kByIndex) {
        skipped = index % factor;
      } else if (is_store) {
        count -= count % factor;
      } else {
        skipped = (factor - count % factor) % factor;
      }
      if (draw(2) == 0) std::sort(blocks.begin(), blocks.begin() + static_cast<int>(count));
      spec.gpu_blocks.insert(spec.gpu_blocks.end(), blocks.begin(),
                             blocks.begin() + static_cast<int>(count));
      spec.group_sizes.push_back(count);
      spec.block_indices.push_back(index);
      is_partial = is_partial || (count > 0 && skipped > 0);
      if (count > 0) num_rows += (count + skipped + factor - 1) / factor;
    }
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < kRigCpuBlocks; ++row) {
      if (!busy_cpu_.contains(row)) rows.push_back(row);
    }
    if (draw(2) == 0) std::shuffle(rows.begin(), rows.end(), random_);
    if (rows.size() < num_rows) return;
    rows.resize(num_rows);
    spec.cpu_blocks = rows;

    const JobId job_id = ++last_job_id_;
    if (is_store) {
      ASSERT_EQ(rig_.store(job_id, spec), "");
      ++reached.num_stores;
    } else {
      ASSERT_EQ(rig_.load(job_id, spec, {rig_.record(rig_.compute_stream())}), "");
      ++reached.num_loads;
    }
    reached.num_partial += is_partial ? 1 : 0;
    busy_gpu_.insert(spec.gpu_blocks.begin(), spec.gpu_blocks.end());
    busy_cpu_.insert(spec.cpu_blocks.begin(), spec.cpu_blocks.end());
    in_flight_[job_id] = {direction, spec};
  }

  void wait_for_all() {
    std::vector<JobId> job_ids;
    for (const auto& [job_id, transfer] : in_flight_) job_ids.push_back(job_id);
    ASSERT_EQ(rig_.worker().wait(job_ids), cudaSuccess);
    take_results();
    ASSERT_TRUE(in_flight_.empty());
  }

  void take_results() {
    std::vector<TransferResult> results;
    rig_.worker().poll(results);
    for (const TransferResult& result : results) take(result);
  }

  void take(const TransferResult& result) {
    const auto found = in_flight_.find(result.job_id);
    ASSERT_NE(found, in_flight_.end()) << "reported twice, or never submitted";
    ASSERT_TRUE(result.succeeded());
    ASSERT_EQ(result.direction, found->second.first);
    // Results of a direction are in the order of submission.
    ASSERT_GT(result.job_id, last_result_[static_cast<std::size_t>(result.direction)]);
    last_result_[static_cast<std::size_t>(result.direction)] = result.job_id;
    const TransferSpec& spec = found->second.second;
    for (const std::uint32_t block : spec.gpu_blocks) busy_gpu_.erase(block);
    for (const std::uint32_t row : spec.cpu_blocks) {
      busy_cpu_.erase(row);
      if (rig_.worker().num_in_flight() > 0 || draw(2) == 0) continue;
      if (draw(2) == 0) rig_.write_cpu(row);
    }
    in_flight_.erase(found);
  }

  WorkerRig& rig_;
  FirstBlockRule rule_;
  std::mt19937_64 random_;
  std::set<std::uint32_t> busy_gpu_;
  std::set<std::uint32_t> busy_cpu_;
  std::map<JobId, std::pair<Direction, TransferSpec>> in_flight_;
  std::array<JobId, kNumDirections> last_result_ = {};
  JobId last_job_id_ = 0;
};

void run(const RigOptions& options, std::uint64_t seed, Reached& reached) {
  WorkerRig rig(options);
  ASSERT_TRUE(rig.is_open()) << rig.refusal();
  Program(rig, options.worker.plan.first_block_rule, seed).run(reached);
  ASSERT_TRUE(rig.device().is_clean()) << rig.device().report();
  ASSERT_TRUE(rig.wrong().empty()) << rig.wrong().front();
  ASSERT_GT(rig.num_checks(), 1U);
}

TEST(Worker, BytesAreExactForEveryLayoutPathFactorAndSchedule) {
  const auto begin = std::chrono::steady_clock::now();
  Reached reached;
  const std::size_t num_layouts = all_layouts(0).size();
  for (std::size_t layout = 0; layout < num_layouts; ++layout) {
    for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
      for (const std::size_t factor : {1U, 2U, 3U}) {
        for (const Schedule schedule : kSchedules) {
          for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
            SCOPED_TRACE(all_layouts(0)[layout].name + ", " +
                         to_text(static_cast<CopyPathKind>(path)) + ", factor " +
                         std::to_string(factor) + ", " + virtual_device::to_text(schedule) +
                         ", seed " + std::to_string(seed));
            RigOptions options;
            options.device.schedule = schedule;
            options.device.seed = seed;
            options.layout = layout;
            options.worker.only_path = static_cast<CopyPathKind>(path);
            options.worker.plan.block_size_factor = factor;
            options.worker.copy.batch_entries_max = seed;
            run(options, seed * 1000 + layout * 100 + path * 10 + factor, reached);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
  for (const std::uint64_t num_transfers : reached.num_by_path) EXPECT_GT(num_transfers, 1000U);
  EXPECT_GT(reached.num_partial, 1000U);
  EXPECT_LT(reached.num_copies, reached.num_pages);  // some were merged
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << reached.num_programs << " programs, " << reached.num_stores << " stores, "
            << reached.num_loads << " loads (" << reached.num_partial << " from inside a block), "
            << reached.num_pages << " pages in " << reached.num_copies << " copies; "
            << static_cast<std::uint64_t>(static_cast<double>(reached.num_copies) / seconds)
            << " copies/s with everything checked\n";
}

TEST(Worker, BytesAreExactWithTheFirstBlockRuleOfV19) {
  Reached reached;
  for (const std::size_t layout : {0U, 1U, 2U, 3U, 4U}) {
    for (const std::size_t factor : {1U, 2U, 3U}) {
      for (const Schedule schedule : kSchedules) {
        RigOptions options;
        options.device.schedule = schedule;
        options.device.seed = factor;
        options.layout = layout;
        options.worker.plan = {.block_size_factor = factor,
                               .first_block_rule = FirstBlockRule::kByCount};
        run(options, 17 * layout + factor, reached);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(reached.num_partial, 100U);
}

TEST(Worker, TheDeviceAddressOfRegisteredMemoryIsUsed) {
  Reached reached;
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    for (const Schedule schedule : {Schedule::kLazy, Schedule::kRandom}) {
      SCOPED_TRACE(to_text(static_cast<CopyPathKind>(path)));
      RigOptions options;
      options.device.schedule = schedule;
      options.device.registered_memory_has_own_device_address = true;
      options.worker.only_path = static_cast<CopyPathKind>(path);
      run(options, path, reached);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Worker, TheCalibrationChoosesThePath) {
  RigOptions options;
  options.worker.calibration = CopyCalibration({
      {Direction::kStore, 64, 1, {9, 1, 9, 9}},
      {Direction::kStore, 64, 8, {9, 9, 9, 1}},
      {Direction::kLoad, 64, 1, {9, 9, 1, 9}},
      {Direction::kLoad, 64, 8, {1, 9, 9, 9}},
  });
  WorkerRig rig(options);
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  ASSERT_EQ(rig.store(2, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2})), "");
  rig.worker().begin_step();
  ASSERT_EQ(rig.poll(2).size(), 2U);
  const cudaEvent_t after = rig.record(rig.compute_stream());
  ASSERT_EQ(rig.load(3, WorkerRig::spec({1}, {0}), {after}), "");
  ASSERT_EQ(rig.load(4, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2}), {after}), "");
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
    ASSERT_EQ(rig.store(1, WorkerRig::spec({3, 3, 3}, {0, 2, 4})), "");
    const auto results = rig.worker().shutdown();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_TRUE(results[0].succeeded()) << to_text(static_cast<CopyPathKind>(path));
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty());
  }
}

TEST(Worker, KernelsTakeOnlyWhatIsAligned) {
  const auto kernel = make_copy_path(CopyPathKind::kKernel);
  const auto can_copy = [&](CopyDescriptor copy) {
    const CopyDescriptor copies[] = {{4096, 8192, 32}, copy};
    return kernel->can_copy(copies);
  };
  EXPECT_TRUE(can_copy({4096 + 64, 8192 + 64, 48}));
  EXPECT_FALSE(can_copy({4096 + 64, 8192 + 64, 40}));
  EXPECT_FALSE(can_copy({4096 + 72, 8192 + 64, 48}));
  EXPECT_FALSE(can_copy({4096 + 64, 8192 + 72, 48}));
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
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  ASSERT_EQ(rig.load(2, WorkerRig::spec({3}, {3}), {rig.record(rig.compute_stream())}), "");
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
    ASSERT_EQ(rig.store(1, WorkerRig::spec({0, 2, 4, 6}, {1, 3, 5, 2})), "");
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
  ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  const TransferSpec other = WorkerRig::spec({3}, {3});
  EXPECT_EQ(rig.worker().store(1, other), "job 1 is in flight");
  EXPECT_NE(rig.worker().load(2, other, {}), "");
  const cudaEvent_t with_none[] = {after, nullptr};
  EXPECT_NE(rig.worker().load(2, other, with_none), "");
  const cudaEvent_t events[] = {after};
  // Over what a deferred store is going to read, and of what it is going to write.
  EXPECT_NE(rig.worker().load(2, WorkerRig::spec({0}, {3}), events), "");
  EXPECT_NE(rig.worker().load(2, WorkerRig::spec({3}, {0}), events), "");
  EXPECT_EQ(rig.worker().store(2, WorkerRig::spec({8}, {0})), "GPU block 8 of 8");
  EXPECT_EQ(rig.worker().counters().num_refused, 6U);
  EXPECT_EQ(rig.worker().num_deferred(), 1U);
  EXPECT_EQ(rig.worker().num_in_flight(), 0U);
  rig.worker().begin_step();
  EXPECT_EQ(rig.poll(1).size(), 1U);
  // An id and blocks that are free again.
  EXPECT_EQ(rig.load(1, WorkerRig::spec({3}, {0}), {after}), "");
  EXPECT_EQ(rig.worker().shutdown().size(), 1U);
  EXPECT_EQ(rig.worker().store(5, other), "the worker is shut down");
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
      ASSERT_EQ(rig.store(job_id, WorkerRig::spec({block}, {block})), "");
    }
    EXPECT_EQ(rig.worker().shutdown().size(), 3U);
    EXPECT_EQ(rig.device().num_streams(), num_streams - 2);
    // The GPU's memory is the rig's; descriptors are kept until the worker goes.
    rig.close();
    EXPECT_EQ(rig.device().num_allocations(), 1U);
    EXPECT_EQ(rig.device().num_events(), 0U);
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
  wrong.plan.block_size_factor = 0;
  EXPECT_EQ(Worker::open(wrong).refusal, "block_size_factor is 0");
  wrong = right;
  std::array<std::byte, 100> memory{};
  wrong.cpu_memory = memory;
  EXPECT_EQ(Worker::open(wrong).refusal, "host memory of 100 bytes, expected 128");
}

}  // namespace
}  // namespace kvfence::cuda
