/// Goal: the exhaustive scheduler visits every order exactly once, says when it did not get
/// through, and leaves out nothing that matters when it prunes.

#include "cuda/virtual/explore.h"

#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

ExploreOptions with_chunks(std::uint32_t chunks, bool prunes = false) {
  ExploreOptions options;
  options.device.chunks_max = chunks;
  options.device.polls_max = 2;
  options.prunes = prunes;
  return options;
}

using Program = void (*)(TestRig&);

std::uint64_t num_orders(std::uint32_t chunks, Program program) {
  const Exploration exploration = explore(with_chunks(chunks), [&](Device& device) {
    TestRig rig(device);
    program(rig);
  });
  EXPECT_TRUE(exploration.is_complete);
  return exploration.num_orders;
}

TEST(Explore, OneCopyOfOneChunkHasOneOrder) {
  EXPECT_EQ(num_orders(1, [](TestRig& rig) { rig.store(0, 0, 0); }), 1U);
}

TEST(Explore, TwoChunksOfOneCopyInterleave) {
  // Two chains read-write: 4! / (2! 2!).
  EXPECT_EQ(num_orders(2, [](TestRig& rig) { rig.store(0, 0, 0); }), 6U);
}

TEST(Explore, TwoCopiesInOneStreamDoNot) {
  const Program program = [](TestRig& rig) {
    rig.store(0, 0, 0);
    rig.store(0, 1, 1);
    rig.sync(0);
  };
  // The second call falls before, between or after the two steps of the first copy.
  EXPECT_EQ(num_orders(1, program), 3U);
}

TEST(Explore, TwoCopiesInTwoStreamsInterleaveWithTheSecondCall) {
  // Chains read-write and call-read-write: 5! / (2! 3!).
  EXPECT_EQ(num_orders(1,
                       [](TestRig& rig) {
                         rig.store(0, 0, 0);
                         rig.store(1, 1, 1);
                       }),
            10U);
}

TEST(Explore, EntriesOfABatchInterleave) {
  EXPECT_EQ(num_orders(1,
                       [](TestRig& rig) {
                         ok(rig.batch(0, {{rig.cpu(0), rig.gpu(0)},
                                          {rig.cpu(1), rig.gpu(1)},
                                          {rig.cpu(2), rig.gpu(2)}}));
                       }),
            90U);  // 6! / 2!^3
}

TEST(Explore, AWaitTakesOrdersAway) {
  // Of the ten of two streams, those in which the second copy begins after the first has ended.
  EXPECT_EQ(num_orders(1,
                       [](TestRig& rig) {
                         rig.store(0, 0, 0);
                         ok(cudaStreamSynchronize(rig.stream(0)));
                         rig.store(1, 1, 1);
                       }),
            1U);
}

TEST(Explore, AQueryHasEachOfItsOutcomes) {
  std::map<cudaError_t, int> outcomes;
  const Exploration exploration = explore(with_chunks(1), [&](Device& device) {
    TestRig rig(device);
    rig.store(0, 0, 0);
    ++outcomes[cudaStreamQuery(rig.stream(0))];
  });
  // The query before the read, between read and write, or after the write.
  EXPECT_EQ(exploration.num_orders, 3U);
  EXPECT_EQ(outcomes[cudaSuccess], 1);
  EXPECT_EQ(outcomes[cudaErrorNotReady], 2);
}

TEST(Explore, AnEarlyReadComesBeforeAndAfterWhatItShouldWaitFor) {
  std::set<content::Verdict> verdicts;
  explore(with_chunks(1), [&](Device& device) {
    TestRig rig(device);
    rig.set_gpu(0, {1, 1});
    rig.compute(0, 0, {1, 2});
    rig.record(0, 0);
    rig.wait(1, 0);
    ok(rig.batch(1, {{rig.cpu(0), rig.gpu(0)}}, cudaMemcpySrcAccessOrderAny));
    rig.sync(1);
    verdicts.insert(rig.look(rig.cpu(0), {1, 2}).verdict);
  });
  EXPECT_EQ(verdicts, (std::set{content::Verdict::kRight, content::Verdict::kStale}));
}

TEST(Explore, StopsAtItsBoundAndSaysSo) {
  ExploreOptions options = with_chunks(2);
  options.orders_max = 5;
  const Exploration exploration = explore(options, [](Device& device) {
    TestRig rig(device);
    rig.store(0, 0, 0);
  });
  EXPECT_EQ(exploration.num_orders, 5U);
  EXPECT_FALSE(exploration.is_complete);
  options.orders_max = 6;
  EXPECT_TRUE(explore(options, [](Device& device) {
                TestRig rig(device);
                rig.store(0, 0, 0);
              }).is_complete);
}

/// All bytes of both pools, at the end of each order.
std::pair<Exploration, std::set<std::string>> final_states(
    bool prunes, const std::function<void(TestRig&)>& program, std::uint32_t chunks = 1) {
  std::set<std::string> states;
  std::string state;
  ExploreOptions options = with_chunks(chunks, prunes);
  options.orders_max = 1'000'000;
  std::byte* gpu = nullptr;
  std::byte* cpu = nullptr;
  std::unique_ptr<TestRig> rig;
  const Exploration exploration = explore(
      options,
      [&](Device& device) {
        rig = std::make_unique<TestRig>(device);
        gpu = rig->gpu(0);
        cpu = rig->cpu(0);
        program(*rig);
      },
      [&](Device& device) {
        constexpr std::size_t kBytes = TestRig::kNumBlocks * TestRig::kBlockBytes;
        state.assign(reinterpret_cast<const char*>(device.bytes(gpu, kBytes)), kBytes);
        state.append(reinterpret_cast<const char*>(device.bytes(cpu, kBytes)), kBytes);
        states.insert(state);
      });
  rig.reset();
  EXPECT_TRUE(exploration.is_complete);
  return {exploration, states};
}

TEST(Explore, PruningReachesEveryFinalState) {
  const std::vector<Program> programs = {
      // Nothing shared.
      [](TestRig& rig) {
        rig.set_gpu(0, {1, 1});
        ok(rig.batch(
            0, {{rig.cpu(0), rig.gpu(0)}, {rig.cpu(1), rig.gpu(1)}, {rig.cpu(2), rig.gpu(2)}}));
      },
      // A chain of entries that depend on one another.
      [](TestRig& rig) {
        rig.set_cpu(0, {1, 1});
        rig.set_gpu(0, {2, 1});
        rig.set_gpu(1, {3, 1});
        ok(rig.batch(
            0, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(1), rig.gpu(0)}, {rig.gpu(2), rig.gpu(1)}}));
      },
      // Three streams that race for two blocks.
      [](TestRig& rig) {
        rig.set_cpu(0, {1, 1});
        rig.set_gpu(0, {2, 1});
        rig.compute(0, 0, {3, 1});
        rig.store(1, 0, 0);
        rig.load(2, 0, 1);
      },
  };
  for (std::size_t index = 0; index < programs.size(); ++index) {
    SCOPED_TRACE(index);
    const auto [all, all_states] = final_states(false, programs[index]);
    const auto [pruned, pruned_states] = final_states(true, programs[index]);
    EXPECT_EQ(all_states, pruned_states);
    EXPECT_EQ(all.num_redundant, 0U);
    EXPECT_LT(pruned.num_orders, all.num_orders);
    std::cout << "program " << index << ": " << all.num_orders << " orders, " << pruned.num_orders
              << " when pruned, " << all_states.size() << " final states\n";
  }
  // Of orders of which none matters one is left.
  EXPECT_EQ(final_states(true, programs[0]).first.num_orders, 1U);
}

TEST(Explore, PruningReachesEveryFinalStateOfRandomPrograms) {
  std::uint64_t num_all = 0;
  std::uint64_t num_pruned = 0;
  std::size_t num_with_several_states = 0;
  for (std::uint64_t seed = 1; seed <= 90; ++seed) {
    SCOPED_TRACE(seed);
    // Two copies in two parts each, or three whole ones.
    const std::uint32_t chunks = seed % 3 == 0 ? 2 : 1;
    const auto program = [seed, chunks](TestRig& rig) {
      Random random(seed);
      // Two blocks on each side and three streams: most programs race.
      for (std::size_t block = 0; block < 2; ++block) {
        rig.set_gpu(block, {block, 1});
        rig.set_cpu(block, {block, 2});
      }
      for (std::uint32_t step = 0; step < 4 - chunks; ++step) {
        const std::size_t stream = random.below(3);
        const std::size_t a = random.below(2);
        const std::size_t b = random.below(2);
        switch (random.below(5)) {
          case 0:
            rig.store(stream, a, b);
            break;
          case 1:
            rig.load(stream, a, b);
            break;
          case 2:
            rig.compute(stream, a, {10 + step, 1});
            break;
          case 3:
            ok(rig.batch(stream, {{rig.cpu(a), rig.gpu(b)}}, cudaMemcpySrcAccessOrderAny));
            break;
          default:
            rig.record(0, random.below(3));
            rig.wait(stream, 0);
            break;
        }
      }
    };
    const auto [all, all_states] = final_states(false, program, chunks);
    const auto [pruned, pruned_states] = final_states(true, program, chunks);
    ASSERT_EQ(all_states, pruned_states);
    ASSERT_LE(pruned.num_orders, all.num_orders);
    num_all += all.num_orders;
    num_pruned += pruned.num_orders;
    num_with_several_states += all_states.size() > 1 ? 1 : 0;
  }
  EXPECT_LT(num_pruned, num_all);
  EXPECT_GT(num_with_several_states, 10U);
}

TEST(ExploreDeathTest, WantsAProgramThatDependsOnTheDeviceAlone) {
  int num_runs = 0;
  EXPECT_DEATH(explore(with_chunks(1),
                       [&](Device& device) {
                         TestRig rig(device);
                         rig.store(0, 0, 0);
                         rig.store(num_runs++ % 2 == 0 ? 1 : 0, 1, 1);
                       }),
               "depends on nothing but the device");
}

}  // namespace
}  // namespace kvfence::virtual_device
