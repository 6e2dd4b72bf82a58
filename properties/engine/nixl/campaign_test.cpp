// Goal: random campaigns of a pair over NIXL reach every situation, raise no false alarm and find
// no difference. Method: both implementations in lockstep under all rules; then with the state
// observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(NixlCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(engine_sides(), checks_of(engine::Assembly::kPrefillDecode), 120'000);
}

TEST(NixlCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(engine_sides(), checks_of(engine::Assembly::kPrefillDecode), 40'000);
}

}  // namespace
}  // namespace kvfence
