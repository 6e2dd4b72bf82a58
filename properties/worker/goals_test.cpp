// Goal: each reachability goal of the worker target is counted in its situation and in no other.
// Method: commands between observations that are made by hand. A CPU block has two pages.

#include "properties/worker/goals.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::worker {
namespace {

using Situations = std::vector<Reached>;

/// Transfers in flight, and nothing else.
Observation shown(std::uint32_t num_in_flight = 0, std::uint32_t num_deferred = 0) {
  Observation observation;
  observation.num_in_flight = num_in_flight;
  observation.num_deferred = num_deferred;
  return observation;
}

Observation with_fault(std::string fault) {
  Observation observation;
  observation.next_fault = std::move(fault);
  return observation;
}

Observation reported(std::vector<FinishedJob> jobs, std::uint32_t num_in_flight = 0) {
  Observation observation = shown(num_in_flight);
  observation.finished_jobs.emplace() = std::move(jobs);
  return observation;
}

Observation advanced(bool has_run) {
  Observation observation;
  observation.advanced.emplace() = has_run;
  return observation;
}

/// A forward found a block as another was written.
Observation with_seen(std::uint32_t number, std::uint32_t of_block, std::uint32_t generation) {
  Observation observation;
  observation.seen = {{.number = number, .of_block = of_block, .generation = generation}};
  return observation;
}

FinishedJob store(bool succeeded = true) { return {1, "store", succeeded}; }
FinishedJob load(bool succeeded = true) { return {2, "load", succeeded}; }

TransferAsync transfer(std::vector<std::uint32_t> gpu_blocks, std::uint32_t block_index) {
  TransferAsync command;
  command.gpu_blocks = std::move(gpu_blocks);
  command.block_index = block_index;
  return command;
}

/// Counts one command after another; what the last one added.
class Counting {
 public:
  Counting() {
    Config config;
    config.block_size_factor = 2;
    reach_.start(config);
  }

  Situations operator()(const Command& command, const Observation& after) {
    return (*this)(command, Observation(), after);
  }
  Situations operator()(const Command& command, const Observation& before,
                        const Observation& after) {
    const Reach old = reach_;
    reach_.count(command, before, after, World());
    return reached_between(old, reach_);
  }

 private:
  Reach reach_;
};

Situations reached_by(const Command& command, const Observation& after) {
  return Counting()(command, after);
}

TEST(WorkerReach, NamesAreUniqueAndEveryGoalIsPositive) { expect_named_once_and_positive(Reach()); }

TEST(WorkerReach, CountsReports) {
  EXPECT_EQ(reached_by(GetFinished{}, reported({})), Situations{});
  EXPECT_EQ(reached_by(GetFinished{}, reported({}, 1)), Situations{Reached::kReportHeldBack});
  EXPECT_EQ(reached_by(GetFinished{}, reported({store()}, 1)), Situations{Reached::kStoreReported});
  EXPECT_EQ(reached_by(GetFinished{}, reported({load()})), Situations{Reached::kLoadReported});
  EXPECT_EQ(reached_by(GetFinished{}, reported({store(false)})),
            Situations{Reached::kFailureReported});
  EXPECT_EQ(reached_by(GetFinished{}, reported({store(), load(false)})),
            (Situations{Reached::kStoreReported, Reached::kFailureReported,
                        Reached::kBothDirectionsInFlight}));
}

TEST(WorkerReach, CountsShutdowns) {
  EXPECT_EQ(reached_by(Shutdown{}, reported({})), Situations{});
  EXPECT_EQ(reached_by(Shutdown{}, reported({load()})),
            (Situations{Reached::kLoadReported, Reached::kShutDownInFlight}));
}

TEST(WorkerReach, CountsOddTransfers) {
  EXPECT_EQ(reached_by(transfer({1}, 0), shown()), Situations{});
  EXPECT_EQ(reached_by(transfer({1}, 2), shown()), Situations{});
  EXPECT_EQ(reached_by(transfer({1}, 3), shown()), Situations{Reached::kFirstBlockSkipped});
  EXPECT_EQ(reached_by(transfer({}, 3), shown()), Situations{Reached::kTransferOfNothing});
}

TEST(WorkerReach, CountsTransfersThatHadToWait) {
  Counting count;
  EXPECT_EQ(count(Advance{"store"}, advanced(true)), Situations{}) << "nobody has waited";
  EXPECT_EQ(count(Advance{"store"}, advanced(false)), Situations{});
  EXPECT_EQ(count(Advance{"load"}, advanced(true)), Situations{}) << "another stream";
  EXPECT_EQ(count(Advance{"compute"}, advanced(true)), Situations{});
  EXPECT_EQ(count(Advance{"store"}, advanced(true)), Situations{Reached::kTransferBlocked});
  EXPECT_EQ(count(Advance{"store"}, advanced(false)), Situations{});
  EXPECT_EQ(count(StartKVTransfers{}, shown()), Situations{});
  EXPECT_EQ(count(Advance{"store"}, advanced(true)), Situations{}) << "it was only enqueued now";
}

TEST(WorkerReach, CountsWaits) {
  EXPECT_EQ(Counting()(Wait{{1}}, shown(0, 2), shown(2, 2)), Situations{});
  EXPECT_EQ(Counting()(Wait{{1}}, shown(0, 2), shown(2, 0)), Situations{Reached::kFlushedByWait});
  EXPECT_EQ(reached_by(Wait{{1}}, with_seen(3, 3, 1)), Situations{Reached::kForwardsRunByWait});
}

TEST(WorkerReach, CountsBlocksThatWereLoaded) {
  EXPECT_EQ(reached_by(Advance{},
                       [] {
                         Observation after = with_seen(3, 2, 1);
                         after.advanced.emplace() = true;
                         return after;
                       }()),
            Situations{Reached::kLoadedBlockSeen});
  EXPECT_EQ(reached_by(Forward{}, with_seen(3, 3, 1)), Situations{});
  EXPECT_EQ(reached_by(Forward{}, with_seen(3, 0, 0)), Situations{}) << "nothing was written there";
}

TEST(WorkerReach, CountsFaultsThatWereMet) {
  const std::vector<std::pair<std::string, Reached>> faults = {{"copy", Reached::kCopyFailed},
                                                               {"wait", Reached::kWaitFailed},
                                                               {"record", Reached::kRecordFailed},
                                                               {"late", Reached::kEndDenied}};
  for (const auto& [fault, reached] : faults) {
    EXPECT_EQ(Counting()(StartKVTransfers{}, with_fault(fault), with_fault("none")),
              Situations{reached});
    EXPECT_EQ(Counting()(StartKVTransfers{}, with_fault(fault), with_fault(fault)), Situations{});
    EXPECT_EQ(Counting()(FailNext{"none"}, with_fault(fault), with_fault("none")), Situations{});
  }
}

TEST(WorkerReach, CountsRefusals) {
  const std::vector<std::pair<ErrorCode, Reached>> refusals = {
      {ErrorCode::kShutDown, Reached::kErrorShutDown},
      {ErrorCode::kJobInFlight, Reached::kErrorJobInFlight},
      {ErrorCode::kUnknownBlock, Reached::kErrorUnknownBlock},
      {ErrorCode::kCountsDiffer, Reached::kErrorCountsDiffer},
      {ErrorCode::kListedTwice, Reached::kErrorListedTwice},
      {ErrorCode::kBlockInFlight, Reached::kErrorBlockInFlight},
      {ErrorCode::kNotOrdered, Reached::kErrorNotOrdered}};
  for (const auto& [error, reached] : refusals) {
    Observation refused = shown();
    refused.error = error;
    // It counts as its refusal and as nothing else.
    EXPECT_EQ(reached_by(transfer({}, 3), refused), Situations{reached}) << to_text(error);
  }
}

}  // namespace
}  // namespace kvfence::worker
