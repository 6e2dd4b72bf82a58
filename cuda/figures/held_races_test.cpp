/// Goal: with its barrier every race program leaves right bytes, on every device and in every run.
/// Without it the bytes are wrong: always on a GPU, where compute is held, and under at least one
/// schedule on the virtual device, whose order check finds the race in every run.

#include "cuda/figures/held_races.h"

#include <gtest/gtest.h>

#include <iostream>

#include "cuda/copy_paths/device_under_test.h"

namespace kvfence::cuda {
namespace {

constexpr std::size_t kPageBytes = kIsOnGpu ? 1 << 20 : 64;

TEST(HeldRaces, WithTheBarrierBytesAreRight) {
  KVFENCE_NEEDS_DEVICE();
  for (const HeldRace& race : held_races()) {
    for (const CopyPathKind path : race.paths) {
      for (std::size_t run = 0; run < kNumRuns; ++run) {
        DeviceUnderTest device(run);
        const RaceOutcome outcome = run_race(race, path, true, kPageBytes);
        SCOPED_TRACE(std::string(race.id) + " " + race.name + ", " + std::string(to_text(path)) +
                     ", " + device.name());
        EXPECT_EQ(outcome.code, cudaSuccess);
        EXPECT_EQ(outcome.refusal, "");
        EXPECT_FALSE(outcome.has_timed_out);
        // Compute is held only on a GPU: elsewhere a schedule may run it early.
        EXPECT_FALSE(kIsOnGpu && outcome.is_early) << "the barrier does not hold";
        for (const std::string& wrong : outcome.wrong) ADD_FAILURE() << wrong;
        EXPECT_EQ(device.findings(), "");
      }
    }
  }
}

TEST(HeldRaces, WithoutItTheyAreWrong) {
  KVFENCE_NEEDS_DEVICE();
  for (const HeldRace& race : held_races()) {
    for (const CopyPathKind path : race.paths) {
      std::size_t num_wrong = 0;
      for (std::size_t run = 0; run < kNumRuns; ++run) {
        DeviceUnderTest device(run);
        const RaceOutcome outcome = run_race(race, path, false, kPageBytes);
        SCOPED_TRACE(std::string(race.id) + " " + race.name + ", " + std::string(to_text(path)) +
                     ", " + device.name());
        ASSERT_TRUE(outcome.has_run()) << cudaGetErrorName(outcome.code) << " " << outcome.refusal;
        if (!outcome.wrong.empty()) ++num_wrong;
        if (kIsOnGpu) {
          EXPECT_EQ(outcome.is_early, race.is_early);
          std::cout << race.id << " " << race.name << ", " << to_text(path) << ": "
                    << (outcome.wrong.empty() ? "bytes are right" : outcome.wrong.front()) << "\n";
          EXPECT_TRUE(!race.must_corrupt || !outcome.wrong.empty()) << "the control shows nothing";
        } else {
          EXPECT_GT(device.num_races(), 0U) << "not found by order";
        }
      }
      EXPECT_TRUE(!race.must_corrupt || num_wrong > 0) << race.name << ", " << to_text(path);
    }
  }
}

TEST(HeldRaces, EachOfTheNamedOnesIsThere) {
  for (const std::string id : {"M1", "M2", "M3", "M4", "M5", "M6", "M7"}) {
    bool is_there = false;
    for (const HeldRace& race : held_races()) is_there = is_there || race.id == id;
    EXPECT_TRUE(is_there) << id;
  }
}

}  // namespace
}  // namespace kvfence::cuda
