#include "optimized/files/dual_queue_thread_pool.h"

#include <algorithm>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence::optimized {
namespace {

using Queue = DualQueueThreadPool::Queue;
using Blocks = std::vector<DualQueueThreadPool::MoveBlock>;

std::vector<JobResult> finished(DualQueueThreadPool& pool) {
  std::vector<JobResult> results;
  pool.get_finished(results);
  return results;
}

/// A block that reports when it has begun, and waits to be released.
struct Gate {
  std::latch begun{1};
  std::latch opened{1};
  DualQueueThreadPool::MoveBlock block() {
    return [this] {
      begun.count_down();
      opened.wait();
      return true;
    };
  }
};

TEST(DualQueueThreadPool, AJobSucceedsIfAllItsBlocksDo) {
  DualQueueThreadPool pool(1, 0, 100);
  pool.submit(7, Queue::kStores, {[] { return true; }, [] { return true; }});
  pool.submit(8, Queue::kStores, {[] { return true; }, [] { return false; }, [] { return true; }});
  pool.wait_idle();
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{7, true}, {8, false}}));
  EXPECT_EQ(finished(pool), std::vector<JobResult>());
}

TEST(DualQueueThreadPool, AJobWithoutBlocksSucceeds) {
  DualQueueThreadPool pool(1, 1, 100);
  pool.submit(1, Queue::kLoads, {});
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{1, true}}));
}

TEST(DualQueueThreadPool, ReadThreadsTakeLoadsFirst) {
  for (bool reads : {true, false}) {
    DualQueueThreadPool pool(reads ? 1 : 0, reads ? 0 : 1, 100);
    Gate gate;
    pool.submit(0, Queue::kLoads, {gate.block()});
    gate.begun.wait();
    std::string order;
    for (int i = 0; i < 2; ++i) {
      pool.submit(1, Queue::kStores, {[&] { return order += 's', true; }});
      pool.submit(2, Queue::kLoads, {[&] { return order += 'l', true; }});
    }
    gate.opened.count_down();
    pool.wait_idle();
    EXPECT_EQ(order, reads ? "llss" : "ssll");
  }
}

TEST(DualQueueThreadPool, AJobThatDoesNotFitFailsAtOnce) {
  DualQueueThreadPool pool(1, 0, 2);
  Gate gate;
  pool.submit(0, Queue::kStores, {gate.block()});
  gate.begun.wait();
  const auto block = [] { return true; };
  pool.submit(1, Queue::kStores, {block, block, block});
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{1, false}}));
  pool.submit(2, Queue::kStores, {block, block});
  pool.submit(3, Queue::kStores, {block});
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{3, false}}));
  pool.submit(4, Queue::kLoads, {block});
  gate.opened.count_down();
  pool.wait_idle();
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{0, true}, {4, true}, {2, true}}));
}

TEST(DualQueueThreadPool, ShutdownFinishesWhatRunsAndFailsTheRest) {
  DualQueueThreadPool pool(1, 0, 100);
  std::latch begun(1);
  std::latch stopped(1);
  bool ran = false;
  const auto block = [&] { return ran = true; };
  // The running block ends only after the others were dropped.
  pool.submit(0, Queue::kStores, {[&] {
                begun.count_down();
                stopped.wait();
                return true;
              }});
  begun.wait();
  pool.submit(1, Queue::kStores, {block});
  pool.submit(2, Queue::kLoads, {block, block});
  std::thread watcher([&] {
    std::vector<JobResult> results;
    while (results.size() < 2) {
      pool.get_finished(results);
      std::this_thread::yield();
    }
    EXPECT_EQ(results, (std::vector<JobResult>{{2, false}, {1, false}}));
    stopped.count_down();
  });
  pool.shutdown();
  watcher.join();
  EXPECT_FALSE(ran);
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{0, true}}));
  pool.submit(3, Queue::kLoads, {block});
  EXPECT_EQ(finished(pool), (std::vector<JobResult>{{3, false}}));
  pool.shutdown();
  EXPECT_FALSE(ran);
}

TEST(DualQueueThreadPool, EveryJobIsReportedOnceOverManyThreads) {
  constexpr TierJobId kJobs = 500;
  DualQueueThreadPool pool(3, 3, 10'000);
  std::mutex mutex;
  std::size_t num_moved = 0;
  std::vector<JobResult> results;
  for (TierJobId job = 0; job < kJobs; ++job) {
    Blocks blocks;
    for (TierJobId block = 0; block < 1 + job % 5; ++block) {
      blocks.emplace_back([&, fails = job % 7 == 0 && block == job % 3] {
        const std::lock_guard guard(mutex);
        ++num_moved;
        return !fails;
      });
    }
    pool.submit(job, job % 2 == 0 ? Queue::kLoads : Queue::kStores, std::move(blocks));
    if (job % 16 == 0) pool.get_finished(results);
  }
  pool.wait_idle();
  pool.get_finished(results);
  EXPECT_EQ(num_moved, kJobs / 5 * (1 + 2 + 3 + 4 + 5));
  ASSERT_EQ(results.size(), kJobs);
  std::sort(results.begin(), results.end(),
            [](const JobResult& a, const JobResult& b) { return a.job_id < b.job_id; });
  for (TierJobId job = 0; job < kJobs; ++job) {
    EXPECT_EQ(results[job].job_id, job);
    EXPECT_EQ(results[job].success, !(job % 7 == 0 && job % 3 < 1 + job % 5)) << job;
  }
}

}  // namespace
}  // namespace kvfence::optimized
