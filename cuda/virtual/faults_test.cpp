/// Goal: each injected fault happens where it is asked for, and a program that checks sees it.

#include <gtest/gtest.h>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

using Kind = Fault::Kind;
constexpr content::Tag kTag{1, 1};
constexpr content::Tag kStale{1, 0};

Options with(Fault fault, Schedule schedule = Schedule::kLazy) {
  return {.schedule = schedule, .faults = {fault}};
}

TEST(Faults, TheNthCallOfAFunctionReturnsACode) {
  TestRig rig(with({.kind = Kind::kReturnCode,
                    .function = Function::kMemcpyAsync,
                    .nth = 2,
                    .code = cudaErrorECCUncorrectable}));
  const auto store = [&](std::size_t block) {
    return cudaMemcpyAsync(rig.cpu(block), rig.gpu(block), 64, cudaMemcpyDefault, rig.stream(0));
  };
  EXPECT_EQ(store(0), cudaSuccess);
  EXPECT_EQ(store(1), cudaErrorECCUncorrectable);
  EXPECT_EQ(store(2), cudaSuccess);
  EXPECT_EQ(rig.device().queue().counters().num_enqueued, 2U);
  EXPECT_EQ(rig.device().counters().num_faults, 1U);
}

TEST(Faults, RegistrationFails) {
  TestRig rig(with({.kind = Kind::kReturnCode,
                    .function = Function::kHostRegister,
                    .code = cudaErrorMemoryAllocation}));
  std::vector<std::byte> memory(64);
  EXPECT_EQ(cudaHostRegister(memory.data(), 64, 0), cudaErrorMemoryAllocation);
  // A program that goes on has pageable memory.
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data(), 64, cudaMemcpyDefault, rig.stream(0)),
            cudaErrorInvalidValue);
  EXPECT_EQ(rig.device().misuses().size(), 1U);
}

TEST(Faults, AnAsynchronousErrorSurfacesLaterAndStays) {
  TestRig rig(with({.kind = Kind::kAsynchronous,
                    .function = Function::kLaunch,
                    .code = cudaErrorLaunchFailure}));
  rig.set_gpu(0, kTag);
  ok(rig.device().launch(rig.stream(0), {}, {}, [] {}));
  rig.store(0, 0, 0);
  EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)), cudaErrorLaunchFailure);
  void* address = nullptr;
  EXPECT_EQ(cudaMalloc(&address, 16), cudaErrorLaunchFailure);
  // Nothing after it ran, in no stream.
  EXPECT_FALSE(rig.look(rig.cpu(0), kTag).is_right());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

TEST(Faults, APollingProgramSeesAnAsynchronousError) {
  for (const Schedule schedule :
       {Schedule::kEager, Schedule::kLazy, Schedule::kRandom, Schedule::kPriority}) {
    TestRig rig(with({.kind = Kind::kAsynchronous,
                      .function = Function::kMemcpyAsync,
                      .code = cudaErrorIllegalAddress},
                     schedule));
    rig.store(0, 0, 0);
    cudaError_t code = cudaErrorNotReady;
    while (code == cudaErrorNotReady) code = cudaStreamQuery(rig.stream(0));
    EXPECT_EQ(code, cudaErrorIllegalAddress) << to_text(schedule);
  }
}

TEST(Faults, AnAsynchronousErrorOfNoBytesSurfacesToo) {
  TestRig rig(with({.kind = Kind::kAsynchronous,
                    .function = Function::kMemcpyAsync,
                    .code = cudaErrorIllegalAddress}));
  ok(cudaMemcpyAsync(rig.cpu(0), rig.gpu(0), 0, cudaMemcpyDefault, rig.stream(0)));
  EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)), cudaErrorIllegalAddress);
  EXPECT_TRUE(rig.device().is_lost());
}

TEST(Faults, ABatchFailsAfterAPrefix) {
  TestRig rig(with({.kind = Kind::kPartialBatch,
                    .function = Function::kMemcpyBatchAsync,
                    .code = cudaErrorInvalidValue,
                    .count = 2}));
  for (std::size_t block = 0; block < 3; ++block) rig.set_gpu(block, kTag);
  EXPECT_EQ(
      rig.batch(0, {{rig.cpu(0), rig.gpu(0)}, {rig.cpu(1), rig.gpu(1)}, {rig.cpu(2), rig.gpu(2)}}),
      cudaErrorInvalidValue);
  rig.sync(0);
  EXPECT_TRUE(rig.look(rig.cpu(0), kTag).is_right());
  EXPECT_TRUE(rig.look(rig.cpu(1), kTag).is_right());
  EXPECT_EQ(rig.look(rig.cpu(2), kTag).verdict, content::Verdict::kPoison);
}

TEST(Faults, WhatAFaultLeavesUndefinedIsPoisonInItsTurn) {
  for (const Kind kind : {Kind::kPartialBatch, Kind::kAsynchronous}) {
    TestRig rig({.schedule = Schedule::kCommanded});
    rig.set_gpu(0, kTag);
    rig.set_gpu(1, kTag);
    rig.store(0, 0, 0);
    rig.device().inject_once(
        {{.kind = kind,
          .function = Function::kMemcpyAsync,
          .undefined = {{rig.cpu(1), TestRig::kBlockBytes}, {rig.cpu(2), TestRig::kBlockBytes}}}});
    const cudaError_t code = cudaMemcpyAsync(rig.cpu(1), rig.gpu(1), TestRig::kBlockBytes,
                                             cudaMemcpyDeviceToHost, rig.stream(0));
    EXPECT_EQ(code, kind == Kind::kPartialBatch ? cudaErrorUnknown : cudaSuccess);
    EXPECT_EQ(rig.look(rig.cpu(2), kTag).verdict, content::Verdict::kPoison);
    EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)),
              kind == Kind::kPartialBatch ? cudaSuccess : cudaErrorUnknown);
    EXPECT_TRUE(rig.look(rig.cpu(0), kTag).is_right());
    EXPECT_EQ(rig.look(rig.cpu(1), kTag).verdict, content::Verdict::kForeign);
    EXPECT_EQ(rig.look(rig.cpu(2), kTag).verdict, content::Verdict::kForeign);
    EXPECT_EQ(rig.device().is_lost(), kind == Kind::kAsynchronous);
  }
}

TEST(Faults, WhatAFaultLeavesUndefinedRacesAsACopyDoes) {
  TestRig rig({.schedule = Schedule::kEager});
  rig.device().inject_once({{.kind = Kind::kPartialBatch,
                             .function = Function::kMemcpyAsync,
                             .undefined = {{rig.cpu(1), TestRig::kBlockBytes}}}});
  EXPECT_NE(cudaMemcpyAsync(rig.cpu(1), rig.gpu(1), TestRig::kBlockBytes, cudaMemcpyDeviceToHost,
                            rig.stream(0)),
            cudaSuccess);
  EXPECT_TRUE(rig.device().is_clean());
  rig.fill(1, kTag);
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Faults, AnEventIsNeverReadyUntilItIsReleased) {
  TestRig rig(with({.kind = Kind::kNeverReady, .function = Function::kEventRecord}));
  rig.set_gpu(0, kTag);
  rig.store(0, 0, 0);
  rig.record(0, 0);
  rig.sync(0);  // the work itself is over
  for (int poll = 0; poll < 100; ++poll) {
    EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaErrorNotReady);
  }
  rig.wait(1, 0);
  rig.store(1, 0, 1);
  EXPECT_EQ(cudaStreamQuery(rig.stream(1)), cudaErrorNotReady);
  EXPECT_EQ(cudaEventSynchronize(rig.event(0)), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaStreamSynchronize(rig.stream(1)), cudaErrorLaunchTimeout);
  ASSERT_EQ(rig.device().misuses().size(), 2U);
  EXPECT_EQ(rig.device().misuses()[0].kind, Misuse::Kind::kHang);

  rig.device().release_completions();
  EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaSuccess);
  rig.sync(1);
  EXPECT_TRUE(rig.look(rig.cpu(1), kTag).is_right());
}

TEST(Faults, AnEventIsReadyLate) {
  TestRig rig(with({.kind = Kind::kReadyLate, .function = Function::kEventRecord, .count = 5}));
  rig.store(0, 0, 0);
  rig.record(0, 0);
  rig.sync(0);
  int num_polls = 0;
  while (cudaEventQuery(rig.event(0)) == cudaErrorNotReady) ++num_polls;
  EXPECT_EQ(num_polls, 5);
}

TEST(Faults, ACopyIsShort) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                  Schedule::kPriority, Schedule::kCommanded}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Options options = with({.kind = Kind::kShortCopy,
                              .function = Function::kMemcpyBatchAsync,
                              .entry = 1,
                              .count = 16},
                             schedule);
      options.seed = seed;
      options.poisons_destinations = false;
      TestRig rig(options);
      rig.set_gpu(0, kTag);
      rig.set_cpu(1, kStale);
      ok(rig.batch(0, {{rig.cpu(0), rig.gpu(0)}, {rig.cpu(1), rig.gpu(0)}}));
      rig.sync(0);
      EXPECT_TRUE(rig.look(rig.cpu(0), kTag).is_right());
      const content::BlockReport report = rig.look(rig.cpu(1), kTag);
      EXPECT_EQ(report.verdict, content::Verdict::kTorn) << to_text(schedule);
      EXPECT_EQ(report.first_wrong_index, 3U);
      EXPECT_EQ(report.first_wrong_verdict, content::Verdict::kStale);
    }
  }
}

TEST(Faults, ABitIsFlipped) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kRandom}) {
    TestRig rig(with({.kind = Kind::kFlippedBit, .function = Function::kMemcpyAsync, .count = 33},
                     schedule));
    rig.set_gpu(0, kTag);
    rig.store(0, 0, 0);
    rig.sync(0);
    const content::BlockReport report = rig.look(rig.cpu(0), kTag);
    EXPECT_EQ(report.verdict, content::Verdict::kForeign);
    EXPECT_EQ(report.first_wrong_index, 2U);
    rig.store(0, 0, 1);  // the next is whole
    rig.sync(0);
    EXPECT_TRUE(rig.look(rig.cpu(1), kTag).is_right());
  }
}

TEST(FaultsDeathTest, AreRefusedWhereTheyCannotHappen) {
  EXPECT_DEATH(Device(with({.kind = Kind::kShortCopy, .function = Function::kMalloc})), "a fault");
  EXPECT_DEATH(Device(with({.kind = Kind::kReturnCode, .code = cudaSuccess})), "a fault");
  EXPECT_DEATH(Device(with({.kind = Kind::kReturnCode, .nth = 0})), "a fault");
  EXPECT_DEATH(Device(with({.function = Function::kHostRead})), "a fault");
}

}  // namespace
}  // namespace kvfence::virtual_device
