/// Goal: the exhaustive scheduler visits every order exactly once, reports when it did not visit
/// all, and leaves out no final state when it prunes.

#include "contract/core/sanitized.h"
#include "cuda/virtual/explore_test_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "contract/core/digest.h"
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
  options.runs_max = 5;
  const Exploration exploration = explore(options, [](Device& device) {
    TestRig rig(device);
    rig.store(0, 0, 0);
  });
  EXPECT_EQ(exploration.num_orders, 5U);
  EXPECT_FALSE(exploration.is_complete);
  options.runs_max = 6;
  EXPECT_TRUE(explore(options, [](Device& device) {
                TestRig rig(device);
                rig.store(0, 0, 0);
              }).is_complete);
}

struct Ends {
  Exploration exploration;
  std::set<Xxh3Digest> states;  ///< digests of both pools, at the end of each order
};

Ends explore_ends(bool prunes, const std::function<void(TestRig&)>& program,
                  std::uint32_t chunks = 1) {
  constexpr std::size_t kPoolBytes = TestRig::kNumBlocks * TestRig::kBlockBytes;
  Ends ends;
  ExploreOptions options = with_chunks(chunks, prunes);
  options.runs_max = 2000;
  const std::byte* gpu = nullptr;
  const std::byte* cpu = nullptr;
  ends.exploration = explore(
      options,
      [&](Device& device) {
        TestRig rig(device);
        gpu = rig.gpu(0);
        cpu = rig.cpu(0);
        program(rig);
        ok(cudaDeviceSynchronize());
      },
      [&](Device& device) {
        std::array<std::byte, 2 * kPoolBytes> pools;
        std::copy_n(device.bytes(gpu, kPoolBytes), kPoolBytes, pools.begin());
        std::copy_n(device.bytes(cpu, kPoolBytes), kPoolBytes, pools.begin() + kPoolBytes);
        ends.states.insert(xxh3_128(pools));
      });
  return ends;
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
    const Ends all = explore_ends(false, programs[index]);
    const Ends pruned = explore_ends(true, programs[index]);
    EXPECT_TRUE(all.exploration.is_complete && pruned.exploration.is_complete);
    EXPECT_TRUE(all.states == pruned.states);
    EXPECT_EQ(all.exploration.num_redundant, 0U);
    EXPECT_LT(pruned.exploration.num_orders, all.exploration.num_orders);
    std::cout << "program " << index << ": " << all.exploration.num_orders << " orders, "
              << pruned.exploration.num_orders << " when pruned, " << all.states.size()
              << " final states\n";
  }
  // Where no order matters one is left.
  EXPECT_EQ(explore_ends(true, programs[0]).exploration.num_orders, 1U);
}

/// Two blocks on each side and three streams: most programs race.
void random_program(TestRig& rig, std::uint64_t seed, std::uint32_t num_steps) {
  Random random(seed);
  for (std::size_t block = 0; block < 2; ++block) {
    rig.set_gpu(block, {block, 1});
    rig.set_cpu(block, {block, 2});
  }
  for (std::uint32_t step = 0; step < num_steps; ++step) {
    const std::size_t stream = random.below(3);
    const std::size_t a = random.below(2);
    const std::size_t b = random.below(2);
    const auto order =
        random.one_in(2) ? cudaMemcpySrcAccessOrderAny : cudaMemcpySrcAccessOrderStream;
    switch (random.below(9)) {
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
        ok(rig.batch(stream, {{rig.cpu(a), rig.gpu(b)}}, order));
        break;
      case 4:
        ok(rig.batch(stream, {{rig.gpu(a), rig.cpu(0)}, {rig.gpu(1 - a), rig.cpu(1)}}, order));
        break;
      case 5:
        rig.fill(a, {20 + step, 1});
        break;
      case 6:
        rig.sync(stream);
        break;
      default:
        rig.record(0, random.below(3));
        rig.wait(stream, 0);
        break;
    }
  }
}

TEST(Explore, PruningReachesEveryFinalStateOfRandomPrograms) {
  std::uint64_t num_all = 0;
  std::uint64_t num_pruned = 0;
  std::size_t num_compared = 0;
  std::size_t num_with_several_states = 0;
  for (std::uint64_t seed = 1; seed <= (kIsSanitized ? 40 : 150); ++seed) {
    SCOPED_TRACE(seed);
    // Two steps with copies in two parts, or three with whole ones.
    const std::uint32_t chunks = seed % 3 == 0 ? 2 : 1;
    const auto program = [&](TestRig& rig) { random_program(rig, seed, 4 - chunks); };
    const Ends all = explore_ends(false, program, chunks);
    if (!all.exploration.is_complete) continue;  // too many orders to see all of them
    const Ends pruned = explore_ends(true, program, chunks);
    if (!pruned.exploration.is_complete) continue;
    ASSERT_TRUE(all.states == pruned.states);
    ++num_compared;
    num_all += all.exploration.num_orders;
    num_pruned += pruned.exploration.num_orders;
    num_with_several_states += all.states.size() > 1 ? 1 : 0;
  }
  EXPECT_LT(num_pruned, num_all);
  EXPECT_GT(num_compared, 20U);
  EXPECT_GT(num_with_several_states, 5U);
  std::cout << num_compared << " programs, " << num_all << " orders, " << num_pruned
            << " when pruned\n";
}

// Checks happens-before against the bytes of every order: where it finds no race, the device must
// make no difference.
TEST(Explore, AProgramWithoutARaceHasOneFinalState) {
  std::size_t num_clean = 0;
  std::size_t num_racy = 0;
  std::size_t num_racy_with_several_states = 0;
  for (std::uint64_t seed = 1; seed <= (kIsSanitized ? 50 : 250); ++seed) {
    SCOPED_TRACE(seed);
    const std::uint32_t num_steps = 3 + static_cast<std::uint32_t>(seed % 3);
    std::set<bool> verdicts;
    const Ends ends = explore_ends(true, [&](TestRig& rig) {
      random_program(rig, seed, num_steps);
      verdicts.insert(!rig.device().races().empty());
    });
    ASSERT_EQ(verdicts.size(), 1U);
    if (*verdicts.begin()) {
      ++num_racy;
      num_racy_with_several_states += ends.states.size() > 1 ? 1 : 0;
    } else {
      ++num_clean;
      ASSERT_EQ(ends.states.size(), 1U);
    }
  }
  EXPECT_GT(num_clean, 10U);
  EXPECT_GT(num_racy_with_several_states, 10U);
  std::cout << num_clean << " clean programs, " << num_racy << " racy ones, of which "
            << num_racy_with_several_states << " end in several states\n";
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
