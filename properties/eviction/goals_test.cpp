#include "properties/eviction/goals.h"

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::eviction {
namespace {

using Situations = std::vector<Reached>;
using Blocks = std::vector<Entry>;
using Keys = std::vector<std::uint32_t>;

Entry idle(std::uint32_t key) { return {key, key, true, 0}; }
Entry writing(std::uint32_t key) { return {key, key, false, 0}; }
Entry reading(std::uint32_t key, std::uint32_t readers = 1) { return {key, key, true, readers}; }

Observation shown(Blocks t1, Blocks t2 = {}, Keys b1 = {}, Keys b2 = {}, double target = 0) {
  Observation observation;
  observation.size = static_cast<std::uint32_t>(t1.size() + t2.size());
  observation.target_t1_size = target;
  observation.t1.emplace() = std::move(t1);
  observation.t2.emplace() = std::move(t2);
  observation.b1.emplace() = std::move(b1);
  observation.b2.emplace() = std::move(b2);
  return observation;
}

Observation evicted(Observation observation, const Keys& keys) {
  observation.success.emplace() = true;
  observation.evicted.emplace();
  for (std::uint32_t key : keys) observation.evicted.emplace().push_back({key, key});
  return observation;
}

Observation failed(Observation observation) {
  observation.success.emplace() = false;
  return observation;
}

Observation without_lists(Observation observation) {
  observation.t1.reset();
  return observation;
}

/// What counting this one command adds, under ARC with a capacity of 4 unless said.
Situations reached_by(const Command& command, const Observation& before, const Observation& after,
                      std::string_view policy = "arc") {
  Config config;
  config.policy = policy;
  config.capacity = 4;
  Reach reach;
  reach.start(config);
  reach.count(command, before, after, World());
  return reached_between(Reach(), reach);
}

TEST(EvictionReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(EvictionReach, CountsWhatComesAndGoes) {
  Observation found = shown({idle(1)});
  found.found.emplace() = {idle(1)};
  EXPECT_EQ(reached_by(Get{1}, {}, found), Situations{Reached::kFound});
  found.found.emplace() = {};
  EXPECT_EQ(reached_by(Get{1}, {}, found), Situations{});

  const Observation ghosts = shown({}, {}, {1}, {2});
  EXPECT_EQ(reached_by(Insert{1, 0}, ghosts, shown({writing(1)}, {}, {}, {2})),
            Situations{Reached::kGhostInserted});
  EXPECT_EQ(reached_by(Insert{2, 0}, ghosts, shown({writing(2)}, {}, {1})),
            Situations{Reached::kGhostInserted});
  EXPECT_EQ(reached_by(Insert{3, 0}, ghosts, shown({writing(3)}, {}, {1}, {2})), Situations{});

  const Observation held = shown({writing(1), idle(2)}, {reading(3)});
  EXPECT_EQ(reached_by(Remove{1}, held, shown({idle(2)}, {reading(3)})),
            Situations{Reached::kBusyBlockRemoved});
  EXPECT_EQ(reached_by(Remove{3}, held, shown({writing(1), idle(2)})),
            Situations{Reached::kBusyBlockRemoved});
  EXPECT_EQ(reached_by(Remove{2}, held, shown({writing(1)}, {reading(3)})), Situations{});
  EXPECT_EQ(reached_by(Clear{}, ghosts, shown({})), Situations{Reached::kCleared});
  EXPECT_EQ(reached_by(Clear{}, shown({}), shown({})), Situations{});
}

TEST(EvictionReach, CountsReaders) {
  EXPECT_EQ(reached_by(Acquire{1}, shown({}, {reading(1)}), shown({}, {reading(1, 2)})),
            Situations{Reached::kTwoReaders});
  EXPECT_EQ(reached_by(Acquire{1}, shown({idle(1)}), shown({reading(1)})), Situations{});
}

TEST(EvictionReach, CountsTouches) {
  EXPECT_EQ(reached_by(Touch{{1}}, shown({idle(1)}), shown({}, {idle(1)})),
            Situations{Reached::kPromoted});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({writing(1)}), shown({writing(1)})),
            Situations{Reached::kNotReadyTouched});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({writing(1)}), shown({writing(1)}), "lru"), Situations{});
  EXPECT_EQ(reached_by(Touch{{1, 2, 1}}, shown({}, {idle(1)}), shown({}, {idle(1)})),
            Situations{Reached::kKeyTouchedTwice});
  EXPECT_EQ(reached_by(Touch{{2, 2}}, shown({}, {idle(1)}), shown({}, {idle(1)})), Situations{});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({}, {}, {1}), shown({}, {}, {1}, {}, 1)),
            Situations{Reached::kHitInB1});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({}, {}, {}, {1}, 2), shown({}, {}, {}, {1}, 1)),
            Situations{Reached::kHitInB2});
}

TEST(EvictionReach, CountsWhereTheTargetGoes) {
  const auto move = [](double from, double to, const Command& command = Touch{{9}}) {
    return reached_by(command, without_lists(shown({}, {}, {}, {}, from)),
                      without_lists(shown({}, {}, {}, {}, to)));
  };
  EXPECT_EQ(move(3, 4), Situations{Reached::kTargetAtCapacity});
  EXPECT_EQ(move(1, 0), Situations{Reached::kTargetBackAtZero});
  EXPECT_EQ(move(0, 1.5), Situations{Reached::kTargetFraction});
  EXPECT_EQ(move(1, 2), Situations{});
  EXPECT_EQ(move(1.5, 1.5), Situations{});
  EXPECT_EQ(move(4, 4), Situations{});
  EXPECT_EQ(move(1, 0, Clear{}), Situations{});
}

TEST(EvictionReach, CountsWhatIsPassedOver) {
  const Observation before = shown({reading(1), idle(2), idle(3), writing(4)});
  const Observation after = evicted(shown({reading(1), idle(2), writing(4)}, {}, {3}), {3});
  EXPECT_EQ(reached_by(Evict{1, {2}}, before, after),
            (Situations{Reached::kBusyBlockPassedOver, Reached::kProtectedBlockPassedOver}));
  const Observation all_idle = shown({idle(1), idle(2)});
  EXPECT_EQ(reached_by(Evict{1, {2}}, all_idle, evicted(shown({idle(2)}, {}, {1}), {1})),
            Situations{});
}

TEST(EvictionReach, CountsWhereVictimsComeFrom) {
  const Observation before = shown({idle(1), idle(2)}, {idle(3)});
  EXPECT_EQ(reached_by(Evict{3, {}}, before, evicted(shown({}, {}, {1, 2}, {3}), {1, 2, 3})),
            Situations{Reached::kEvictedFromBothLists});
  EXPECT_EQ(reached_by(Evict{1, {}}, before, evicted(shown({idle(1), idle(2)}, {}, {}, {3}), {3})),
            Situations{Reached::kEvictedFromT2BelowTarget});
  EXPECT_EQ(
      reached_by(Evict{1, {1, 2}}, before, evicted(shown({idle(1), idle(2)}, {}, {}, {3}), {3})),
      Situations{});
}

TEST(EvictionReach, CountsForgottenGhosts) {
  const Observation before = shown({idle(5)}, {}, {1, 2, 3, 4});
  EXPECT_EQ(reached_by(Evict{1, {}}, before, evicted(shown({}, {}, {2, 3, 4, 5}), {5})),
            Situations{Reached::kGhostForgotten});
  EXPECT_EQ(reached_by(Evict{1, {}}, shown({idle(5)}), evicted(shown({}), {5}), "lru"),
            Situations{});
}

TEST(EvictionReach, CountsFailures) {
  const Observation before = shown({idle(1)}, {reading(2)});
  EXPECT_EQ(reached_by(Evict{2, {}}, before, failed(before)), Situations{Reached::kEvictFailed});
  EXPECT_EQ(reached_by(Evict{1, {1}}, before, failed(before)), Situations{Reached::kEvictFailed});
  EXPECT_EQ(reached_by(Evict{1, {}}, before, failed(before)),
            (Situations{Reached::kEvictFailed, Reached::kEvictFailedWithIdleT1}));
}

TEST(EvictionReach, CountsRefusals) {
  for (const auto& [error, reached] :
       {std::pair{ErrorCode::kAlreadyStored, Reached::kErrorAlreadyStored},
        std::pair{ErrorCode::kNoFreeBlocks, Reached::kErrorNoFreeBlocks},
        std::pair{ErrorCode::kUnknownKey, Reached::kErrorUnknownKey},
        std::pair{ErrorCode::kNotReady, Reached::kErrorNotReady},
        std::pair{ErrorCode::kAlreadyReady, Reached::kErrorAlreadyReady},
        std::pair{ErrorCode::kNotReading, Reached::kErrorNotReading}}) {
    Observation refused = shown({});
    refused.error = error;
    EXPECT_EQ(reached_by(Release{1}, shown({}), refused), Situations{reached});
  }
}

TEST(EvictionReach, WhatNeedsTheListsIsNotCountedWithoutThem) {
  const Observation before = shown({}, {}, {1});
  const Observation after = shown({writing(1)});
  EXPECT_EQ(reached_by(Insert{1, 0}, without_lists(before), after), Situations{});
  EXPECT_EQ(reached_by(Insert{1, 0}, before, without_lists(after)), Situations{});
}

}  // namespace
}  // namespace kvfence::eviction
