#pragma once

/// Campaigns of a target as tests: two implementations in lockstep under all invariants.

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/campaign.h"

namespace kvfence {

/// Runs a campaign; a divergence is a failure of the test that is under way.
template <class Target>
CampaignResult<Target> run_agreeing_campaign(Implementation<Target>& expected,
                                             Implementation<Target>& actual,
                                             const CampaignOptions& options) {
  auto result =
      run_campaign<Target>(expected, actual, options, [](const CampaignProgress&) { return true; });
  if (result.failure) {
    const Divergence& found = result.failure->divergence;
    ADD_FAILURE() << found.oracle << ": " << found.message << "\n  " << found.field << ": expected "
                  << found.expected << ", actual " << found.actual << "\n"
                  << print(to_document(result.failure->scenario));
  }
  return result;
}

/// The sides agree, and every reachability goal is met.
template <class Target>
void expect_every_goal(Implementation<Target>& expected, Implementation<Target>& actual,
                       std::uint64_t commands_max) {
  CampaignOptions options;
  options.commands_max = commands_max;
  const auto result = run_agreeing_campaign(expected, actual, options);
  for (std::size_t index = 0; index < result.reach.num_goals(); ++index) {
    const auto goal = result.reach.goal(index);
    EXPECT_TRUE(goal.reached()) << goal.name;
  }
}

/// The sides agree where the state is observed now and then only: no invariant leans on what it
/// did not see.
template <class Target>
void expect_no_alarm_from_numbers(Implementation<Target>& expected, Implementation<Target>& actual,
                                  std::uint64_t commands_max) {
  CampaignOptions options;
  options.seed = 2;
  options.commands_max = commands_max;
  options.lockstep.state_every = 7;
  run_agreeing_campaign(expected, actual, options);
}

}  // namespace kvfence
