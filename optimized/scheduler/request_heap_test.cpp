// Goal: a RequestHeap always knows its first request, whichever are removed, at a cost of O(log n).
// Method: the same pseudo-random changes go to it and to std::set; count the comparisons.

#include "optimized/scheduler/request_heap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace kvfence::optimized {
namespace {

constexpr RequestIndex kNumRequests = 64;
constexpr std::uint32_t kLevels = 6;

TEST(RequestHeapTest, TopGoesBeforeAllOthers) {
  std::mt19937 random(1);
  std::vector<std::uint32_t> ranks;
  for (RequestIndex request = 0; request < kNumRequests; ++request) {
    ranks.push_back(static_cast<std::uint32_t>(random() % 16));
  }
  std::uint32_t num_comparisons = 0;
  const auto goes_before = [&](RequestIndex left, RequestIndex right) {
    ++num_comparisons;
    return ranks[left] != ranks[right] ? ranks[left] < ranks[right] : left < right;
  };
  const auto is_less = [&ranks](RequestIndex left, RequestIndex right) {
    return ranks[left] != ranks[right] ? ranks[left] < ranks[right] : left < right;
  };
  RequestHeap actual;
  std::set<RequestIndex, decltype(is_less)> expected(is_less);
  for (int step = 0; step < 20'000; ++step) {
    const auto request = static_cast<RequestIndex>(random() % kNumRequests);
    ASSERT_EQ(actual.contains(request), expected.contains(request));
    num_comparisons = 0;
    if (expected.erase(request) > 0) {
      actual.erase(request, goes_before);
      ASSERT_LE(num_comparisons, 3 * kLevels);
    } else {
      actual.push(request, goes_before);
      expected.insert(request);
      ASSERT_LE(num_comparisons, kLevels);
    }
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_EQ(actual.empty(), expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(actual.top(), *expected.begin());
    }
    const std::set<RequestIndex, decltype(is_less)> all(actual.unordered().begin(),
                                                        actual.unordered().end(), is_less);
    ASSERT_EQ(all, expected);
  }
}

}  // namespace
}  // namespace kvfence::optimized
