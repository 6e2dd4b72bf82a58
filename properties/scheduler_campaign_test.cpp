// Goal: random campaigns of the scheduler target reach every situation, raise no false alarm and
// find no difference. Method: both implementations in lockstep under all invariants; then with the
// state observed now and then only.

#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "contract/scenario.h"
#include "properties/campaign.h"
#include "properties/scheduler_checks.h"
#include "scenarios/implementations.h"

namespace kvfence {
namespace {

using Sides = Implementations<SchedulerTarget>;

CampaignResult<SchedulerTarget> campaign(const CampaignOptions& options) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  auto result =
      run_campaign<SchedulerTarget>(*expected, *actual, options, [](const auto&) { return true; });
  if (result.failure) {
    const Divergence& found = result.failure->divergence;
    ADD_FAILURE() << found.oracle << ": " << found.message << "\n  " << found.field << ": expected "
                  << found.expected << ", actual " << found.actual << "\n"
                  << print(to_document(result.failure->scenario));
  }
  return result;
}

TEST(SchedulerCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  CampaignOptions options;
  options.commands_max = 120'000;
  const auto result = campaign(options);
  for (std::size_t index = 0; index < result.reach.num_goals(); ++index) {
    const auto goal = result.reach.goal(index);
    EXPECT_TRUE(goal.reached()) << goal.name;
  }
}

TEST(SchedulerCampaign, NumbersAloneRaiseNoAlarm) {
  CampaignOptions options;
  options.seed = 2;
  options.commands_max = 60'000;
  options.lockstep.state_every = 7;
  campaign(options);
}

}  // namespace
}  // namespace kvfence
