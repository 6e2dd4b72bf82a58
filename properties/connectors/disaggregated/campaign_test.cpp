// Goal: random campaigns of the disaggregated target reach every situation, raise no false alarm
// and find no difference. Method: both implementations in lockstep under all invariants; then with
// the state observed now and then only.

#include "properties/core/campaign_test_support.h"
#include "properties/connectors/disaggregated/checks.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {
namespace {

using Sides = Implementations<DisaggregatedTarget>;

TEST(DisaggregatedCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  expect_every_goal(*expected, *actual, 120'000);
}

TEST(DisaggregatedCampaign, NumbersAloneRaiseNoAlarm) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  expect_no_alarm_from_numbers(*expected, *actual, 40'000);
}

}  // namespace
}  // namespace kvfence
