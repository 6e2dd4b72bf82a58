// Goal: random campaigns of engines with an OffloadingConnector over scripted copies reach every
// situation, raise no false alarm and find no difference. Method: both implementations in lockstep
// under all rules; then with the state observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(OffloadingCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(engine_sides(), checks_of(engine::Assembly::kOffloading), 120'000);
}

TEST(OffloadingCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(engine_sides(), checks_of(engine::Assembly::kOffloading), 40'000);
}

}  // namespace
}  // namespace kvfence
