#pragma once

/// Campaigns of a target as tests: reference and optimized in lockstep under all rules.

#include <cstdint>

#include <gtest/gtest.h>

#include "contract/core/scenario.h"
#include "properties/core/campaign.h"
#include "scenarios/targets/targets.h"

namespace kvfence {

/// Runs a campaign; a divergence is a failure of the test that is under way. checks: those of the
/// target, or of one of its assemblies.
inline CampaignResult run_agreeing_campaign(const TargetSides& sides, const Checks& checks,
                                            const CampaignOptions& options) {
  const auto expected = sides.make_reference();
  const auto actual = sides.make_optimized();
  CampaignResult result = run_campaign(checks, *expected, *actual, options,
                                       [](const CampaignProgress&) { return true; });
  if (result.failure) {
    const Divergence& found = result.failure->divergence;
    ADD_FAILURE() << found.oracle << ": " << found.message << "\n  " << found.field << ": expected "
                  << found.expected << ", actual " << found.actual << "\n"
                  << print(to_document(result.failure->scenario));
  }
  return result;
}

inline CampaignResult run_agreeing_campaign(const TargetSides& sides,
                                            const CampaignOptions& options) {
  return run_agreeing_campaign(sides, *sides.checks, options);
}

/// The sides agree, and every goal is reached.
inline void expect_every_goal(const TargetSides& sides, const Checks& checks,
                              std::uint64_t commands_max) {
  CampaignOptions options;
  options.commands_max = commands_max;
  for (const GoalCount& goal : run_agreeing_campaign(sides, checks, options).goals) {
    EXPECT_TRUE(goal.is_reached()) << goal.goal.name;
  }
}
inline void expect_every_goal(const TargetSides& sides, std::uint64_t commands_max) {
  expect_every_goal(sides, *sides.checks, commands_max);
}

/// The sides agree where the state is observed now and then only: no rule leans on what it did not
/// see.
inline void expect_no_alarm_from_numbers(const TargetSides& sides, const Checks& checks,
                                         std::uint64_t commands_max) {
  CampaignOptions options;
  options.seed = 2;
  options.commands_max = commands_max;
  options.lockstep.state_every = 7;
  run_agreeing_campaign(sides, checks, options);
}
inline void expect_no_alarm_from_numbers(const TargetSides& sides, std::uint64_t commands_max) {
  expect_no_alarm_from_numbers(sides, *sides.checks, commands_max);
}

}  // namespace kvfence
