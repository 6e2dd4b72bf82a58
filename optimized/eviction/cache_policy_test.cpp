#include "optimized/eviction/cache_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/offload/offload_key_number.h"

namespace kvfence::optimized {
namespace {

using Numbers = std::vector<std::uint32_t>;

/// A policy that is spoken to in numbers. A block's slot is 100 + its number.
class Subject {
 public:
  Subject(EvictionPolicy policy, std::uint32_t capacity, bool refuses_with_idle_t1 = true)
      : policy_({policy, capacity, refuses_with_idle_t1}) {}

  ErrorCode insert(std::uint32_t number) {
    return policy_.insert(key_of_number(number), 100 + number);
  }
  ErrorCode remove(std::uint32_t number) { return policy_.remove(key_of_number(number)); }
  ErrorCode make_ready(std::uint32_t number) { return policy_.make_ready(key_of_number(number)); }
  ErrorCode acquire(std::uint32_t number) { return policy_.acquire(key_of_number(number)); }
  ErrorCode release(std::uint32_t number) { return policy_.release(key_of_number(number)); }
  void clear() { policy_.clear(); }
  StateDigest digest() const {
    StateHash hash;
    hash.add(policy_);
    return hash.digest();
  }

  void touch(const Numbers& numbers) {
    const Keys keys(numbers);
    policy_.touch(keys.views);
  }

  /// The victims; {} if it refused.
  Numbers evict(std::uint32_t num_blocks, const Numbers& protected_numbers = {}) {
    const Keys keys(protected_numbers);
    std::vector<EvictedBlock> evicted;
    const bool can_go = policy_.evict(num_blocks, keys.views, evicted);
    EXPECT_EQ(evicted.size(), can_go ? num_blocks : 0U);
    Numbers numbers;
    for (const EvictedBlock& block : evicted) {
      numbers.push_back(*number_of_key(block.key));
      EXPECT_EQ(block.slot, 100 + numbers.back());
    }
    return numbers;
  }

  /// Blocks that can go, inserted in order.
  void hold(const Numbers& numbers) {
    for (std::uint32_t number : numbers) {
      ASSERT_EQ(insert(number), ErrorCode::kNone);
      ASSERT_EQ(make_ready(number), ErrorCode::kNone);
    }
  }

  /// -2 for none.
  std::int32_t ref_cnt(std::uint32_t number) const {
    BlockStatus status;
    if (!policy_.get(key_of_number(number), status)) return -2;
    EXPECT_EQ(status.slot, 100 + number);
    return status.ref_cnt;
  }

  Numbers t1() const { return numbers_of(lists().t1); }
  Numbers t2() const { return numbers_of(lists().t2); }
  Numbers b1() const { return numbers_of(lists().b1); }
  Numbers b2() const { return numbers_of(lists().b2); }
  double target() const { return lists().target_t1_size; }
  PolicyLists lists() const {
    PolicyLists lists;
    policy_.lists(lists);
    EXPECT_EQ(policy_.size(), lists.t1.size() + lists.t2.size());
    return lists;
  }

 private:
  struct Keys {
    explicit Keys(const Numbers& numbers) {
      for (std::uint32_t number : numbers) keys.push_back(key_of_number(number));
      views.assign(keys.begin(), keys.end());
    }
    std::vector<OffloadKey> keys;
    std::vector<OffloadKeyView> views;
  };

  static Numbers numbers_of(const std::vector<PolicyEntry>& entries) {
    Numbers numbers;
    for (const PolicyEntry& entry : entries) numbers.push_back(*number_of_key(entry.key));
    return numbers;
  }
  static Numbers numbers_of(const std::vector<OffloadKey>& keys) {
    Numbers numbers;
    for (const OffloadKey& key : keys) numbers.push_back(*number_of_key(key));
    return numbers;
  }

  CachePolicy policy_;
};

Subject lru(std::uint32_t capacity) { return Subject(EvictionPolicy::kLRU, capacity); }
Subject arc(std::uint32_t capacity) { return Subject(EvictionPolicy::kARC, capacity); }

class EitherPolicy : public testing::TestWithParam<EvictionPolicy> {
 protected:
  Subject subject(std::uint32_t capacity) const { return Subject(GetParam(), capacity); }
};

TEST_P(EitherPolicy, HoldsABlockFromInsertToRemove) {
  Subject policy = subject(2);
  EXPECT_EQ(policy.ref_cnt(1), -2);
  ASSERT_EQ(policy.insert(1), ErrorCode::kNone);
  EXPECT_EQ(policy.ref_cnt(1), kNotReady);
  ASSERT_EQ(policy.make_ready(1), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  EXPECT_EQ(policy.ref_cnt(1), 2);
  ASSERT_EQ(policy.release(1), ErrorCode::kNone);
  EXPECT_EQ(policy.ref_cnt(1), 1);
  ASSERT_EQ(policy.remove(1), ErrorCode::kNone);
  EXPECT_EQ(policy.ref_cnt(1), -2);
  EXPECT_EQ(policy.lists(), PolicyLists{});
}

TEST_P(EitherPolicy, RefusesWithTheFirstCodeThatApplies) {
  Subject policy = subject(2);
  ASSERT_EQ(policy.insert(1), ErrorCode::kNone);
  policy.hold({2});
  const PolicyLists before = policy.lists();
  EXPECT_EQ(policy.insert(1), ErrorCode::kAlreadyStored);
  EXPECT_EQ(policy.insert(3), ErrorCode::kNoFreeBlocks);
  EXPECT_EQ(policy.remove(3), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.make_ready(3), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.make_ready(2), ErrorCode::kAlreadyReady);
  EXPECT_EQ(policy.acquire(3), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.acquire(1), ErrorCode::kNotReady);
  EXPECT_EQ(policy.release(3), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.release(1), ErrorCode::kNotReady);
  EXPECT_EQ(policy.release(2), ErrorCode::kNotReading);
  EXPECT_EQ(policy.lists(), before);
}

TEST_P(EitherPolicy, LetsTheOldestIdleBlocksGo) {
  Subject policy = subject(5);
  policy.hold({1, 2, 3, 4});
  ASSERT_EQ(policy.insert(5), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  EXPECT_EQ(policy.evict(2, {2, 9, 2}), (Numbers{3, 4}));
  EXPECT_EQ(policy.t1(), (Numbers{1, 2, 5}));
}

TEST_P(EitherPolicy, EvictsAllOrNothing) {
  Subject policy = subject(4);
  policy.hold({1, 2, 3, 4});
  ASSERT_EQ(policy.acquire(4), ErrorCode::kNone);
  const PolicyLists before = policy.lists();
  EXPECT_EQ(policy.evict(3, {2}), Numbers{});
  EXPECT_EQ(policy.evict(5), Numbers{});
  EXPECT_EQ(policy.evict(0), Numbers{});
  EXPECT_EQ(policy.lists(), before);
  EXPECT_EQ(policy.evict(2, {2}), (Numbers{1, 3}));
}

// What was busy keeps its place, and so does what was protected.
TEST_P(EitherPolicy, ABlockThatIsIdleAgainGoesInItsTurn) {
  Subject policy = subject(4);
  policy.hold({1, 2, 3, 4});
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  EXPECT_EQ(policy.evict(1, {2}), (Numbers{3}));
  ASSERT_EQ(policy.release(1), ErrorCode::kNone);
  EXPECT_EQ(policy.t1(), (Numbers{1, 2, 4}));
  EXPECT_EQ(policy.evict(3), (Numbers{1, 2, 4}));
}

TEST_P(EitherPolicy, ACopyGoesItsOwnWay) {
  Subject policy = subject(2);
  policy.hold({1, 2});
  Subject copy = policy;
  EXPECT_EQ(copy.evict(2), (Numbers{1, 2}));
  EXPECT_EQ(policy.t1(), (Numbers{1, 2}));
}

TEST_P(EitherPolicy, ADigestForgetsHowItCameToBe) {
  Subject fresh = subject(3);
  fresh.hold({1, 2});
  Subject used = subject(3);
  for (std::uint32_t number = 0; number < 1'000; ++number) {
    used.hold({1, 2, number + 3});
    used.touch({number + 3, 1});
    used.evict(2);
    used.clear();
  }
  used.hold({3, 1, 2});
  ASSERT_EQ(used.remove(3), ErrorCode::kNone);
  ASSERT_EQ(used.lists(), fresh.lists());
  EXPECT_EQ(used.digest(), fresh.digest());
}

TEST_P(EitherPolicy, ADigestTellsStatesApart) {
  Subject policy = subject(4);
  std::vector<StateDigest> seen = {policy.digest()};
  const auto expect_new = [&] {
    for (const StateDigest& before : seen) EXPECT_NE(policy.digest(), before);
    seen.push_back(policy.digest());
  };
  ASSERT_EQ(policy.insert(1), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.make_ready(1), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.acquire(1), ErrorCode::kNone);
  expect_new();
  policy.hold({2, 3});
  expect_new();
  policy.touch({2});
  expect_new();
  ASSERT_EQ(policy.evict(1), (Numbers{3}));
  expect_new();
}

TEST_P(EitherPolicy, ClearedIsAsBuilt) {
  Subject policy = subject(2);
  policy.hold({1, 2});
  policy.touch({1});
  policy.evict(1);
  policy.touch({1, 2});
  policy.clear();
  EXPECT_EQ(policy.lists(), PolicyLists{});
  policy.hold({2, 1});
  EXPECT_EQ(policy.t1(), (Numbers{2, 1}));
}

TEST_P(EitherPolicy, TakesKeysOfAnyLength) {
  CachePolicy policy({.policy = GetParam(), .capacity = 4});
  const std::vector<OffloadKey> keys = {"", "k", std::string(36, 'k'), std::string(200, 'k')};
  for (const OffloadKey& key : keys) {
    ASSERT_EQ(policy.insert(key, 0), ErrorCode::kNone);
    ASSERT_EQ(policy.make_ready(key), ErrorCode::kNone);
  }
  std::vector<EvictedBlock> evicted;
  ASSERT_TRUE(policy.evict(4, {}, evicted));
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(evicted[i].key, keys[i]);
}

INSTANTIATE_TEST_SUITE_P(Policies, EitherPolicy,
                         testing::Values(EvictionPolicy::kLRU, EvictionPolicy::kARC),
                         [](const auto& param) { return std::string(to_text(param.param)); });

TEST(LRU, TouchMakesTheFirstKeyTheNewest) {
  Subject policy = lru(4);
  policy.hold({1, 2, 3});
  ASSERT_EQ(policy.insert(4), ErrorCode::kNone);
  policy.touch({4, 1, 9, 2});
  EXPECT_EQ(policy.t1(), (Numbers{3, 2, 1, 4}));
  policy.touch({3, 3});
  EXPECT_EQ(policy.t1(), (Numbers{2, 1, 4, 3}));
}

TEST(LRU, RemembersNothingOfWhatWent) {
  Subject policy = lru(2);
  policy.hold({1, 2});
  ASSERT_EQ(policy.evict(2), (Numbers{1, 2}));
  policy.touch({1, 2});
  EXPECT_EQ(policy.lists(), PolicyLists{});
}

TEST(ARC, TouchPromotesWhatIsReady) {
  Subject policy = arc(4);
  policy.hold({1, 2});
  ASSERT_EQ(policy.insert(3), ErrorCode::kNone);
  ASSERT_EQ(policy.insert(4), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire(2), ErrorCode::kNone);
  policy.touch({1, 2, 3});
  EXPECT_EQ(policy.t1(), (Numbers{4, 3}));
  EXPECT_EQ(policy.t2(), (Numbers{2, 1}));
  policy.touch({2});
  EXPECT_EQ(policy.t2(), (Numbers{1, 2}));
}

TEST(ARC, ADigestForgetsWhichOfTwoListsWasUsedLast) {
  Subject policy = arc(4);
  policy.hold({1, 2});
  policy.touch({1});
  Subject other = arc(4);
  other.hold({1});
  other.touch({1});
  other.hold({2});
  ASSERT_EQ(policy.lists(), other.lists());
  EXPECT_EQ(policy.digest(), other.digest());
}

TEST(ARC, ADigestTellsGhostsAndTargetsApart) {
  Subject policy = arc(4);
  const StateDigest built = policy.digest();
  policy.hold({1, 2});
  policy.evict(2);
  const StateDigest with_ghosts = policy.digest();
  EXPECT_NE(with_ghosts, built);
  Subject raised = policy;
  raised.touch({2});
  ASSERT_EQ(raised.b1(), policy.b1());
  EXPECT_NE(raised.digest(), with_ghosts);
}

TEST(ARC, RemembersWhatWentByTheListThatItWentFrom) {
  Subject policy = arc(4);
  policy.hold({1, 2, 3, 4});
  policy.touch({3, 4});
  EXPECT_EQ(policy.evict(3), (Numbers{1, 2, 4}));
  EXPECT_EQ(policy.b1(), (Numbers{1, 2}));
  EXPECT_EQ(policy.b2(), (Numbers{4}));
  ASSERT_EQ(policy.remove(3), ErrorCode::kNone);
  EXPECT_EQ(policy.b2(), (Numbers{4}));
}

TEST(ARC, AKeyThatComesBackIsNoGhostAnyMore) {
  Subject policy = arc(2);
  policy.hold({1, 2});
  policy.touch({2});
  policy.evict(2);
  policy.hold({2, 1});
  EXPECT_EQ(policy.t1(), (Numbers{2, 1}));
  EXPECT_EQ(policy.b1(), Numbers{});
  EXPECT_EQ(policy.b2(), Numbers{});
}

TEST(ARC, GhostsMoveTheTargetByTheQuotientOfTheirNumbers) {
  Subject policy = arc(8);
  policy.hold({1, 2, 3, 4, 5, 6, 7});
  policy.touch({3, 4, 5, 6, 7});
  policy.evict(7);
  ASSERT_EQ(policy.b1(), (Numbers{1, 2}));
  ASSERT_EQ(policy.b2(), (Numbers{7, 6, 5, 4, 3}));
  policy.touch({1});
  EXPECT_EQ(policy.target(), 2.5);
  EXPECT_EQ(policy.b1(), (Numbers{2, 1}));
  policy.touch({7});
  EXPECT_EQ(policy.target(), 1.5);
  EXPECT_EQ(policy.b2(), (Numbers{6, 5, 4, 3, 7}));
  policy.touch({6, 5});
  EXPECT_EQ(policy.target(), 0);
  policy.touch({1, 2, 1, 2});
  EXPECT_EQ(policy.target(), 8);
}

/// T1 is {1, 2, 3}, T2 is {4}, all idle, and the target is 2.5 or, above T1, 5.
Subject with_target(bool is_above_t1, bool refuses_with_idle_t1) {
  Subject policy(EvictionPolicy::kARC, 8, refuses_with_idle_t1);
  policy.hold({11, 12, 13, 14, 15, 16, 17});
  policy.touch({13, 14, 15, 16, 17});
  policy.evict(7);
  policy.touch({11});
  if (is_above_t1) policy.touch({11});
  EXPECT_EQ(policy.target(), is_above_t1 ? 5 : 2.5);
  policy.hold({4});
  policy.touch({4});
  policy.hold({1, 2, 3});
  return policy;
}

TEST(ARC, TakesFromT1DownToTheFloorOfTheTarget) {
  Subject policy = with_target(/*is_above_t1=*/false, /*refuses_with_idle_t1=*/true);
  EXPECT_EQ(policy.evict(3), (Numbers{1, 2, 4}));
  EXPECT_EQ(policy.t1(), (Numbers{3}));
}

TEST(ARC, TakesFromT2WhereT1HasNoneThatCanGo) {
  Subject policy = with_target(/*is_above_t1=*/false, /*refuses_with_idle_t1=*/true);
  EXPECT_EQ(policy.evict(2, {1, 2}), (Numbers{3, 4}));
  EXPECT_EQ(policy.evict(1, {1, 2}), Numbers{});
}

TEST(ARC, RefusesWithIdleBlocksInT1) {
  Subject policy = with_target(/*is_above_t1=*/true, /*refuses_with_idle_t1=*/true);
  const PolicyLists before = policy.lists();
  EXPECT_EQ(policy.evict(2), Numbers{});
  EXPECT_EQ(policy.evict(1, {4}), Numbers{});
  EXPECT_EQ(policy.lists(), before);
  EXPECT_EQ(policy.evict(1), (Numbers{4}));
}

TEST(ARC, FallsBackToT1WithoutTheRule) {
  Subject policy = with_target(/*is_above_t1=*/true, /*refuses_with_idle_t1=*/false);
  EXPECT_EQ(policy.evict(5), Numbers{});
  EXPECT_EQ(policy.evict(3, {2}), (Numbers{4, 1, 3}));
  EXPECT_EQ(policy.evict(1), (Numbers{2}));
}

TEST(ARC, EachGhostListKeepsTheNewestOfItsCapacity) {
  Subject policy = arc(3);
  policy.hold({1, 2, 3});
  policy.evict(3);
  policy.hold({4, 5});
  EXPECT_EQ(policy.b1(), (Numbers{1, 2, 3}));
  EXPECT_EQ(policy.evict(2), (Numbers{4, 5}));
  EXPECT_EQ(policy.b1(), (Numbers{3, 4, 5}));
  policy.touch({1, 2});
  EXPECT_EQ(policy.target(), 0);
}

// Three capacities of keys are known at most, and more places are used up than there are.
TEST(ARC, GoesOnForEver) {
  Subject policy = arc(3);
  for (std::uint32_t number = 0; number < 5'000; ++number) {
    if (policy.lists().t1.size() + policy.lists().t2.size() == 3) {
      ASSERT_EQ(policy.evict(1).size(), 1U);
    }
    policy.hold({number});
    if (number % 3 == 0) policy.touch({number});
    if (number > 9) policy.touch({number - 7, number - 3});
  }
  EXPECT_EQ(policy.b1().size(), 3U);
  EXPECT_EQ(policy.b2().size(), 3U);
}

}  // namespace
}  // namespace kvfence::optimized
