// Goal: both sides agree also without a rule that every profile has, which no campaign switches
// off. Method: campaigns of both targets with a cache policy, with that rule pinned.

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

void expect_t1_searched_as_a_last_resort(const TargetSides& sides) {
  CampaignOptions options;
  options.commands_max = 30'000;
  options.config_overrides = {{"policy", Value(Value::Variant(std::string("arc"))), {}},
                              {"arc_refuses_with_idle_t1", Value(Value::Variant(false)), {}}};
  const CampaignResult result = run_agreeing_campaign(sides, options);
  ASSERT_FALSE(result.config_error) << result.config_error->to_text();
  EXPECT_EQ(result.progress.commands, options.commands_max);
  // Without the rule its effects are not seen.
  for (const auto& [goal, count] : result.goals) {
    if (goal.name.find("with_idle_t1") == std::string_view::npos) continue;
    EXPECT_EQ(count, 0u) << goal.name;
  }
}

TEST(WithoutARule, EvictionLooksIntoT1AsALastResort) {
  expect_t1_searched_as_a_last_resort(eviction_sides());
}

TEST(WithoutARule, OffloadLooksIntoT1AsALastResort) {
  expect_t1_searched_as_a_last_resort(offload_sides());
}

}  // namespace
}  // namespace kvfence
