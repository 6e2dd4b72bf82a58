// Goal: random campaigns of the synchronous_connector target reach every situation, raise no false
// alarm and find no difference. Method: both implementations in lockstep under all invariants; then
// with the state observed now and then only.

#include "properties/core/campaign_test_support.h"
#include "properties/connectors/synchronous/checks.h"
#include "scenarios/targets/implementations.h"

namespace kvfence {
namespace {

using Sides = Implementations<SynchronousConnectorTarget>;

TEST(SynchronousConnectorCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  expect_every_goal(*expected, *actual, 120'000);
}

TEST(SynchronousConnectorCampaign, NumbersAloneRaiseNoAlarm) {
  const auto expected = Sides::make_reference();
  const auto actual = Sides::make_optimized();
  expect_no_alarm_from_numbers(*expected, *actual, 40'000);
}

}  // namespace
}  // namespace kvfence
