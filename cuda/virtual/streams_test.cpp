/// Goal: work runs in the order of its stream, across streams in none; host functions have their
/// turn in it; who waits gets what it waits for and no promise beyond.

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kOld{1, 1};
constexpr content::Tag kNew{1, 2};

Options lazy() { return {.schedule = Schedule::kLazy}; }

TEST(Streams, WorkOfOneStreamRunsInOrder) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    TestRig rig({.seed = seed});
    std::vector<int> order;
    for (int index = 0; index < 5; ++index) {
      ok(rig.device().launch(rig.stream(0), {}, {}, [&order, index] { order.push_back(index); }));
    }
    rig.sync(0);
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  }
}

TEST(Streams, WorkOfTwoStreamsRunsInAnyOrder) {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    TestRig rig({.seed = seed});
    std::vector<int> order;
    for (int index = 0; index < 2; ++index) {
      ok(rig.device().launch(rig.stream(0), {}, {}, [&order, index] { order.push_back(index); }));
      ok(rig.device().launch(rig.stream(1), {}, {},
                             [&order, index] { order.push_back(2 + index); }));
    }
    ok(cudaDeviceSynchronize());
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 6U);
}

TEST(Streams, SynchronizeForcesItsAncestorsAndNothingElse) {
  TestRig rig(lazy());
  std::vector<int> order;
  const auto work = [&](std::size_t stream, int name) {
    ok(rig.device().launch(rig.stream(stream), {}, {}, [&order, name] { order.push_back(name); }));
  };
  work(0, 0);
  rig.record(0, 0);
  work(0, 1);  // after the event
  rig.wait(1, 0);
  work(1, 2);
  work(2, 3);  // elsewhere
  rig.sync(1);
  EXPECT_EQ(order, (std::vector<int>{0, 2}));
}

TEST(Streams, OtherWorkMayRunWhileTheHostWaits) {
  for (const Schedule schedule : {Schedule::kRandom, Schedule::kPriority}) {
    std::array<int, 2> num_by_outcome{};
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      TestRig rig({.schedule = schedule, .seed = seed});
      bool has_run = false;
      rig.store(1, 0, 0);
      ok(rig.device().launch(rig.stream(0), {}, {}, [&] { has_run = true; }));
      rig.sync(1);
      ++num_by_outcome[has_run ? 1 : 0];
    }
    EXPECT_GT(num_by_outcome[0], 0) << to_text(schedule);
    EXPECT_GT(num_by_outcome[1], 0) << to_text(schedule);
  }
}

TEST(Streams, DestroyReturnsAtOnceAndTheWorkGoesOn) {
  TestRig rig(lazy());
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  rig.set_gpu(0, kNew);
  ok(cudaMemcpyAsync(rig.cpu(0), rig.gpu(0), TestRig::kBlockBytes, cudaMemcpyDeviceToHost, stream));
  ok(cudaStreamDestroy(stream));
  EXPECT_EQ(rig.device().queue().num_in_flight(), 1U);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  ok(cudaDeviceSynchronize());
  EXPECT_TRUE(rig.look(rig.cpu(0), kNew).is_right());
}

TEST(Streams, ANumberIsGivenAgainOnlyWhenTheHostKnowsThatItsWorkIsOver) {
  TestRig rig(lazy());
  cudaStream_t first = nullptr;
  ok(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  ok(cudaMemsetAsync(rig.gpu(0), 0, 16, first));
  ok(cudaStreamDestroy(first));
  cudaStream_t second = nullptr;
  ok(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  EXPECT_NE(rig.device().stream_number(second), rig.device().stream_number(first));
  ok(cudaDeviceSynchronize());
  cudaStream_t third = nullptr;
  ok(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  EXPECT_EQ(rig.device().stream_number(third), rig.device().stream_number(first));
  EXPECT_NE(third, first);
}

TEST(HostFunctions, RunInTheirTurnAndHoldBackWhatFollows) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    TestRig rig({.seed = seed});
    rig.set_gpu(0, kNew);
    rig.store(0, 0, 0);
    ok(cudaLaunchHostFunc(
        rig.stream(0), [](void* data) { static_cast<TestRig*>(data)->expect_cpu(0, kNew); }, &rig));
    rig.load(0, 1, 1);
    ok(rig.batch(0, {{rig.cpu(0), rig.gpu(1)}}));  // enqueued before the function has run
    rig.sync(0);
    EXPECT_EQ(rig.num_checks(), 1U);
    EXPECT_TRUE(rig.wrong().empty());
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(HostFunctions, MayRaceLikeAnythingElse) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom}) {
    TestRig rig({.schedule = schedule});
    ok(cudaLaunchHostFunc(
        rig.stream(0), [](void* data) { static_cast<TestRig*>(data)->fill(0, kNew); }, &rig));
    rig.load(1, 0, 0);
    ok(cudaDeviceSynchronize());
    EXPECT_EQ(rig.device().races().size(), 1U) << rig.device().report();
  }
}

TEST(HostFunctions, RaceWithWhatTheHostDoesAfterTheirCall) {
  TestRig rig(lazy());
  rig.fill(0, kOld);  // before: ordered
  ok(cudaLaunchHostFunc(
      rig.stream(0),
      [](void* data) {
        auto* in_function = static_cast<TestRig*>(data);
        in_function->device().host_read(in_function->cpu(0), TestRig::kBlockBytes);
      },
      &rig));
  rig.device().host_read(rig.cpu(0), TestRig::kBlockBytes);  // both read
  rig.fill(0, kNew);
  rig.sync(0);
  ASSERT_EQ(rig.device().races().size(), 1U) << rig.device().report();
  EXPECT_TRUE(rig.device().races()[0].first.is_write);
}

TEST(HostFunctions, MayNotCallTheRuntime) {
  TestRig rig;
  cudaError_t code = cudaSuccess;
  ok(cudaLaunchHostFunc(
      rig.stream(0), [](void* data) { *static_cast<cudaError_t*>(data) = cudaGetLastError(); },
      &code));
  rig.sync(0);
  EXPECT_EQ(code, cudaErrorNotPermitted);
  ASSERT_EQ(rig.device().misuses().size(), 1U);
  EXPECT_EQ(rig.device().misuses()[0].kind, Misuse::Kind::kCallInHostFunction);
}

TEST(HostFunctions, TellTheHostThroughASignal) {
  for (const bool observes : {true, false}) {
    TestRig rig({.schedule = Schedule::kEager});
    struct Flag {
      Device* device;
      Signal signal;
    } flag{&rig.device(), {}};
    rig.load(0, 0, 0);
    ok(cudaLaunchHostFunc(
        rig.stream(0),
        [](void* data) {
          auto* raised = static_cast<Flag*>(data);
          raised->device->raise(raised->signal);
        },
        &flag));
    if (observes) rig.device().observe(flag.signal);
    rig.fill(0, kNew);
    EXPECT_EQ(rig.device().races().size(), observes ? 0U : 1U);
  }
}

}  // namespace
}  // namespace kvfence::virtual_device
