/// Goal: work runs in the order of its stream, and across streams in none. A wait guarantees the
/// end of what it waits for, and nothing else.

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

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

TEST(Streams, AKernelDoesNotCallTheRuntime) {
  TestRig rig(lazy());
  cudaError_t code = cudaSuccess;
  ok(rig.device().launch(rig.stream(0), {}, {}, [&] { code = cudaEventQuery(rig.event(0)); }));
  rig.sync(0);
  EXPECT_EQ(code, cudaErrorNotPermitted);
  ASSERT_EQ(rig.device().misuses().size(), 1U);
  EXPECT_EQ(to_text(rig.device().misuses()[0]).substr(0, 64),
            "misuse: the runtime is called by a kernel, cudaEventQuery (call ");
}

}  // namespace
}  // namespace kvfence::virtual_device
