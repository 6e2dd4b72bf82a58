// Goal: random campaigns of the kv_cache target reach every situation, raise no false alarm and
// find no difference. Method: both implementations in lockstep under all rules; then with the
// state observed now and then only.

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TEST(KVCacheCampaign, TheSidesAgreeAndEveryGoalIsReached) {
  expect_every_goal(kv_cache_sides(), 120'000);
}

TEST(KVCacheCampaign, NumbersAloneRaiseNoAlarm) {
  expect_no_alarm_from_numbers(kv_cache_sides(), 60'000);
}

}  // namespace
}  // namespace kvfence
