// Goal: random campaigns of a scheduler, alone or under the scripted connector, reach every
// situation, raise no false alarm and find no difference. Method: both implementations in lockstep
// under all rules; then with the state observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(SchedulerCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(engine_sides(), checks_of(engine::Assembly::kScheduler), 120'000);
}

TEST(SchedulerCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(engine_sides(), checks_of(engine::Assembly::kScheduler), 60'000);
}

}  // namespace
}  // namespace kvfence
