/// Goal: an event stands for the work of its latest record; waits and queries bind it at their
/// call; only a positive answer gives order.

#include <gtest/gtest.h>

#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kNew{1, 2};

Options lazy() { return {.schedule = Schedule::kLazy}; }

TEST(Events, NeverRecordedIsAnEmptySet) {
  TestRig rig(lazy());
  rig.store(0, 0, 0);
  EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaSuccess);
  ok(cudaEventSynchronize(rig.event(0)));
  rig.wait(1, 0);
  rig.sync(1);
  EXPECT_EQ(rig.device().queue().num_in_flight(), 1U);
}

TEST(Events, RecordCapturesWhatIsThereAtTheCall) {
  TestRig rig(lazy());
  std::vector<int> order;
  ok(rig.device().launch(rig.stream(0), {}, {}, [&] { order.push_back(0); }));
  rig.record(0, 0);
  ok(rig.device().launch(rig.stream(0), {}, {}, [&] { order.push_back(1); }));
  ok(cudaEventSynchronize(rig.event(0)));
  EXPECT_EQ(order, (std::vector<int>{0}));
  EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaSuccess);
}

TEST(Events, WaitBindsTheSnapshotOfItsOwnCall) {
  TestRig rig(lazy());
  std::vector<int> order;
  const auto work = [&](std::size_t stream, int name) {
    ok(rig.device().launch(rig.stream(stream), {}, {}, [&order, name] { order.push_back(name); }));
  };
  work(0, 0);
  rig.record(0, 0);
  rig.wait(1, 0);  // on 0
  work(1, 1);
  work(0, 2);
  rig.record(0, 0);  // does not concern the wait above
  rig.sync(1);
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
  EXPECT_TRUE(rig.device().is_clean());
}

TEST(Events, RecordedAgainBeforeTheWaitLosesTheFirst) {
  TestRig rig(lazy());
  std::vector<int> order;
  ok(rig.device().launch(rig.stream(0), {}, {}, [&] { order.push_back(0); }));
  rig.record(0, 0);
  rig.record(0, 2);  // an idle stream
  rig.wait(1, 0);
  ok(rig.device().launch(rig.stream(1), {}, {}, [&] { order.push_back(1); }));
  rig.sync(1);
  EXPECT_EQ(order, (std::vector<int>{1}));
}

TEST(Events, DestroyedBeforeItCompletesStillHoldsItsWaiters) {
  TestRig rig(lazy());
  std::vector<int> order;
  ok(rig.device().launch(rig.stream(0), {}, {}, [&] { order.push_back(0); }));
  rig.record(0, 0);
  rig.wait(1, 0);
  ok(cudaEventDestroy(rig.event(0)));
  ok(rig.device().launch(rig.stream(1), {}, {}, [&] { order.push_back(1); }));
  rig.sync(1);
  EXPECT_EQ(order, (std::vector<int>{0, 1}));
  EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaErrorInvalidResourceHandle);
}

TEST(Events, ADestroyedOneIsNotItsSuccessor) {
  TestRig rig(lazy());
  ok(cudaEventDestroy(rig.event(3)));
  cudaEvent_t successor = nullptr;
  ok(cudaEventCreateWithFlags(&successor, cudaEventDisableTiming));
  EXPECT_NE(successor, rig.event(3));
  EXPECT_EQ(cudaEventQuery(rig.event(3)), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(successor), cudaSuccess);
}

TEST(Events, AQueryMayWronglySayNotReadyButNotForEver) {
  std::uint64_t num_spurious = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    TestRig rig({.seed = seed, .spurious_not_ready_max = 3});
    rig.record(0, 0);  // of no work
    int num_not_ready = 0;
    while (cudaEventQuery(rig.event(0)) == cudaErrorNotReady) ++num_not_ready;
    EXPECT_LE(num_not_ready, 3);
    num_spurious += rig.device().counters().num_spurious;
  }
  EXPECT_GT(num_spurious, 0U);
}

TEST(Events, NotReadyGivesNoOrder) {
  TestRig rig(lazy());
  rig.load(0, 0, 0);
  rig.record(0, 0);
  EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaErrorNotReady);
  rig.fill(0, kNew);
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Events, ASuccessfulQueryGivesOrder) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom}) {
    TestRig rig({.schedule = schedule});
    rig.load(0, 0, 0);
    rig.record(0, 0);
    while (cudaEventQuery(rig.event(0)) == cudaErrorNotReady) {
    }
    rig.fill(0, kNew);
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(Events, PollingEndsUnderEverySchedule) {
  for (const Schedule schedule :
       {Schedule::kEager, Schedule::kLazy, Schedule::kRandom, Schedule::kPriority}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      TestRig rig({.schedule = schedule, .seed = seed});
      rig.store(0, 0, 0);
      int num_polls = 0;
      while (cudaStreamQuery(rig.stream(0)) == cudaErrorNotReady) ASSERT_LT(++num_polls, 30);
    }
  }
}

TEST(Events, ElapsedTimeNeedsTimedEventsThatAreOver) {
  TestRig rig(lazy());
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  ok(cudaEventCreateWithFlags(&start, cudaEventDefault));
  ok(cudaEventCreateWithFlags(&end, cudaEventDefault));
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  ok(cudaEventRecord(start, rig.stream(0)));
  rig.store(0, 0, 0);
  ok(cudaEventRecord(end, rig.stream(0)));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ok(cudaEventSynchronize(end));
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GT(ms, 0.0F);
  EXPECT_EQ(cudaEventElapsedTime(&ms, rig.event(0), end), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace kvfence::virtual_device
