// Tests when steps form a round, and what ends one.

#include "properties/engine/step_rounds.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvfence::engine {
namespace {

constexpr std::uint32_t kNumBaseBlocks = 1;

/// After a step that planned a token of "A", which has block 1, and preempted these.
SchedulerObservation after_step(std::uint32_t num_computed_tokens,
                                std::vector<std::string> preempted = {}) {
  SchedulerObservation shown;
  RequestState& state = shown.requests.emplace().emplace_back();
  state.id = "A";
  state.status = RequestStatus::kRunning;
  state.num_computed_tokens = num_computed_tokens;
  shown.running.emplace() = {"A"};
  shown.waiting.emplace();
  shown.skipped_waiting.emplace();
  ScheduledRequest& planned = shown.scheduled.emplace().emplace_back();
  planned.request = "A";
  planned.num_tokens = 1;
  shown.preempted.emplace() = std::move(preempted);
  shown.tables.emplace() = {{.request = "A", .blocks = {{1}}}};
  shown.num_referenced_blocks = kNumBaseBlocks + 1;
  return shown;
}

class StepRoundsTest : public ::testing::Test {
 protected:
  const StepRounds::Round* take(const Command& command, const SchedulerObservation& shown) {
    return rounds_.take(command, shown, kNumBaseBlocks);
  }

  StepRounds rounds_;
};

TEST_F(StepRoundsTest, SeesStepsThatComeBack) {
  EXPECT_EQ(take(Schedule{}, after_step(1)), nullptr);
  EXPECT_EQ(take(Update{}, after_step(1)), nullptr);
  EXPECT_EQ(take(Schedule{}, after_step(2, {"B"})), nullptr);
  EXPECT_EQ(take(Update{}, after_step(2)), nullptr);
  const StepRounds::Round* const round = take(Schedule{}, after_step(1, {"C"}));
  ASSERT_NE(round, nullptr);
  EXPECT_EQ(round->num_steps, 2u);
  EXPECT_EQ(round->preempted, (std::vector<std::string>{"B", "C"}));
}

TEST_F(StepRoundsTest, AnotherCommandOrReportEndsThem) {
  Update with_report;
  with_report.invalid_blocks = {1};
  for (const Command& command : {Command(AddRequest{}), Command(with_report)}) {
    EXPECT_EQ(take(Schedule{}, after_step(1)), nullptr);
    EXPECT_EQ(take(command, after_step(1)), nullptr);
    EXPECT_EQ(take(Schedule{}, after_step(1)), nullptr);
    rounds_.forget();
  }
}

TEST_F(StepRoundsTest, BlocksThatACopyHoldsEndThem) {
  EXPECT_EQ(take(Schedule{}, after_step(1)), nullptr);
  SchedulerObservation shown = after_step(2, {"B"});
  ++shown.num_referenced_blocks;
  EXPECT_EQ(take(Schedule{}, shown), nullptr);
  EXPECT_EQ(take(Schedule{}, after_step(1)), nullptr);
}

TEST_F(StepRoundsTest, StepsThatDoNothingAreNone) {
  SchedulerObservation idle = after_step(1);
  idle.scheduled.emplace().clear();
  EXPECT_EQ(take(Schedule{}, idle), nullptr);
  EXPECT_EQ(take(Schedule{}, idle), nullptr);
}

}  // namespace
}  // namespace kvfence::engine
