/// Goal: with correct callers, exactly the right bytes arrive, in order and without a misuse, for
/// every layout, copy path, factor and schedule of the device. Method: random programs over all of
/// these; a million steps in all, and a million under each schedule with
/// KVFENCE_WORKER_STEPS=1000000. A GPU is one more schedule.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/sanitized.h"
#include "cuda/worker/worker_test_rig.h"

namespace kvfence::cuda {
namespace {

using virtual_device::Schedule;

// So that there are enough programs for each combination of options_of.
constexpr std::uint64_t kStepsAProgram = kIsSanitized ? 50 : 200;
constexpr std::uint64_t kStepsByDefault = kIsSanitized ? 10'000 : 200'000;

/// What random programs did.
struct Reached {
  std::uint64_t num_steps = 0;
  std::size_t num_partial = 0;  ///< transfers that begin inside a host block
  std::uint64_t num_transfers = 0;
  std::uint64_t num_pages = 0;
  std::array<std::uint64_t, kNumCopyPaths> num_by_path = {};
};

/// A scheduler that touches only blocks without a transfer that is not yet reported.
class RandomProgram {
 public:
  /// `orders_loads`: loads wait for the forwards that read their blocks.
  RandomProgram(WorkerRig& rig, std::uint64_t seed, bool orders_loads = true)
      : rig_(rig), random_(seed), orders_loads_(orders_loads) {}

  void run(std::uint64_t num_steps, Reached& reached) {
    for (std::uint64_t step = 0; step < num_steps; ++step) {
      ++reached.num_steps;
      rig_.worker().begin_step();
      for (std::size_t kernel = 0; kernel < 2; ++kernel) run_kernel();
      transfer(draw(2) == 0 ? Direction::kStore : Direction::kLoad, reached);
      if (draw(2) == 0) take_results();
      if (draw(3) == 0) rig_.yield();
      if (draw(3) == 0) rig_.advance_if_commanded();
      // A lazy device does nothing before a wait, and soon every block is taken.
      if (draw(10) == 0) wait_for_all();
    }
    if (draw(2) == 0) wait_for_all();
    const auto results = rig_.worker().shutdown();
    for (const TransferResult& result : results) take(result);
    expect(in_flight_.empty(), "a shutdown left transfers");
    rig_.settle();
    rig_.check_all();
    const auto& counters = rig_.worker().counters();
    reached.num_pages += counters.num_pages;
    reached.num_transfers += counters.num_submitted;
    for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
      reached.num_by_path[path] += counters.num_by_path[path];
    }
  }

  /// The first error of the worker; empty if there is none.
  const std::string& wrong() const { return wrong_; }

 private:
  void expect(bool holds, const char* what_else) {
    if (!holds && wrong_.empty()) wrong_ = what_else;
  }

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
      const std::size_t count = draw(std::min<std::size_t>(blocks.size(), 4) + 1);
      const std::size_t index = draw(9);
      const std::size_t skipped = index % factor;
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
      expect(rig_.store(job_id, spec) == ErrorCode::kNone, "a good store was refused");
    } else {
      const cudaEvent_t after =
          rig_.record(orders_loads_ ? rig_.compute_stream() : rig_.other_stream());
      expect(rig_.load(job_id, spec, {after}) == ErrorCode::kNone, "a good load was refused");
    }
    reached.num_partial += is_partial ? 1 : 0;
    busy_gpu_.insert(spec.gpu_blocks.begin(), spec.gpu_blocks.end());
    busy_cpu_.insert(spec.cpu_blocks.begin(), spec.cpu_blocks.end());
    in_flight_[job_id] = {direction, spec};
  }

  void wait_for_all() {
    std::vector<JobId> job_ids;
    for (const auto& [job_id, transfer] : in_flight_) job_ids.push_back(job_id);
    expect(rig_.worker().wait(job_ids) == cudaSuccess, "a wait failed");
    take_results();
    expect(in_flight_.empty(), "a wait left transfers");
  }

  void take_results() {
    std::vector<TransferResult> results;
    rig_.worker().poll(results);
    for (const TransferResult& result : results) take(result);
  }

  void take(const TransferResult& result) {
    const auto found = in_flight_.find(result.job_id);
    if (found == in_flight_.end()) return expect(false, "reported twice, or never submitted");
    expect(result.succeeded(), "a transfer failed");
    expect(result.direction == found->second.first, "reported in the other direction");
    JobId& last = last_result_[static_cast<std::size_t>(result.direction)];
    expect(result.job_id > last, "not reported in the order of submission");
    last = result.job_id;
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
  std::mt19937_64 random_;
  bool orders_loads_;
  std::set<std::uint32_t> busy_gpu_;
  std::set<std::uint32_t> busy_cpu_;
  std::map<JobId, std::pair<Direction, TransferSpec>> in_flight_;
  std::array<JobId, kNumDirections> last_result_ = {};
  JobId last_job_id_ = 0;
  std::string wrong_;
};

/// Runs one program; returns what is wrong: a result of the worker, a race, a misuse or a byte.
/// Empty if nothing is.
std::string run_random_program(const RigOptions& options, std::uint64_t seed, Reached& reached) {
  WorkerRig rig(options);
  if (!rig.is_open()) return rig.refusal();
  RandomProgram program(rig, seed);
  program.run(kStepsAProgram, reached);
  if (!program.wrong().empty()) return program.wrong();
  if (!rig.findings().empty()) return rig.findings();
  if (!rig.wrong().empty()) return rig.wrong().front();
  return rig.num_checks() > 1 ? "" : "nothing was compared";
}

/// Under each schedule.
std::uint64_t num_steps() {
  const char* const text = std::getenv("KVFENCE_WORKER_STEPS");
  return text == nullptr ? kStepsByDefault : std::strtoull(text, nullptr, 10);
}

/// The programs of consecutive seeds go through all combinations.
RigOptions options_of(Schedule schedule, std::uint64_t seed) {
  RigOptions options;
  options.device.schedule = schedule;
  options.device.seed = seed;
  std::uint64_t left = seed;
  const auto take = [&left](std::uint64_t bound) {
    const std::uint64_t taken = left % bound;
    left /= bound;
    return taken;
  };
  options.layout = take(all_layouts(0).size());
  options.worker.only_path = static_cast<CopyPathKind>(take(kNumCopyPaths));
  options.worker.block_size_factor = 1 + take(3);
  options.worker.copy.batch_entries_max = 1 + take(4);
  options.device.registered_memory_has_own_device_address = take(2) == 0;
  return options;
}

class WorkerRandomPrograms : public testing::TestWithParam<Schedule> {};

TEST_P(WorkerRandomPrograms, RaiseNoFalseAlarm) {
  KVFENCE_NEEDS_DEVICE();
  Reached reached;
  for (std::uint64_t seed = 1; reached.num_steps < num_steps(); ++seed) {
    ASSERT_EQ(run_random_program(options_of(GetParam(), seed), seed, reached), "")
        << "seed " << seed;
  }
  EXPECT_GE(reached.num_steps, kStepsByDefault);
  EXPECT_GT(reached.num_pages, reached.num_steps / 2);
  EXPECT_GT(reached.num_partial, 0U);
  for (const std::uint64_t num_transfers : reached.num_by_path) EXPECT_GT(num_transfers, 0U);
  std::cout << reached.num_steps << " steps, " << reached.num_transfers << " transfers of "
            << reached.num_pages << " pages: no alarm\n";
}

TEST_P(WorkerRandomPrograms, FindAWrongByte) {
  KVFENCE_NEEDS_DEVICE();
  WorkerRig rig(options_of(GetParam(), 1));
  rig.spoil_gpu(0, 0);
  rig.attend(0, 0);
  rig.settle();
  rig.check_all();
  ASSERT_EQ(rig.wrong().size(), 2U);
  EXPECT_NE(rig.wrong()[0].find("attended: byte 0 of"), std::string::npos) << rig.wrong()[0];
  EXPECT_NE(rig.wrong()[1].find("GPU: byte 256 of"), std::string::npos) << rig.wrong()[1];
}

#if defined(KVFENCE_REAL_RUNTIME)

INSTANTIATE_TEST_SUITE_P(OnGpu, WorkerRandomPrograms, testing::Values(Schedule::kEager),
                         [](const auto& /*schedule*/) { return std::string("its_own"); });

#else

TEST_P(WorkerRandomPrograms, FindACallerWhoseLoadsWaitForTheWrongStream) {
  WorkerRig rig(options_of(GetParam(), 1));
  Reached reached;
  RandomProgram(rig, 1, false).run(100, reached);
  EXPECT_FALSE(rig.device().races().empty());
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, WorkerRandomPrograms,
                         testing::Values(Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                         Schedule::kPriority, Schedule::kCommanded),
                         [](const auto& schedule) {
                           return std::string(virtual_device::to_text(schedule.param));
                         });

#endif

}  // namespace
}  // namespace kvfence::cuda
