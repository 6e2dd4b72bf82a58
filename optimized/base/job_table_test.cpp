// Each operation of the table, and a long random history compared with std::map.
#include "optimized/base/job_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace kvfence::optimized {
namespace {

struct Job {
  std::vector<int> list;
};

std::map<TierJobId, std::vector<int>> contents(const JobTable<Job>& table) {
  std::map<TierJobId, std::vector<int>> found;
  table.for_each([&](TierJobId id, const Job& job) { found[id] = job.list; });
  return found;
}

TEST(JobTable, FindsWhatIsThere) {
  JobTable<Job> table;
  EXPECT_EQ(table.find(0), nullptr);
  table.insert(0).list = {1};
  table.insert(5).list = {2};
  ASSERT_NE(table.find(5), nullptr);
  EXPECT_EQ(table.find(5)->list, std::vector<int>{2});
  EXPECT_EQ(table.find(4), nullptr);
  table.erase(0);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.size(), 1u);
}

TEST(JobTable, AnEntryKeepsItsStorage) {
  JobTable<Job> table;
  table.insert(1).list.reserve(100);
  table.erase(1);
  EXPECT_GE(table.insert(2).list.capacity(), 100u);
}

TEST(JobTable, BehavesAsAMap) {
  std::mt19937 random(1);
  JobTable<Job> table;
  std::map<TierJobId, std::vector<int>> expected;
  TierJobId next = 0;
  for (int step = 0; step < 20'000; ++step) {
    // The table grows for a while, and shrinks for a while.
    const bool inserts = random() % 100 < (step / 1'000 % 2 == 0 ? 60u : 40u);
    if (inserts || expected.empty()) {
      table.insert(next).list = {step};
      expected[next++] = {step};
    } else {
      auto victim = expected.lower_bound(random() % next);
      if (victim == expected.end()) victim = expected.begin();
      ASSERT_NE(table.find(victim->first), nullptr);
      EXPECT_EQ(table.find(victim->first)->list, victim->second);
      table.erase(victim->first);
      EXPECT_EQ(table.find(victim->first), nullptr);
      expected.erase(victim);
    }
    ASSERT_EQ(table.size(), expected.size());
    if (step % 100 == 0) {
      ASSERT_EQ(contents(table), expected);
    }
  }
}

}  // namespace
}  // namespace kvfence::optimized
