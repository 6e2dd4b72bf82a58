// Goal: the goals of the worker target that are about its devices (parts, undefined pages, lost and
// free devices, ranks) are counted in their situations and in no other.
// Method: commands between observations that are made by hand.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/worker/goals.h"

namespace kvfence::worker {
namespace {

using Situations = std::vector<Reached>;

/// Counts one command after another; what the last one added.
class Counting {
 public:
  explicit Counting(const Config& config = {}) { reach_.start(config); }

  Situations operator()(const Command& command, const Observation& after,
                        const Observation& before = {}) {
    const Reach old = reach_;
    reach_.count(command, before, after, World());
    Situations added;
    for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
      if (reach_.goal(index).count > old.goal(index).count) {
        added.push_back(static_cast<Reached>(index));
      }
    }
    return added;
  }

 private:
  Reach reach_;
};

Observation with_fault(std::string fault) {
  Observation observation;
  observation.next_fault = std::move(fault);
  return observation;
}

Observation advanced(bool has_run) {
  Observation observation;
  observation.advanced.emplace() = has_run;
  return observation;
}

Observation reported(std::vector<FinishedJob> jobs) {
  Observation observation;
  observation.finished_jobs.emplace() = std::move(jobs);
  return observation;
}

Observation with_pages(std::vector<Page> gpu_pages, std::vector<Page> cpu_pages) {
  Observation observation;
  observation.gpu_pages.emplace() = std::move(gpu_pages);
  observation.cpu_pages.emplace() = std::move(cpu_pages);
  return observation;
}

Config free_device() {
  Config config;
  config.schedule = "lazy";
  return config;
}

Config two_ranks() {
  Config config;
  config.num_ranks = 2;
  return config;
}

const FinishedJob kStored{.job = 1, .direction = "store", .succeeded = true};
const FinishedJob kNotLoaded{.job = 2, .direction = "load", .succeeded = false};

TEST(WorkerDeviceReach, CountsParts) {
  EXPECT_EQ(Counting()(Advance{"load", 2}, advanced(true)), Situations{Reached::kPartRan});
  EXPECT_EQ(Counting()(Advance{"load", 2}, advanced(false)), Situations{});
  EXPECT_EQ(Counting()(Advance{"load"}, advanced(true)), Situations{});
}

TEST(WorkerDeviceReach, CountsTransfersThatHadToWaitOnEachRank) {
  Counting count(two_ranks());
  EXPECT_EQ(count(Advance{"store", 0, 1}, advanced(false)), Situations{});
  EXPECT_EQ(count(Advance{"store", 0, 0}, advanced(true)), Situations{}) << "of another rank";
  EXPECT_EQ(count(FailNext{"copy"}, with_fault("copy")), Situations{}) << "it runs nothing";
  EXPECT_EQ(count(Advance{"store", 0, 1}, advanced(true)), Situations{Reached::kTransferBlocked});
}

TEST(WorkerDeviceReach, CountsUndefinedPages) {
  const Page undefined{.number = 1, .undefined = true};
  const Page written{.number = 1, .of_block = 1, .generation = 1};
  EXPECT_EQ(Counting()(Forward{}, with_pages({undefined}, {})),
            Situations{Reached::kPageUndefined});
  EXPECT_EQ(Counting()(Forward{}, with_pages({written}, {undefined})),
            Situations{Reached::kPageUndefined});
  EXPECT_EQ(Counting()(Forward{}, with_pages({written}, {written})), Situations{});
}

TEST(WorkerDeviceReach, CountsFaultsThatLeaveSomethingBehind) {
  EXPECT_EQ(Counting()(StartKVTransfers{}, with_fault("none"), with_fault("partial")),
            Situations{Reached::kCopyFailedInPart});
  EXPECT_EQ(Counting()(StartKVTransfers{}, with_fault("none"), with_fault("sticky")),
            Situations{Reached::kDeviceLost});
}

TEST(WorkerDeviceReach, CountsWhatTheLossOfADeviceFails) {
  Counting count;
  count(StartKVTransfers{}, with_fault("none"), with_fault("sticky"));
  EXPECT_EQ(count(GetFinished{}, reported({kNotLoaded})), Situations{Reached::kFailureReported})
      << "the one that met the fault";
  EXPECT_EQ(count(GetFinished{}, reported({kNotLoaded})),
            (Situations{Reached::kFailureReported, Reached::kFailedByTheLoss}));
  EXPECT_EQ(Counting()(GetFinished{}, reported({kNotLoaded})),
            Situations{Reached::kFailureReported})
      << "no device is lost";
}

TEST(WorkerDeviceReach, CountsReportsOfFreeDevicesAndOfRanks) {
  EXPECT_EQ(Counting(free_device())(GetFinished{}, reported({kStored})),
            (Situations{Reached::kStoreReported, Reached::kFreeDeviceReported}));
  EXPECT_EQ(Counting(free_device())(GetFinished{}, reported({kNotLoaded})),
            Situations{Reached::kFailureReported});
  EXPECT_EQ(Counting(two_ranks())(GetFinished{}, reported({kStored})),
            (Situations{Reached::kStoreReported, Reached::kRanksReported}));
  EXPECT_EQ(Counting(two_ranks())(GetFinished{}, reported({kNotLoaded})),
            (Situations{Reached::kFailureReported, Reached::kFailedOnARank}));
}

TEST(WorkerDeviceReach, CountsWhatAConfigurationDoesNotHave) {
  Observation refused;
  refused.error = ErrorCode::kNotInConfig;
  EXPECT_EQ(Counting()(Advance{"load", 0, 1}, refused), Situations{Reached::kErrorNotInConfig});
}

}  // namespace
}  // namespace kvfence::worker
