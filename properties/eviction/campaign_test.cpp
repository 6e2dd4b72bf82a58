// Goal: both sides agree also without a rule that every profile has, which no campaign switches
// off. Method: campaigns of both targets with a cache policy, with that rule pinned.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/eviction/keys.h"
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

// Mistakes beyond the first keys of a list show in no short one.
TEST(DrawnKeys, ListsAreNowAndThenAsLongAsThoseOfRequests) {
  const eviction::DrawnKeys keys(10);
  const std::vector<std::uint32_t> held = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Choices choices = Choices::from_seed(1);
  std::size_t length_max = 0;
  std::size_t num_different_max = 0;
  for (int count = 0; count < 10'000; ++count) {
    std::vector<std::uint32_t> drawn = keys.some_of(held, 3, choices);
    length_max = std::max(length_max, drawn.size());
    std::ranges::sort(drawn);
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    num_different_max = std::max(num_different_max, drawn.size());
  }
  EXPECT_EQ(length_max, 12U);
  EXPECT_GE(num_different_max, 9U);
}

}  // namespace
}  // namespace kvfence
