// Goal: reference and optimized agree on a connector with its scheduler, workers and copies, and
// what can happen does happen. Method: random episodes of both profiles; each goal of the counters
// is reached.

#include <cstddef>

#include <gtest/gtest.h>

#include "contract/scenario.h"
#include "properties/campaign.h"
#include "properties/connector_checks.h"
#include "scenarios/implementations.h"

namespace kvfence {
namespace {

using Sides = Implementations<ConnectorTarget>;

CampaignResult<ConnectorTarget> campaign(const CampaignOptions& options) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  auto result =
      run_campaign<ConnectorTarget>(*expected, *actual, options, [](const auto&) { return true; });
  if (result.failure) {
    const Divergence& found = result.failure->divergence;
    ADD_FAILURE() << found.oracle << ": " << found.message << "\n  " << found.field << ": expected "
                  << found.expected << ", actual " << found.actual << "\n"
                  << print(to_document(result.failure->scenario));
  }
  return result;
}

TEST(ConnectorCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  CampaignOptions options;
  options.commands_max = 120'000;
  const auto result = campaign(options);
  for (std::size_t index = 0; index < result.reach.num_goals(); ++index) {
    const auto goal = result.reach.goal(index);
    EXPECT_TRUE(goal.reached()) << goal.name;
  }
}

TEST(ConnectorCampaign, NumbersAloneRaiseNoAlarm) {
  CampaignOptions options;
  options.seed = 2;
  options.commands_max = 40'000;
  options.lockstep.state_every = 7;
  campaign(options);
}

}  // namespace
}  // namespace kvfence
