// Goal: random campaigns of the multi_connector target reach every situation, raise no false alarm
// and find no difference. Method: both implementations in lockstep under all rules; then with
// the state observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(MultiConnectorCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(multi_connector_sides(), 60'000);
}

TEST(MultiConnectorCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(multi_connector_sides(), 20'000);
}

}  // namespace
}  // namespace kvfence
