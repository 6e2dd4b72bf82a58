// Goal: random campaigns of the simple_offload target reach every situation, raise no false alarm
// and find no difference. Method: both implementations in lockstep under all rules; then with
// the state observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(SimpleOffloadCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(simple_offload_sides(), 120'000);
}

TEST(SimpleOffloadCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(simple_offload_sides(), 40'000);
}

}  // namespace
}  // namespace kvfence
