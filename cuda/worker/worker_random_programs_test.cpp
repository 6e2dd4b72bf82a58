/// Goal: the copy worker under callers that are right is never blamed, for order, for a misuse or
/// for a byte, whatever the schedule of the device. Method: long random programs over all layouts,
/// copy paths, factors and rules; a million steps in all, and a million under each schedule with
/// KVFENCE_WORKER_STEPS=1000000.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "contract/core/sanitized.h"
#include "cuda/virtual/test_rig.h"
#include "cuda/worker/worker_random_program.h"

namespace kvfence::cuda {
namespace {

// So that there are enough programs for each combination of options_of but the last ones.
constexpr std::uint64_t kStepsAProgram = kIsSanitized ? 100 : 1000;
constexpr std::uint64_t kStepsByDefault = kIsSanitized ? 10'000 : 200'000;

/// Under each schedule.
std::uint64_t num_steps() {
  const char* const text = std::getenv("KVFENCE_WORKER_STEPS");
  return text == nullptr ? kStepsByDefault : std::strtoull(text, nullptr, 10);
}

/// The programs of consecutive seeds go through all combinations.
RigOptions options_of(virtual_device::Schedule schedule, std::uint64_t seed) {
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
  options.worker.plan.block_size_factor = 1 + take(3);
  options.worker.copy.batch_entries_max = 1 + take(4);
  // v0.19 has groups of one length only.
  if (take(2) == 0 && all_layouts(0)[options.layout].num_groups == 1) {
    options.worker.plan.first_block_rule = FirstBlockRule::kByCount;
  }
  options.device.registered_memory_has_own_device_address = take(2) == 0;
  return options;
}

class WorkerRandomPrograms : public testing::TestWithParam<virtual_device::Schedule> {};

TEST_P(WorkerRandomPrograms, RaiseNoFalseAlarm) {
  Reached reached;
  for (std::uint64_t seed = 1; reached.num_steps < num_steps(); ++seed) {
    ASSERT_EQ(run_random_program(options_of(GetParam(), seed), seed, kStepsAProgram, reached), "")
        << "seed " << seed;
  }
  EXPECT_GE(reached.num_steps, kStepsByDefault);
  EXPECT_GT(reached.num_pages, reached.num_steps / 2);
  EXPECT_GT(reached.num_partial, 0U);
  for (const std::uint64_t num_transfers : reached.num_by_path) EXPECT_GT(num_transfers, 0U);
  std::cout << reached.num_steps << " steps in " << reached.num_programs << " programs, "
            << reached.num_stores << " stores and " << reached.num_loads << " loads of "
            << reached.num_pages << " pages: no alarm\n";
}

INSTANTIATE_TEST_SUITE_P(EverySchedule, WorkerRandomPrograms, testing::ValuesIn(kAllSchedules),
                         [](const auto& schedule) {
                           return std::string(virtual_device::to_text(schedule.param));
                         });

}  // namespace
}  // namespace kvfence::cuda
