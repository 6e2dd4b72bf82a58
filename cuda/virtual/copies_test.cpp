/// Goal: copies arrive whole, and until then are as torn, early and unordered as is allowed; each
/// source order behaves as documented.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kOld{1, 1};
constexpr content::Tag kNew{1, 2};
constexpr content::Tag kOther{2, 1};

Options lazy() { return {.schedule = Schedule::kLazy}; }

Options commanded(std::uint32_t chunks) {
  return {.schedule = Schedule::kCommanded, .chunks_max = chunks};
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
  // A copy misses what is written between its read and its write, and has what is written before.
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

TEST(Copies, OfPageableMemoryAreRefused) {
  std::array<std::byte, 64> memory{};
  TestRig rig;
  EXPECT_EQ(cudaMemcpyAsync(rig.gpu(0), memory.data(), 64, cudaMemcpyHostToDevice, rig.stream(0)),
            cudaErrorInvalidValue);
  ASSERT_EQ(rig.device().misuses().size(), 1U);
  EXPECT_EQ(rig.device().misuses()[0].kind, Misuse::Kind::kPageableMemory);
}

}  // namespace
}  // namespace kvfence::virtual_device
