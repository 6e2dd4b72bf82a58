// Goal: random campaigns of the kv_cache target reach every situation, raise no false alarm and
// find no difference. Method: both implementations in lockstep under all invariants; then one of
// them alone, with the state observed now and then only.

#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "contract/scenario.h"
#include "properties/campaign.h"
#include "properties/kv_cache_checks.h"
#include "scenarios/implementations.h"

namespace kvfence {
namespace {

using Sides = Implementations<KVCacheTarget>;

CampaignResult<KVCacheTarget> campaign(Implementation<KVCacheTarget>& expected,
                                       Implementation<KVCacheTarget>& actual,
                                       const CampaignOptions& options) {
  auto result =
      run_campaign<KVCacheTarget>(expected, actual, options, [](const auto&) { return true; });
  if (result.failure) {
    const Divergence& found = result.failure->divergence;
    ADD_FAILURE() << found.oracle << ": " << found.message << "\n  " << found.field << ": expected "
                  << found.expected << ", actual " << found.actual << "\n"
                  << print(to_document(result.failure->scenario));
  }
  return result;
}

TEST(KVCacheCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  CampaignOptions options;
  options.commands_max = 120'000;
  const auto result = campaign(*expected, *actual, options);
  for (std::size_t index = 0; index < result.reach.num_goals(); ++index) {
    const auto goal = result.reach.goal(index);
    EXPECT_TRUE(goal.reached()) << goal.name;
  }
}

TEST(KVCacheCampaign, NumbersAloneRaiseNoAlarm) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  CampaignOptions options;
  options.seed = 2;
  options.commands_max = 60'000;
  options.lockstep.state_every = 7;
  campaign(*expected, *actual, options);
}

}  // namespace
}  // namespace kvfence
