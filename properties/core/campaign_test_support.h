#pragma once

/// Campaigns of a target as tests: reference and optimized in lockstep under all rules.

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

}  // namespace kvfence
