// Goal: RunningRequests keeps its order through removals and closed holes. Method: the same
// pseudo-random changes go to it and to a vector.

#include "optimized/scheduler/running_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvfence::optimized {
namespace {

TEST(RunningRequestsTest, KeepsItsOrder) {
  constexpr RequestIndex kNumIndices = 12;
  RunningRequests actual;
  std::vector<RequestIndex> expected;
  std::mt19937 random(1);
  for (int step = 0; step < 5'000; ++step) {
    const auto request = static_cast<RequestIndex>(random() % kNumIndices);
    const auto at = std::find(expected.begin(), expected.end(), request);
    if (random() % 8 == 0) {
      actual.close_holes();
      ASSERT_EQ(actual.num_places(), expected.size());
    } else if (at != expected.end()) {
      actual.erase(request);
      expected.erase(at);
    } else {
      actual.push_back(request);
      expected.push_back(request);
    }
    std::vector<RequestIndex> requests = {kNumIndices};  // overwritten
    actual.copy_to(requests);
    ASSERT_EQ(requests, expected);
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_EQ(actual.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(actual.front(), expected.front());
    ASSERT_EQ(actual.back(), expected.back());
    for (RequestIndex running : expected) ASSERT_EQ(actual.at(actual.place_of(running)), running);
  }
}

TEST(RunningRequestsTest, ARemovalLeavesAHoleUntilItIsClosed) {
  RunningRequests running;
  for (RequestIndex request = 0; request < 4; ++request) running.push_back(request);
  running.erase(1);
  EXPECT_EQ(running.num_places(), 4U);
  EXPECT_EQ(running.at(1), kNoRequest);
  EXPECT_EQ(running.place_of(1), 1U);
  running.close_holes();
  EXPECT_EQ(running.num_places(), 3U);
  EXPECT_EQ(running.at(1), 2U);
}

}  // namespace
}  // namespace kvfence::optimized
