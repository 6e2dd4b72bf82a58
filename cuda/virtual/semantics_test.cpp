/// Goal: the virtual device orders work as CUDA documents it, and no more than that; what it does
/// beyond (poison, tearing, early reads, spurious answers) is what the documentation allows.

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kOld{1, 1};
constexpr content::Tag kNew{1, 2};
constexpr content::Tag kOther{2, 1};

Options lazy() { return {.schedule = Schedule::kLazy}; }
Options commanded(std::uint32_t chunks = 2) {
  return {.schedule = Schedule::kCommanded, .chunks_max = chunks};
}

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
  work(0, 1);  // behind the event
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

TEST(Streams, APriorityPromisesNothing) {
  bool low_first = false;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    TestRig rig({.seed = seed});
    cudaStream_t low = nullptr;
    cudaStream_t high = nullptr;
    ok(cudaStreamCreateWithPriority(&low, cudaStreamNonBlocking, 0));
    ok(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -5));
    std::vector<int> order;
    ok(rig.device().launch(low, {}, {}, [&] { order.push_back(0); }));
    ok(rig.device().launch(high, {}, {}, [&] { order.push_back(1); }));
    ok(cudaDeviceSynchronize());
    low_first |= order.front() == 0;
  }
  EXPECT_TRUE(low_first);
}

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

TEST(Events, ElapsedTimeTellsOnlyOfTimedEventsThatAreOver) {
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

TEST(Copies, AreTornBetweenReadsAndWrites) {
  TestRig rig(commanded(2));
  rig.set_gpu(0, kOld);
  rig.set_cpu(0, kOther);
  rig.store(0, 0, 0);
  // Chunk by chunk: read 0, write 0, and the rest of the destination is undefined.
  EXPECT_EQ(rig.device().advance(rig.stream(0), 2), 2U);
  const content::BlockReport half = rig.look(rig.cpu(0), kOld);
  EXPECT_EQ(half.num_by_verdict[static_cast<std::size_t>(content::Verdict::kRight)], 2U);
  EXPECT_EQ(half.num_by_verdict[static_cast<std::size_t>(content::Verdict::kForeign)], 2U);
  // What is overwritten between a read and its write is not seen, what is before the read is.
  rig.set_gpu(0, kNew);
  EXPECT_EQ(rig.device().advance(rig.stream(0), 9), 2U);
  const content::BlockReport torn = rig.look(rig.cpu(0), kNew);
  EXPECT_EQ(torn.verdict, content::Verdict::kTorn);
  EXPECT_EQ(torn.num_by_verdict[static_cast<std::size_t>(content::Verdict::kStale)], 2U);
}

TEST(Copies, TheDestinationIsPoisonedBeforeTheFirstWrite) {
  for (const bool poisons : {true, false}) {
    TestRig rig(
        {.schedule = Schedule::kCommanded, .chunks_max = 2, .poisons_destinations = poisons});
    rig.set_gpu(0, kNew);
    rig.set_cpu(0, kOther);
    rig.store(0, 0, 0);
    rig.device().advance(rig.stream(0), 1);  // a read alone
    EXPECT_TRUE(rig.look(rig.cpu(0), kOther).is_right());
    rig.device().advance(rig.stream(0), 1);
    const content::BlockReport report = rig.look(rig.cpu(0), kNew);
    EXPECT_EQ(report.first_wrong_verdict,
              poisons ? content::Verdict::kForeign : content::Verdict::kOtherBlock);
    EXPECT_EQ(rig.device().queue().counters().num_poisoned, poisons ? 1U : 0U);
  }
}

TEST(Copies, OfAnyScheduleArriveWhole) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                  Schedule::kPriority, Schedule::kCommanded}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      TestRig rig({.schedule = schedule, .seed = seed});
      rig.set_gpu(0, kNew);
      rig.store(0, 0, 3);
      rig.load(0, 3, 1);
      ok(rig.batch(0, {{rig.gpu(2), rig.gpu(1)}, {rig.cpu(4), rig.cpu(3)}}));
      rig.sync(0);
      for (void* block : {static_cast<void*>(rig.cpu(3)), static_cast<void*>(rig.gpu(1)),
                          static_cast<void*>(rig.gpu(2)), static_cast<void*>(rig.cpu(4))}) {
        EXPECT_TRUE(rig.look(block, kNew).is_right()) << to_text(rig.look(block, kNew));
      }
      EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
    }
  }
}

TEST(Copies, InTwoDimensionsMoveRows) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kRandom}) {
    TestRig rig({.schedule = schedule});
    for (std::size_t block = 0; block < 6; ++block) {
      rig.set_gpu(block, {block, 1});
    }
    // Every second block of the device, one after the other on the host.
    ok(cudaMemcpy2DAsync(rig.cpu(0), TestRig::kBlockBytes, rig.gpu(1), 2 * TestRig::kBlockBytes,
                         TestRig::kBlockBytes, 3, cudaMemcpyDeviceToHost, rig.stream(0)));
    rig.sync(0);
    for (std::size_t row = 0; row < 3; ++row) rig.expect_cpu(row, {2 * row + 1, 1});
    EXPECT_TRUE(rig.wrong().empty());
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(Copies, InTwoDimensionsLeaveTheGapsAlone) {
  TestRig rig;
  rig.set_gpu(0, kOld);
  ok(cudaMemsetAsync(rig.gpu(0), 0, TestRig::kBlockBytes, rig.stream(0)));
  rig.load(1, 0, 1);
  // Rows of 16 bytes of block 2, while others write its gaps: no race.
  ok(cudaMemcpy2DAsync(rig.gpu(2), 32, rig.cpu(2), 32, 16, 2, cudaMemcpyHostToDevice,
                       rig.stream(0)));
  ok(cudaMemcpy2DAsync(rig.gpu(2) + 16, 32, rig.cpu(2) + 16, 32, 16, 2, cudaMemcpyHostToDevice,
                       rig.stream(1)));
  ok(cudaDeviceSynchronize());
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
}

TEST(Copies, MemsetSetsBytes) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kRandom}) {
    TestRig rig({.schedule = schedule});
    ok(cudaMemsetAsync(rig.gpu(0), 0x5A, TestRig::kBlockBytes, rig.stream(0)));
    rig.sync(0);
    const std::byte* bytes = rig.device().bytes(rig.gpu(0), TestRig::kBlockBytes);
    for (std::size_t index = 0; index < TestRig::kBlockBytes; ++index) {
      ASSERT_EQ(bytes[index], std::byte{0x5A});
    }
  }
}

TEST(Batches, EntriesRunInAnyOrderAndInterleaved) {
  bool is_second_first = false;
  bool is_interleaved = false;
  for (std::uint64_t seed = 1; seed <= 200 && !(is_second_first && is_interleaved); ++seed) {
    TestRig rig({.seed = seed, .spurious_not_ready_max = 0});
    rig.set_gpu(0, kNew);
    rig.set_gpu(1, kNew);
    ok(rig.batch(0, {{rig.cpu(0), rig.gpu(0)}, {rig.cpu(1), rig.gpu(1)}}));
    while (cudaStreamQuery(rig.stream(0)) == cudaErrorNotReady) {
      const bool has_first = rig.look(rig.cpu(0), kNew).is_right();
      const bool has_second = rig.look(rig.cpu(1), kNew).is_right();
      const auto has_begun = [&](std::byte* block) {
        return rig.look(block, {content::kPoisonBlock, 0}).verdict != content::Verdict::kRight;
      };
      is_second_first |= has_second && !has_first;
      is_interleaved |= !has_first && !has_second && has_begun(rig.cpu(0)) && has_begun(rig.cpu(1));
    }
  }
  EXPECT_TRUE(is_second_first);
  EXPECT_TRUE(is_interleaved);
}

TEST(Batches, WhatFollowsWaitsForAllEntries) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    TestRig rig({.seed = seed});
    rig.set_cpu(0, kNew);
    rig.set_cpu(1, kOther);
    ok(rig.batch(0, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(1), rig.cpu(1)}}));
    rig.attend(0, 0, kNew);
    rig.attend(0, 1, kOther);
    rig.sync(0);
    EXPECT_TRUE(rig.wrong().empty());
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(Batches, ASourceReadAtAnyTimeIsReadBeforeItsTurn) {
  TestRig rig(commanded(1));
  rig.set_gpu(0, kOld);
  rig.compute(0, 0, kNew);
  rig.record(0, 0);
  rig.wait(1, 0);
  ok(rig.batch(1, {{rig.cpu(0), rig.gpu(0)}}, cudaMemcpySrcAccessOrderAny));
  EXPECT_EQ(rig.device().advance(rig.stream(1), 9), 1U);  // the read; the write waits
  EXPECT_EQ(rig.device().queue().counters().num_early_reads, 1U);
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(rig.look(rig.cpu(0), kNew).verdict, content::Verdict::kStale);
  ASSERT_EQ(rig.device().races().size(), 1U);
  EXPECT_TRUE(rig.device().races()[0].second.is_out_of_order);
}

TEST(Batches, ASourceReadInStreamOrderIsNot) {
  TestRig rig(commanded(1));
  rig.compute(0, 0, kNew);
  rig.record(0, 0);
  rig.wait(1, 0);
  ok(rig.batch(1, {{rig.cpu(0), rig.gpu(0)}}));
  EXPECT_EQ(rig.device().advance(rig.stream(1), 9), 0U);
  ok(cudaDeviceSynchronize());
  EXPECT_TRUE(rig.look(rig.cpu(0), kNew).is_right());
  EXPECT_TRUE(rig.device().is_clean());
}

TEST(Batches, ASourceReadDuringTheCallMayBeRewrittenAfterIt) {
  for (const Schedule schedule : {Schedule::kLazy, Schedule::kRandom, Schedule::kEager}) {
    TestRig rig({.schedule = schedule});
    rig.fill(0, kNew);
    ok(rig.batch(0, {{rig.gpu(0), rig.cpu(0)}}, cudaMemcpySrcAccessOrderDuringApiCall));
    rig.fill(0, kOther);
    rig.sync(0);
    rig.expect_gpu(0, kNew);
    EXPECT_TRUE(rig.wrong().empty());
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(Batches, ASourceReadDuringTheCallDoesNotWaitForItsWriters) {
  TestRig rig(lazy());
  rig.store(0, 0, 0);
  ok(rig.batch(0, {{rig.gpu(1), rig.cpu(0)}}, cudaMemcpySrcAccessOrderDuringApiCall));
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Batches, ASourceReadDuringTheCallMayNotBeWrittenByTheSameBatch) {
  TestRig rig(lazy());
  std::array<void*, 2> dsts{rig.gpu(0), rig.cpu(0)};
  std::array<const void*, 2> srcs{rig.cpu(0), rig.gpu(1)};
  std::array<std::size_t, 2> sizes{TestRig::kBlockBytes, TestRig::kBlockBytes};
  std::array<cudaMemcpyAttributes, 2> attributes{};
  attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::array<std::size_t, 2> starts{0, 1};
  ok(cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), 2, attributes.data(),
                          starts.data(), 2, rig.stream(0)));
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Batches, EntriesThatReadOnePlaceConflictWithOneThatWritesIt) {
  TestRig rig(lazy());
  ok(rig.batch(0, {{rig.gpu(1), rig.gpu(0)}, {rig.gpu(2), rig.gpu(0)}, {rig.gpu(3), rig.gpu(0)}}));
  EXPECT_TRUE(rig.device().is_clean());
  ok(rig.batch(0, {{rig.gpu(1), rig.gpu(0)}, {rig.gpu(2), rig.gpu(0)}, {rig.gpu(0), rig.gpu(4)}}));
  EXPECT_EQ(rig.device().races().size(), 1U) << rig.device().report();
}

TEST(Batches, AttributesApplyFromTheirStartOn) {
  TestRig rig(commanded(1));
  std::array<void*, 3> dsts{rig.gpu(0), rig.gpu(1), rig.gpu(2)};
  std::array<const void*, 3> srcs{rig.cpu(0), rig.cpu(1), rig.cpu(2)};
  std::array<std::size_t, 3> sizes{16, 16, 16};
  std::array<cudaMemcpyAttributes, 2> attributes{};
  attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
  std::array<std::size_t, 2> starts{0, 2};
  rig.compute(0, 7, kNew);  // in front
  ok(cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), 3, attributes.data(),
                          starts.data(), 2, rig.stream(0)));
  std::vector<Step> steps;
  rig.device().list_steps(steps);
  ASSERT_EQ(steps.size(), 2U);  // the kernel, and the read of entry 2
  EXPECT_EQ(steps[1].chunk, 2U);
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

TEST(Memcpy, IsOverWhenItReturnsButNotBetweenTwoPlacesOfTheDevice) {
  TestRig rig(lazy());
  rig.set_gpu(0, kNew);
  ok(cudaMemcpy(rig.cpu(0), rig.gpu(0), TestRig::kBlockBytes, cudaMemcpyDeviceToHost));
  rig.expect_cpu(0, kNew);
  ok(cudaMemcpy(rig.gpu(1), rig.gpu(0), TestRig::kBlockBytes, cudaMemcpyDeviceToDevice));
  EXPECT_EQ(rig.device().queue().num_in_flight(), 1U);
  EXPECT_TRUE(rig.wrong().empty());
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
}

TEST(Memcpy, IsOrderedWithBlockingStreamsAndNotWithOthers) {
  for (const unsigned int flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    TestRig rig(lazy());
    cudaStream_t stream = nullptr;
    ok(cudaStreamCreateWithFlags(&stream, flags));
    ok(cudaMemsetAsync(rig.gpu(0), 1, TestRig::kBlockBytes, stream));
    ok(cudaMemcpy(rig.cpu(0), rig.gpu(0), TestRig::kBlockBytes, cudaMemcpyDeviceToHost));
    ok(cudaMemsetAsync(rig.gpu(0), 2, TestRig::kBlockBytes, stream));
    ok(cudaDeviceSynchronize());
    EXPECT_EQ(rig.device().races().size(), flags == cudaStreamNonBlocking ? 1U : 0U)
        << rig.device().report();
  }
}

TEST(Memcpy, HoldsBackBlockingStreamsAndNotOthers) {
  for (const unsigned int flags : {cudaStreamDefault, cudaStreamNonBlocking}) {
    TestRig rig(lazy());
    cudaStream_t stream = nullptr;
    ok(cudaStreamCreateWithFlags(&stream, flags));
    // Between two places of the device: it may not be over when it returns.
    ok(cudaMemcpy(rig.gpu(1), rig.gpu(0), TestRig::kBlockBytes, cudaMemcpyDeviceToDevice));
    ok(cudaMemsetAsync(rig.gpu(1), 2, TestRig::kBlockBytes, stream));
    ok(cudaStreamSynchronize(stream));
    const bool is_blocking = flags == cudaStreamDefault;
    EXPECT_EQ(rig.device().queue().num_in_flight(), is_blocking ? 0U : 1U);
    EXPECT_EQ(rig.device().races().size(), is_blocking ? 0U : 1U) << rig.device().report();
  }
}

TEST(Pageable, IsRefusedUnlessAskedFor) {
  std::array<std::byte, 64> memory{};
  TestRig rig;
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data(), 64, cudaMemcpyHostToDevice, rig.stream(0)),
            cudaErrorInvalidValue);
  ASSERT_EQ(rig.device().misuses().size(), 1U);
  EXPECT_EQ(rig.device().misuses()[0].kind, Misuse::Kind::kPageableMemory);
}

TEST(Pageable, MayBeSynchronousOrNot) {
  for (const Pageable pageable : {Pageable::kSynchronous, Pageable::kAsynchronous}) {
    std::vector<std::byte> memory(64, std::byte{1});
    TestRig rig({.schedule = Schedule::kLazy, .pageable = pageable});
    ok(cudaMemcpyAsync(rig.gpu(0), memory.data(), 64, cudaMemcpyHostToDevice, rig.stream(0)));
    rig.device().host_write(memory.data(), 64);
    memory.assign(64, std::byte{2});
    rig.sync(0);
    const bool is_synchronous = pageable == Pageable::kSynchronous;
    EXPECT_EQ(rig.device().bytes(rig.gpu(0), 1)[0], is_synchronous ? std::byte{1} : std::byte{2});
    EXPECT_EQ(rig.device().races().size(), is_synchronous ? 0U : 1U);
  }
}

TEST(Pageable, MemcpyFromItReturnsWhenTheSourceIsStaged) {
  std::vector<std::byte> memory(64, std::byte{1});
  TestRig rig({.schedule = Schedule::kLazy, .pageable = Pageable::kSynchronous});
  ok(cudaMemcpy(rig.gpu(0), memory.data(), 64, cudaMemcpyHostToDevice));
  EXPECT_EQ(rig.device().queue().num_in_flight(), 1U);
  memory.assign(64, std::byte{2});
  ok(cudaDeviceSynchronize());
  EXPECT_EQ(rig.device().bytes(rig.gpu(0), 1)[0], std::byte{1});
  EXPECT_TRUE(rig.device().is_clean());
}

TEST(Memory, FreedWithACopyInFlightIsAFault) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy}) {
    TestRig rig({.schedule = schedule});
    void* buffer = nullptr;
    ok(cudaMalloc(&buffer, 64));
    ok(cudaMemcpyAsync(buffer, rig.cpu(0), 64, cudaMemcpyHostToDevice, rig.stream(0)));
    ok(cudaFree(buffer));
    ASSERT_EQ(rig.device().races().size(), 1U);
    EXPECT_EQ(rig.device().races()[0].second.function, Function::kFree);
    // An eager device has nothing in flight, and the program is as wrong.
    EXPECT_EQ(rig.device().misuses().size(), schedule == Schedule::kLazy ? 1U : 0U);
  }
}

TEST(Memory, FreedUnderAKernelIsAnIllegalAddress) {
  TestRig rig(lazy());
  void* buffer = nullptr;
  ok(cudaMalloc(&buffer, 64));
  bool has_run = false;
  ok(rig.device().launch(rig.stream(0), {{buffer, 64}}, {}, [&] {
    rig.device().bytes(buffer, 64);
    has_run = true;
  }));
  ok(cudaFree(buffer));
  EXPECT_EQ(rig.device().races().size(), 1U);
  EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)), cudaErrorIllegalAddress);
  EXPECT_FALSE(has_run);
}

TEST(Memory, FreedAfterTheCopyIsNot) {
  TestRig rig;
  void* buffer = nullptr;
  ok(cudaHostAlloc(&buffer, 64, cudaHostAllocDefault));
  ok(cudaMemcpyAsync(rig.gpu(0), buffer, 64, cudaMemcpyHostToDevice, rig.stream(0)));
  rig.sync(0);
  ok(cudaFreeHost(buffer));
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), buffer, 64, cudaMemcpyHostToDevice, rig.stream(0)),
            cudaErrorInvalidValue);
}

TEST(Memory, UnregisteredWithACopyInFlightIsNeverTouchedAgain) {
  // The flipped bit too would be one of memory that is gone.
  TestRig rig(
      {.schedule = Schedule::kLazy, .faults = {{.kind = Fault::Kind::kFlippedBit, .count = 3}}});
  std::vector<std::byte> memory(64);
  ok(cudaHostRegister(memory.data(), 64, cudaHostRegisterDefault));
  ok(cudaMemcpyAsync(memory.data(), rig.gpu(0), 64, cudaMemcpyDeviceToHost, rig.stream(0)));
  ok(cudaHostUnregister(memory.data()));
  memory.clear();
  memory.shrink_to_fit();
  EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);  // for good
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Memory, OfTheDeviceIsGivenOutAgainOnlyWhenItIsUsedUp) {
  Device device({.schedule = Schedule::kEager, .device_memory_bytes = 4096});
  const Installed installed(device);
  std::set<void*> seen;
  for (int round = 0; round < 4; ++round) {
    void* buffer = nullptr;
    ok(cudaMalloc(&buffer, 1024));
    EXPECT_TRUE(seen.insert(buffer).second);
    ok(cudaFree(buffer));
  }
  for (int round = 0; round < 20; ++round) {
    void* buffer = nullptr;
    ok(cudaMalloc(&buffer, 1024));
    ok(cudaFree(buffer));
  }
  void* buffer = nullptr;
  EXPECT_EQ(cudaMalloc(&buffer, 8192), cudaErrorMemoryAllocation);
  EXPECT_EQ(device.num_allocations(), 0U);
}

TEST(MemoryDeathTest, OfTheDeviceIsNotForTheHost) {
  TestRig rig;
  EXPECT_DEATH(*static_cast<volatile std::byte*>(rig.gpu(0)) = std::byte{0}, "");
}

TEST(RuntimeDeathTest, WhatIsNotModelledAbortsWithItsName) {
  TestRig rig;
  EXPECT_DEATH(cudaDeviceReset(), "cudaDeviceReset");
  EXPECT_DEATH(cudaMallocAsync(nullptr, 1, rig.stream(0)), "cudaMallocAsync");
}

TEST(RuntimeDeathTest, ATwinTouchesWhatItDeclaresAlone) {
  TestRig rig;
  const auto launch_on = [&](std::size_t declared, std::size_t touched) {
    ok(rig.device().launch(rig.stream(0), {}, {{rig.gpu(declared), TestRig::kBlockBytes}},
                           [&rig, touched] { rig.set_gpu(touched, kNew); }));
    rig.sync(0);
  };
  launch_on(1, 1);
  EXPECT_DEATH(launch_on(1, 2), "touches what it has not declared");
}

TEST(RuntimeDeathTest, NeedsADevice) {
  int count = 0;
  EXPECT_DEATH(cudaGetDeviceCount(&count), "no virtual device is installed");
}

TEST(Runtime, TheLatestDeviceIsTheCurrentOne) {
  Device outer;
  const Installed outer_installed(outer);
  {
    Device inner;
    const Installed inner_installed(inner);
    EXPECT_EQ(&current(), &inner);
  }
  EXPECT_EQ(&current(), &outer);
}

TEST(Runtime, IsTheSameInEveryRunOfOneSeed) {
  const auto run = [](std::uint64_t seed) {
    TestRig rig({.seed = seed});
    for (std::size_t round = 0; round < 20; ++round) {
      rig.store(round % 4, round % 8, (round + 1) % 8);
      rig.record(0, round % 4);
      if (cudaEventQuery(rig.event(0)) == cudaSuccess) rig.fill(round % 8, kNew);
    }
    ok(cudaDeviceSynchronize());
    const WorkQueue::Counters& c = rig.device().queue().counters();
    return rig.device().report() + std::to_string(c.num_reads) + " " +
           std::to_string(rig.device().counters().num_not_ready);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace kvfence::virtual_device
