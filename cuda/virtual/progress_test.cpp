/// Goal: a device runs exactly as far as it is commanded to, and can say what the host knows of it.

#include "cuda/virtual/test_rig.h"

#include <gtest/gtest.h>

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kTag{3, 1};
constexpr Options kCommanded{.schedule = Schedule::kCommanded, .chunks_max = 2};

TEST(Progress, APartNeverEndsWhatTheNextEventRecords) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    TestRig rig(kCommanded);
    Random random(seed);
    const Actor stream = rig.device().stream_number(rig.stream(0));
    EXPECT_FALSE(rig.device().advance_part(stream, 1, random));
    for (std::size_t block = 0; block < 3; ++block) rig.set_gpu(block, kTag);
    rig.store(0, 0, 0);
    rig.store(0, 1, 1);
    rig.record(0, 0);
    rig.store(0, 2, 2);
    rig.record(1, 0);
    const Device::NextWork next = rig.device().next_work(stream);
    EXPECT_EQ(next.last, 2U);
    EXPECT_EQ(next.num_steps, 8U);  // two copies, each of two chunks, read and written
    ASSERT_EQ(next.writes.size(), 2U);
    EXPECT_EQ(next.writes[1].begin, rig.cpu(1));
    EXPECT_TRUE(rig.device().advance_part(stream, 3, random));
    EXPECT_EQ(rig.device().next_work(stream).num_steps, 5U);
    EXPECT_TRUE(rig.device().advance_part(stream, 100, random));
    EXPECT_EQ(rig.device().next_work(stream).num_steps, 1U);
    EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaErrorNotReady);
    EXPECT_TRUE(rig.device().advance_to_event(stream));
    EXPECT_EQ(cudaEventQuery(rig.event(0)), cudaSuccess);
    EXPECT_TRUE(rig.look(rig.cpu(1), kTag).is_right());
    EXPECT_EQ(cudaEventQuery(rig.event(1)), cudaErrorNotReady);
  }
}

TEST(Progress, APartWaitsForWhatItsStreamWaitsFor) {
  TestRig rig(kCommanded);
  Random random(1);
  const Actor stream = rig.device().stream_number(rig.stream(0));
  rig.compute(1, 0, kTag);
  rig.record(0, 1);
  rig.wait(0, 0);
  rig.store(0, 0, 0);
  EXPECT_EQ(rig.device().next_work(stream).last, 0U);
  EXPECT_FALSE(rig.device().advance_part(stream, 9, random));
  EXPECT_EQ(rig.device().advance(rig.stream(1), 1), 1U);
  EXPECT_TRUE(rig.device().advance_part(stream, 9, random));
  EXPECT_TRUE(rig.device().is_clean()) << rig.device().report();
}

TEST(Progress, APartReadsWhatMayBeReadBeforeItsTurn) {
  TestRig rig(kCommanded);
  Random random(1);
  const Actor stream = rig.device().stream_number(rig.stream(0));
  rig.compute(1, 0, kTag);
  rig.record(0, 1);
  rig.wait(0, 0);
  ok(rig.batch(0, {{rig.cpu(0), rig.gpu(0)}}, cudaMemcpySrcAccessOrderAny));
  EXPECT_FALSE(rig.device().advance_part(stream, 9, random));
  EXPECT_EQ(rig.device().queue().counters().num_early_reads, 2U);
}

TEST(Progress, APartDoesNotLoseTheDevice) {
  TestRig rig(kCommanded);
  Random random(1);
  rig.device().inject_once({{.kind = Fault::Kind::kAsynchronous}});
  rig.store(0, 0, 0);
  rig.store(0, 1, 1);
  const Actor stream = rig.device().stream_number(rig.stream(0));
  EXPECT_EQ(rig.device().next_work(stream).num_steps, 4U);  // those of the one that fails
  EXPECT_TRUE(rig.device().advance_part(stream, 9, random));
  EXPECT_FALSE(rig.device().is_lost());
  EXPECT_TRUE(rig.device().advance_to_event(stream));
  EXPECT_TRUE(rig.device().is_lost());
}

TEST(Progress, TheHostKnowsOfWritesAfterAWait) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kRandom}) {
    TestRig rig({.schedule = schedule});
    const auto knows = [&](const std::byte* block) {
      return rig.device().host_knows_writes(block, TestRig::kBlockBytes);
    };
    const Actor compute = rig.device().stream_number(rig.stream(1));
    EXPECT_TRUE(knows(rig.gpu(0)));
    rig.compute(1, 0, kTag);
    EXPECT_FALSE(knows(rig.gpu(0)));
    rig.record(0, 1);
    rig.wait(0, 0);
    rig.store(0, 0, 0);
    rig.compute(1, 1, kTag);
    EXPECT_FALSE(knows(rig.cpu(0)));
    rig.sync(0);
    EXPECT_TRUE(knows(rig.cpu(0)));
    EXPECT_TRUE(knows(rig.gpu(0)));   // the store waited for it
    EXPECT_FALSE(knows(rig.gpu(1)));  // even if it has run
    EXPECT_TRUE(rig.device().host_knows(compute, 1));
    EXPECT_FALSE(rig.device().host_knows(compute, 2));
    rig.fill(0, kTag);
    EXPECT_TRUE(knows(rig.cpu(0)));
  }
}

}  // namespace
}  // namespace kvfence::virtual_device
