/// Goal: every failure of the runtime is in the result of the transfer that it hit, nothing else
/// fails, and a success is never reported for a copy that failed.

#include <gtest/gtest.h>

#include <iostream>

#include "cuda/worker/worker.h"
#include "cuda/worker/worker_test_rig.h"

namespace kvfence::cuda {
namespace {

using virtual_device::Fault;
using virtual_device::Function;
using virtual_device::Schedule;

constexpr Schedule kSchedules[] = {Schedule::kEager, Schedule::kLazy, Schedule::kRandom,
                                   Schedule::kPriority};

RigOptions with(Fault fault, Schedule schedule, CopyPathKind path = CopyPathKind::kBatched) {
  RigOptions options;
  options.device.schedule = schedule;
  options.device.faults = {fault};
  options.worker.only_path = path;
  return options;
}

/// Scattered: several copies on every path.
TransferSpec scattered() { return WorkerRig::spec({0, 2, 6}, {0, 3, 1}); }

TEST(WorkerFaults, ACodeIsCarriedAndTheNextTransferSucceeds) {
  struct Case {
    Function function;
    std::uint64_t nth;
    CopyPathKind path;
    Direction direction;
  };
  using D = Direction;
  using K = CopyPathKind;
  // The rig makes one event and one record for a load.
  const Case cases[] = {
      {Function::kMemcpyBatchAsync, 1, K::kBatched, D::kStore},
      {Function::kMemcpyBatchAsync, 2, K::kBatched, D::kLoad},
      {Function::kMemcpyAsync, 1, K::kLooped, D::kStore},
      {Function::kMemcpyAsync, 3, K::kLooped, D::kLoad},
      {Function::kMemcpyAsync, 2, K::kStrided, D::kStore},
      {Function::kLaunch, 1, K::kKernel, D::kLoad},
      {Function::kHostAlloc, 1, K::kKernel, D::kStore},
      {Function::kHostGetDevicePointer, 2, K::kKernel, D::kStore},
      {Function::kStreamWaitEvent, 1, K::kBatched, D::kStore},
      {Function::kStreamWaitEvent, 1, K::kBatched, D::kLoad},
      {Function::kEventCreateWithFlags, 1, K::kBatched, D::kStore},
      {Function::kEventCreateWithFlags, 2, K::kBatched, D::kLoad},
      {Function::kEventRecord, 1, K::kBatched, D::kStore},
      {Function::kEventRecord, 2, K::kBatched, D::kStore},
      {Function::kEventRecord, 2, K::kBatched, D::kLoad},
      {Function::kEventQuery, 1, K::kBatched, D::kStore},
      {Function::kEventQuery, 1, K::kBatched, D::kLoad},
  };
  std::size_t num_failed = 0;
  for (const Case& c : cases) {
    for (const Schedule schedule : kSchedules) {
      SCOPED_TRACE(std::string(virtual_device::to_text(c.function)) + " " + std::to_string(c.nth) +
                   ", " + std::string(to_text(c.path)) + ", " + std::string(to_text(c.direction)) +
                   ", " + std::string(virtual_device::to_text(schedule)));
      RigOptions options =
          with({.function = c.function, .nth = c.nth, .code = cudaErrorUnknown}, schedule, c.path);
      options.worker.copy.batch_entries_max = 2;
      WorkerRig rig(options);
      ASSERT_TRUE(rig.is_open()) << rig.refusal();
      const bool is_store = c.direction == D::kStore;
      const auto submit = [&](JobId job_id) {
        if (is_store) {
          ASSERT_EQ(rig.worker().store(job_id, scattered()), ErrorCode::kNone);
          rig.worker().begin_step();
        } else {
          const cudaEvent_t after[] = {rig.record(rig.compute_stream())};
          ASSERT_EQ(rig.worker().load(job_id, scattered(), after), ErrorCode::kNone);
        }
      };
      submit(1);
      auto results = rig.poll(1);
      ASSERT_EQ(results.size(), 1U);
      EXPECT_EQ(results[0].job_id, 1U);
      EXPECT_EQ(results[0].code, cudaErrorUnknown);
      EXPECT_EQ(results[0].num_bytes, 0U);
      EXPECT_TRUE(results[0].is_at_rest);
      EXPECT_EQ(rig.worker().counters().num_failed, 1U);
      ++num_failed;
      submit(2);
      results = rig.poll(1);
      ASSERT_EQ(results.size(), 1U);
      EXPECT_EQ(results[0].job_id, 2U);
      EXPECT_TRUE(results[0].succeeded());
      rig.expect(c.direction, scattered());
      rig.worker().shutdown();
      rig.check_all();
      EXPECT_TRUE(rig.wrong().empty()) << rig.wrong().front();
      EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
      EXPECT_EQ(rig.device().counters().num_faults, 1U);
    }
  }
  std::cout << num_failed << " failures carried\n";
}

TEST(WorkerFaults, WhatIsNotOrderedIsNotEnqueued) {
  for (const Function function : {Function::kEventRecord, Function::kStreamWaitEvent}) {
    WorkerRig rig(with({.function = function, .code = cudaErrorUnknown}, Schedule::kLazy));
    rig.compute(0, 0);
    ASSERT_EQ(rig.worker().store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
    rig.worker().begin_step();
    ASSERT_EQ(rig.poll(1).size(), 1U);
    const auto& calls = rig.device().counters().num_calls;
    EXPECT_EQ(calls[static_cast<std::size_t>(Function::kMemcpyBatchAsync)], 0U);
    rig.worker().shutdown();
    ok(cudaDeviceSynchronize());
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty());
    rig.close();
    EXPECT_EQ(rig.device().num_events(), 0U);
  }
}

TEST(WorkerFaults, APartialBatchIsReportedWhenItIsAtRest) {
  for (const Schedule schedule : kSchedules) {
    RigOptions options = with({.kind = Fault::Kind::kPartialBatch,
                               .function = Function::kMemcpyBatchAsync,
                               .code = cudaErrorInvalidValue,
                               .count = 2},
                              schedule);
    WorkerRig rig(options);
    ASSERT_EQ(rig.worker().store(1, scattered()), ErrorCode::kNone);
    rig.worker().begin_step();
    const auto results = rig.poll(1);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].code, cudaErrorInvalidValue);
    ASSERT_TRUE(results[0].is_at_rest);
    for (const std::size_t row : {0U, 1U, 3U}) rig.write_cpu(row);
    rig.worker().shutdown();
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty()) << rig.wrong().front();
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(WorkerFaults, ACompletionThatNeverComesIsNeverReportedAsOne) {
  for (const Schedule schedule : kSchedules) {
    // Records: the compute stream's, then the end event.
    WorkerRig rig(
        with({.kind = Fault::Kind::kNeverReady, .function = Function::kEventRecord, .nth = 2},
             schedule));
    ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
    rig.worker().begin_step();
    std::vector<TransferResult> results;
    for (int polls = 0; polls < 100; ++polls) rig.worker().poll(results);
    ASSERT_TRUE(results.empty());
    // The other direction goes on.
    ASSERT_EQ(rig.load(2, WorkerRig::spec({4}, {4}), {rig.record(rig.compute_stream())}),
              ErrorCode::kNone);
    results = rig.poll(1);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].job_id, 2U);
    const JobId job_ids[] = {1};
    EXPECT_EQ(rig.worker().wait(job_ids), cudaErrorLaunchTimeout);
    results = rig.poll(1);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].code, cudaErrorLaunchTimeout);
    EXPECT_FALSE(results[0].is_at_rest);
  }
}

TEST(WorkerFaults, ALateCompletionIsReportedOnce) {
  for (const Schedule schedule : kSchedules) {
    WorkerRig rig(with(
        {.kind = Fault::Kind::kReadyLate, .function = Function::kEventRecord, .nth = 2, .count = 9},
        schedule));
    ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
    rig.worker().begin_step();
    std::vector<TransferResult> results;
    for (int polls = 0; polls < 200; ++polls) rig.worker().poll(results);
    ASSERT_EQ(results.size(), 1U);
    EXPECT_TRUE(results[0].succeeded());
    EXPECT_EQ(rig.worker().num_in_flight(), 0U);
  }
}

TEST(WorkerFaults, AnAsynchronousErrorFailsAllInFlight) {
  for (const Schedule schedule : kSchedules) {
    RigOptions options = with({.kind = Fault::Kind::kAsynchronous,
                               .function = Function::kMemcpyBatchAsync,
                               .code = cudaErrorIllegalAddress},
                              schedule);
    options.has_given_memory = false;
    WorkerRig rig(options);
    ASSERT_EQ(rig.worker().store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
    ASSERT_EQ(rig.worker().store(2, WorkerRig::spec({2}, {2})), ErrorCode::kNone);
    rig.worker().begin_step();
    auto results = rig.poll(2);
    ASSERT_EQ(results.size(), 2U);
    for (const TransferResult& result : results) {
      EXPECT_EQ(result.code, cudaErrorIllegalAddress);
      EXPECT_FALSE(result.is_at_rest);
    }
    // Nothing more can be done, and each transfer reports that.
    ASSERT_EQ(rig.worker().store(3, WorkerRig::spec({4}, {4})), ErrorCode::kNone);
    results = rig.worker().shutdown();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].code, cudaErrorIllegalAddress);
    // Memory that is not known to be at rest is kept: the GPU's, and the host's.
    EXPECT_EQ(rig.device().num_allocations(), 2U);
  }
}

TEST(WorkerFaults, MemoryThatMayStillBeWrittenIsNotGivenBack) {
  for (const Schedule schedule : kSchedules) {
    RigOptions options =
        with({.function = Function::kStreamSynchronize, .code = cudaErrorUnknown}, schedule);
    options.has_given_memory = false;
    WorkerRig rig(options);
    ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
    const auto results = rig.worker().shutdown();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].code, cudaErrorUnknown);
    EXPECT_FALSE(results[0].is_at_rest);
    rig.close();
    EXPECT_EQ(rig.device().num_allocations(), 2U);
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
    // The copies themselves go on, and end well.
    ok(cudaDeviceSynchronize());
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty());
  }
}

TEST(WorkerFaults, DescriptorsThatMayStillBeReadAreNotUsedAgain) {
  for (const Schedule schedule : kSchedules) {
    WorkerRig rig(with({.function = Function::kEventSynchronize, .code = cudaErrorUnknown},
                       schedule, CopyPathKind::kKernel));
    ASSERT_EQ(rig.store(1, scattered()), ErrorCode::kNone);
    const JobId first[] = {1};
    EXPECT_EQ(rig.worker().wait(first), cudaErrorUnknown);
    ASSERT_EQ(rig.poll(1).size(), 1U);
    ASSERT_EQ(rig.store(2, WorkerRig::spec({1, 3, 7}, {2, 4, 5})), ErrorCode::kNone);
    ASSERT_EQ(rig.worker().shutdown().size(), 1U);
    rig.check_all();
    EXPECT_TRUE(rig.wrong().empty());
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

TEST(WorkerFaults, ShutdownDrainsWhatIsInFlightAndDeferred) {
  for (const Schedule schedule : kSchedules) {
    for (const bool has_given_memory : {false, true}) {
      RigOptions options;
      options.device.schedule = schedule;
      options.has_given_memory = has_given_memory;
      WorkerRig rig(options);
      rig.compute(0, 0);
      ASSERT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), ErrorCode::kNone);
      rig.worker().begin_step();
      ASSERT_EQ(rig.store(2, WorkerRig::spec({2}, {2})), ErrorCode::kNone);
      ASSERT_EQ(rig.load(3, WorkerRig::spec({5}, {5}), {rig.record(rig.compute_stream())}),
                ErrorCode::kNone);
      const auto results = rig.worker().shutdown();
      ASSERT_EQ(results.size(), 3U);
      for (const TransferResult& result : results) EXPECT_TRUE(result.succeeded());
      rig.check_all(has_given_memory);
      EXPECT_TRUE(rig.wrong().empty()) << rig.wrong().front();
      EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
    }
  }
}

TEST(WorkerFaults, TheBytesShowWhatTheRuntimeDoesNotSay) {
  for (const Fault::Kind kind : {Fault::Kind::kShortCopy, Fault::Kind::kFlippedBit}) {
    for (const Schedule schedule : kSchedules) {
      WorkerRig rig(
          with({.kind = kind, .function = Function::kMemcpyBatchAsync, .entry = 2, .count = 16},
               schedule));
      ASSERT_EQ(rig.store(1, scattered()), ErrorCode::kNone);
      rig.worker().begin_step();
      const auto results = rig.poll(1);
      ASSERT_EQ(results.size(), 1U);
      EXPECT_TRUE(results[0].succeeded());
      EXPECT_TRUE(rig.wrong().empty());
      rig.worker().shutdown();
      rig.check_all();
      EXPECT_EQ(rig.wrong().size(), 1U);
    }
  }
}

TEST(WorkerFaults, WithoutPinnedMemoryOrStreamsThereIsNoWorker) {
  struct Case {
    Function function;
    std::uint64_t nth;
    bool has_given_memory;
    const char* refusal;
  };
  // The rig makes two streams.
  const Case cases[] = {
      {Function::kHostRegister, 1, true, "host memory could not be pinned: "},
      {Function::kHostAlloc, 1, false, "host memory could not be pinned: "},
      {Function::kHostGetDevicePointer, 1, true, "host memory could not be pinned: "},
      {Function::kHostGetDevicePointer, 1, false, "host memory could not be pinned: "},
      {Function::kStreamCreateWithFlags, 3, true, "a stream could not be made: "},
      {Function::kStreamCreateWithFlags, 4, false, "a stream could not be made: "},
  };
  for (const Case& c : cases) {
    RigOptions options =
        with({.function = c.function, .nth = c.nth, .code = cudaErrorMemoryAllocation},
             Schedule::kEager);
    options.has_given_memory = c.has_given_memory;
    WorkerRig rig(options);
    EXPECT_FALSE(rig.is_open());
    EXPECT_EQ(rig.refusal(), std::string(c.refusal) + "cudaErrorMemoryAllocation");
    EXPECT_EQ(rig.device().num_streams(), 2U);
    EXPECT_EQ(rig.device().num_allocations(), 1U);
    EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
  }
}

}  // namespace
}  // namespace kvfence::cuda
