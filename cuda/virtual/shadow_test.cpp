/// Goal: the shadow of memory knows the last accesses of every byte. It agrees with a shadow that
/// keeps one history per byte, and does not grow where nothing is new.

#include "cuda/virtual/shadow.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "cuda/virtual/random.h"

namespace kvfence::virtual_device {
namespace {

struct Found {
  std::uint64_t prior_call;
  std::uintptr_t begin;
  std::uintptr_t end;
};

struct ShadowTest : ::testing::Test {
  /// An access of stream `actor`, ordered only within its stream.
  std::vector<Found> touch(Actor actor, std::uintptr_t begin, std::uintptr_t end, bool is_write) {
    Access access;
    access.begin = begin;
    access.end = end;
    access.actor = actor;
    access.time = ++clocks[actor].seen[actor];
    access.call = ++num_calls;
    access.is_write = is_write;
    std::vector<Found> found;
    shadow.access(access, clocks[actor], [&](const Access& prior, auto from, auto to) {
      found.push_back({prior.call, from, to});
    });
    return found;
  }
  Shadow shadow;
  std::array<Clock, 4> clocks{};
  std::uint64_t num_calls = 0;
};

TEST_F(ShadowTest, NeighboursDoNotMeet) {
  touch(1, 100, 200, true);
  EXPECT_TRUE(touch(2, 200, 300, true).empty());
  EXPECT_TRUE(touch(2, 50, 100, true).empty());
  EXPECT_EQ(touch(2, 199, 201, true).size(), 1U);
}

TEST_F(ShadowTest, ReadsDoNotMeetReads) {
  touch(1, 0, 64, false);
  EXPECT_TRUE(touch(2, 0, 64, false).empty());
  const std::vector<Found> found = touch(3, 32, 33, true);
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].begin, 32U);
  EXPECT_EQ(found[0].end, 33U);
}

TEST_F(ShadowTest, TheSameRangeAgainCostsNothing) {
  for (int round = 0; round < 100; ++round) {
    touch(1, 0, 4096, true);
    touch(1, 0, 4096, false);
  }
  EXPECT_EQ(shadow.num_segments(), 1U);
}

TEST_F(ShadowTest, OneWriteJoinsWhatWasApart) {
  for (std::uintptr_t at = 0; at < 100; at += 10) touch(1, at, at + 5, true);
  EXPECT_EQ(shadow.num_segments(), 10U);
  touch(1, 0, 100, true);
  EXPECT_EQ(shadow.num_segments(), 1U);
}

/// One history for each byte, in the plainest form.
class PlainShadow {
 public:
  std::set<std::uint64_t> access(const Access& access, const Clock& clock) {
    std::set<std::uint64_t> calls;
    for (std::uintptr_t at = access.begin; at < access.end; ++at) {
      Byte& byte = bytes_[at];
      if (byte.write.call != 0 && !is_ordered(byte.write, access, clock)) {
        calls.insert(byte.write.call);
      }
      if (!access.is_write) {
        byte.reads.push_back(access);
        continue;
      }
      for (const Access& read : byte.reads) {
        if (!is_ordered(read, access, clock)) calls.insert(read.call);
      }
      byte.write = access;
      byte.reads.clear();
    }
    return calls;
  }

 private:
  struct Byte {
    Access write;
    std::vector<Access> reads;
  };
  std::array<Byte, 64> bytes_;
};

TEST(Shadow, AgreesWithOneHistoryForEachByte) {
  std::uint64_t num_conflicts = 0;
  std::uint64_t num_without = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Shadow shadow;
    PlainShadow plain;
    std::array<Clock, 4> clocks{};
    clocks[kHost].seen[kHost] = 1;
    for (std::uint64_t call = 1; call <= 60; ++call) {
      const auto actor = static_cast<Actor>(random.below(4));
      if (random.one_in(3)) clocks[actor].join(clocks[random.below(4)], 4);
      // The host enqueues.
      if (actor != kHost && random.one_in(2)) clocks[actor].join(clocks[kHost], 4);
      Access access;
      access.begin = random.below(64);
      access.end = access.begin + 1 + random.below(64 - access.begin);
      access.actor = actor;
      access.time = ++clocks[actor].seen[actor];
      access.call = call;
      access.is_write = random.one_in(2);
      // A read that may come early knows what the host knows.
      access.is_out_of_order = !access.is_write && actor != kHost && random.one_in(4);
      if (access.is_out_of_order) clocks[actor].join(clocks[kHost], 4);
      const Clock& clock = access.is_out_of_order ? clocks[kHost] : clocks[actor];
      std::set<std::uint64_t> found;
      shadow.access(access, clock,
                    [&](const Access& prior, auto, auto) { found.insert(prior.call); });
      const std::set<std::uint64_t> expected = plain.access(access, clock);
      // Reads that are known to be over may be left out where a later one stands for them.
      ASSERT_EQ(found.empty(), expected.empty()) << "seed " << seed << " call " << call;
      for (const std::uint64_t prior : found) ASSERT_TRUE(expected.count(prior)) << "seed " << seed;
      ++(found.empty() ? num_without : num_conflicts);
    }
  }
  EXPECT_GT(num_conflicts, 1000U);
  EXPECT_GT(num_without, 1000U);
}

}  // namespace
}  // namespace kvfence::virtual_device
