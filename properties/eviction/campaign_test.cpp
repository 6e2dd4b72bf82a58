// Goal: the sides agree also where a rule is switched off that every profile has, so that no
// campaign draws it. Method: campaigns of both targets with a cache policy, with that rule pinned.

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "properties/core/all_checks.h"
#include "properties/core/campaign_test_support.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {
namespace {

template <class Target>
class WithoutARule : public ::testing::Test {};
using PolicyTargets = ::testing::Types<EvictionTarget, OffloadTarget>;
TYPED_TEST_SUITE(WithoutARule, PolicyTargets, );

TYPED_TEST(WithoutARule, ARCLooksIntoT1AsALastResort) {
  const auto expected = Implementations<TypeParam>::make_reference();
  const auto actual = Implementations<TypeParam>::make_optimized();
  CampaignOptions options;
  options.commands_max = 30'000;
  options.config_overrides = {{"policy", Value(Value::Variant(std::string("arc"))), {}},
                              {"arc_refuses_with_idle_t1", Value(Value::Variant(false)), {}}};
  const auto result = run_agreeing_campaign(*expected, *actual, options);
  ASSERT_FALSE(result.config_error) << result.config_error->to_text();
  EXPECT_EQ(result.progress.commands, options.commands_max);
  // What that rule brings about is not seen without it.
  for (std::size_t index = 0; index < result.reach.num_goals(); ++index) {
    const auto goal = result.reach.goal(index);
    if (goal.name.find("with_idle_t1") == std::string_view::npos) continue;
    EXPECT_EQ(goal.count, 0u) << goal.name;
  }
}

}  // namespace
}  // namespace kvfence
