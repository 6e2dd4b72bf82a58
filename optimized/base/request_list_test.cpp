// Goal: a RequestList is a list. Method: the same pseudo-random changes go to it and to std::list.

#include "optimized/base/request_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <vector>

namespace kvfence::optimized {
namespace {

TEST(RequestListTest, IsAList) {
  constexpr RequestIndex kNumRequests = 12;
  RequestList actual;
  std::list<RequestIndex> expected;
  std::mt19937 random(1);
  for (int step = 0; step < 5'000; ++step) {
    const auto request = static_cast<RequestIndex>(random() % kNumRequests);
    const auto at = std::find(expected.begin(), expected.end(), request);
    ASSERT_EQ(actual.contains(request), at != expected.end());
    if (at != expected.end()) {
      ASSERT_TRUE(actual.erase(request));
      ASSERT_FALSE(actual.erase(request));
      expected.erase(at);
    } else if (random() % 2 == 0) {
      actual.push_back(request);
      expected.push_back(request);
    } else {
      actual.push_front(request);
      expected.push_front(request);
    }
    std::vector<RequestIndex> requests = {kNumRequests};  // overwritten
    actual.copy_to(requests);
    ASSERT_TRUE(std::equal(requests.begin(), requests.end(), expected.begin(), expected.end()));
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_EQ(actual.empty(), expected.empty());
    ASSERT_EQ(actual.front(), expected.empty() ? kNoRequest : expected.front());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const RequestIndex after = i + 1 < requests.size() ? requests[i + 1] : kNoRequest;
      ASSERT_EQ(actual.next(requests[i]), after);
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
