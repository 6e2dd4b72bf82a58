#include "optimized/offload/reuse_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/offload/offload_key_number.h"

namespace kvfence::optimized {
namespace {

TEST(ReuseTracker, CountsAsAList) {
  for (const std::uint32_t num_keys_max : {1U, 2U, 7U, 40U}) {
    SCOPED_TRACE(num_keys_max);
    ReuseTracker tracker(num_keys_max);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> expected;  // number, count; oldest first
    std::mt19937 random(num_keys_max);
    for (int step = 0; step < 5'000; ++step) {
      const auto number = static_cast<std::uint32_t>(random() % (2 * num_keys_max));
      const auto found =
          std::find_if(expected.begin(), expected.end(),
                       [number](const auto& entry) { return entry.first == number; });
      const std::uint32_t count = found == expected.end() ? 0 : found->second;
      ASSERT_EQ(tracker.count_of(key_of_number(number)), count);
      if (found != expected.end()) {
        expected.erase(found);
      } else if (expected.size() == num_keys_max) {
        expected.erase(expected.begin());
      }
      tracker.count(key_of_number(number));
      expected.emplace_back(number, count + 1);
    }
    for (const auto& entry : expected) {
      EXPECT_EQ(tracker.count_of(key_of_number(entry.first)), entry.second);
    }
  }
}

StateDigest digest_of(const ReuseTracker& tracker, std::uint32_t count_max) {
  StateHash hash;
  tracker.add_to(hash, count_max);
  return hash.digest();
}

TEST(ReuseTracker, ADigestDistinguishesCountsUpToTheLargestOfInterest) {
  ReuseTracker twice(2);
  for (int i = 0; i < 2; ++i) twice.count(key_of_number(1));
  ReuseTracker thrice = twice;
  thrice.count(key_of_number(1));
  EXPECT_EQ(digest_of(twice, 2), digest_of(thrice, 2));
  EXPECT_NE(digest_of(twice, 3), digest_of(thrice, 3));
}

TEST(ReuseTracker, ADigestForgetsWhatWasDroppedAndWhere) {
  ReuseTracker tracker(2);
  for (std::uint32_t number : {1U, 2U}) tracker.count(key_of_number(number));
  ReuseTracker used(2);
  for (std::uint32_t number : {3U, 4U, 2U, 3U, 1U, 2U}) used.count(key_of_number(number));
  EXPECT_EQ(digest_of(used, 2), digest_of(tracker, 2));
  ReuseTracker other_order(2);
  for (std::uint32_t number : {2U, 1U}) other_order.count(key_of_number(number));
  EXPECT_NE(digest_of(other_order, 2), digest_of(tracker, 2));
}

}  // namespace
}  // namespace kvfence::optimized
