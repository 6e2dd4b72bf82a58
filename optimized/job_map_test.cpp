// Goal: numbers are found until they are erased, whatever collides. Method: beside std::map.

#include "optimized/job_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace kvfence::optimized {
namespace {

TEST(JobMap, AgreesWithAMap) {
  std::mt19937 random(1);
  std::map<JobId, std::uint32_t> expected;
  JobMap map;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    // Multiples of 64 share their home.
    const auto number = static_cast<JobId>(random() % 40);
    const JobId job = random() % 2 == 0 ? 64 * number : number;
    const auto found = expected.find(job);
    ASSERT_EQ(map.find(job), found == expected.end() ? JobMap::kNone : found->second);
    if (found == expected.end()) {
      map.insert(job, i);
      expected[job] = i;
    } else {
      map.erase(job);
      expected.erase(found);
    }
    ASSERT_EQ(map.size(), expected.size());
    if (i % 4'000 != 3'999) continue;
    map.clear();
    expected.clear();
  }
}

}  // namespace
}  // namespace kvfence::optimized
