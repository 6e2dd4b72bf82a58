/// Goal: giving memory back under work in flight is a fault. A program ends where it uses what the
/// device does not model, or touches memory that the host may not. A run repeats itself.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

constexpr content::Tag kNew{1, 2};

Options lazy() { return {.schedule = Schedule::kLazy}; }

TEST(Memory, FreedWithACopyInFlightIsAFault) {
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy}) {
    TestRig rig({.schedule = schedule});
    void* buffer = nullptr;
    ok(cudaMalloc(&buffer, 64));
    ok(cudaMemcpyAsync(buffer, rig.cpu(0), 64, cudaMemcpyHostToDevice, rig.stream(0)));
    ok(cudaFree(buffer));
    ASSERT_EQ(rig.device().races().size(), 1U);
    EXPECT_EQ(rig.device().races()[0].second.function, Function::kFree);
    // An eager device has nothing in flight, but the program is just as wrong.
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
  // The flipped bit would lie in freed memory, too.
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
  EXPECT_DEATH(cudaDeviceSynchronize(), "no virtual device is installed");
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
