// Goal: numbers are found until they are erased, for any collisions, and an erasure costs a
// constant for any number of neighbours. Method: compare with std::map, and count the entries
// looked at.

#include "optimized/base/open_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

#include "planted/optimized/base/open_table.h"
#include "properties/planted/switches.h"

namespace kvfence::optimized {
namespace {

using JobId = std::uint32_t;

TEST(OpenTable, AgreesWithAMap) {
  std::mt19937 random(1);
  std::map<JobId, std::uint32_t> expected;
  OpenTable<JobId> map;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const auto number = static_cast<JobId>(random() % 40);
    const JobId job = random() % 2 == 0 ? 64 * number : number;
    const auto found = expected.find(job);
    ASSERT_EQ(map.find(job), found == expected.end() ? map.kNone : found->second);
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

TEST(OpenTable, NeighboursDoNotSlowEachOther) {
  constexpr std::uint64_t kProbesMax = 60;
  for (const std::uint32_t num : {100U, 1'000U, 10'000U, 100'000U}) {
    planted::optimized::OpenTable<JobId> map;
    for (JobId job = 0; job < num; ++job) map.insert(job, job);
    // Like jobs: mostly the oldest ends first, some end in the middle, and one begins each time.
    for (JobId round = 0; round < num / 2; ++round) {
      const JobId job = round % 3 == 0 ? num - 1 - round : round;
      const std::uint64_t before = planted::operation_counts.probes;
      ASSERT_EQ(map.find(job), job);
      map.erase(job);
      map.insert(num + round, round);
      ASSERT_LE(planted::operation_counts.probes - before, kProbesMax) << num << ", " << job;
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
