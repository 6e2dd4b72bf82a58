// Numbers, keys and digests of LRU and ARC, on both sides, with policies small enough to write out
// every list. scenarios/cases/eviction/ has each single rule and refusal.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/core/state_digest.h"
#include "optimized/eviction/cache_policy.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/eviction/cache_policy.h"

namespace kvfence {
namespace {

using Keys = std::vector<OffloadKeyView>;

template <class CachePolicy>
CachePolicy lru(std::uint32_t capacity) {
  return CachePolicy({EvictionPolicy::kLRU, capacity, /*arc_refuses_with_idle_t1=*/true});
}

template <class CachePolicy>
CachePolicy arc(std::uint32_t capacity, bool arc_refuses_with_idle_t1 = true) {
  return CachePolicy({EvictionPolicy::kARC, capacity, arc_refuses_with_idle_t1});
}

/// "1 2? 3+2": block 1 is idle, 2 is not ready, 3 has two readers.
std::string text_of(const std::vector<PolicyEntry>& blocks) {
  std::string text;
  for (const PolicyEntry& block : blocks) {
    text += (text.empty() ? "" : " ") + block.key;
    if (block.status.ref_cnt == kNotReady) text += "?";
    if (block.status.ref_cnt > 0) text += "+" + std::to_string(block.status.ref_cnt);
  }
  return text;
}

std::string text_of(const std::vector<OffloadKey>& ghosts) {
  std::string text;
  for (const OffloadKey& ghost : ghosts) text += (text.empty() ? "" : " ") + ghost;
  return text;
}

/// "T1 | T2 | B1 | B2 | target", oldest first.
template <class CachePolicy>
std::string show(const CachePolicy& policy) {
  PolicyLists lists;
  policy.lists(lists);
  std::ostringstream text;
  text << text_of(lists.t1) << " | " << text_of(lists.t2) << " | " << text_of(lists.b1) << " | "
       << text_of(lists.b2) << " | " << lists.target_t1_size;
  return text.str();
}

/// Inserts blocks and makes them ready; a block's slot is its place in the list.
template <class CachePolicy>
void store(CachePolicy& policy, std::initializer_list<OffloadKeyView> keys) {
  SlotId slot = 0;
  for (const OffloadKeyView key : keys) {
    EXPECT_EQ(policy.insert(key, slot++), ErrorCode::kNone) << key;
    EXPECT_EQ(policy.make_ready(key), ErrorCode::kNone) << key;
  }
}

/// The keys of the victims in the order of choice; nothing if so many cannot be evicted.
template <class CachePolicy>
std::optional<std::string> evict(CachePolicy& policy, std::uint32_t num_blocks,
                                 const Keys& protected_keys = {}) {
  std::vector<EvictedBlock> evicted;
  if (!policy.evict(num_blocks, protected_keys, evicted)) {
    EXPECT_TRUE(evicted.empty());
    return std::nullopt;
  }
  std::string text;
  for (const EvictedBlock& block : evicted) text += (text.empty() ? "" : " ") + block.key;
  return text;
}

template <class CachePolicy>
StateDigest digest_of(const CachePolicy& policy) {
  StateHash hash;
  hash.add(policy);
  return hash.digest();
}

/// What both policies have in common.
template <class Policy, EvictionPolicy kPolicy>
struct With {
  static Policy make(std::uint32_t capacity) {
    return Policy({kPolicy, capacity, /*arc_refuses_with_idle_t1=*/true});
  }
};

template <class Made>
class BothPolicies : public ::testing::Test {};
using All = ::testing::Types<With<reference::CachePolicy, EvictionPolicy::kLRU>,
                             With<reference::CachePolicy, EvictionPolicy::kARC>,
                             With<optimized::CachePolicy, EvictionPolicy::kLRU>,
                             With<optimized::CachePolicy, EvictionPolicy::kARC>>;
TYPED_TEST_SUITE(BothPolicies, All);

template <class Policy>
class LRURules : public ::testing::Test {};
template <class Policy>
class ARCRules : public ::testing::Test {};
using BothSides = ::testing::Types<reference::CachePolicy, optimized::CachePolicy>;
TYPED_TEST_SUITE(LRURules, BothSides, SideNames);
TYPED_TEST_SUITE(ARCRules, BothSides, SideNames);

TYPED_TEST(BothPolicies, EvictingNothingDoesNothingAndAbsurdCountsAreRefused) {
  auto policy = TypeParam::make(2);
  EXPECT_EQ(evict(policy, 0), "");
  EXPECT_EQ(evict(policy, 1), std::nullopt);
  store(policy, {"1", "2"});
  EXPECT_EQ(evict(policy, 0), "");
  EXPECT_EQ(evict(policy, UINT32_MAX), std::nullopt);
  EXPECT_EQ(show(policy), "1 2 |  |  |  | 0");
}

TYPED_TEST(BothPolicies, EvictAppendsWithTheSlotsOfTheVictims) {
  auto policy = TypeParam::make(2);
  store(policy, {"1", "2"});
  std::vector<EvictedBlock> evicted = {{"before", 9}};
  ASSERT_TRUE(policy.evict(2, {}, evicted));
  EXPECT_EQ(evicted, (std::vector<EvictedBlock>{{"before", 9}, {"1", 0}, {"2", 1}}));
}

TYPED_TEST(BothPolicies, TakesKeysOfAnyLength) {
  auto policy = TypeParam::make(4);
  const std::string medium(36, 'k');
  const std::string large(200, 'k');
  store(policy, {"", "k", medium, large});
  EXPECT_EQ(evict(policy, 4), "k " + medium + " " + large);
}

// Keys, places and links are reused.
TYPED_TEST(BothPolicies, ADigestForgetsHowAStateCameToBe) {
  auto fresh = TypeParam::make(3);
  store(fresh, {"1", "2"});
  auto used = TypeParam::make(3);
  for (int number = 3; number < 1'000; ++number) {
    const std::string key = std::to_string(number);
    store(used, {"1", "2", key});
    used.touch(Keys{key, "1"});
    evict(used, 2);
    used.clear();
  }
  store(used, {"1", "2", "3"});
  ASSERT_EQ(used.remove("3"), ErrorCode::kNone);
  ASSERT_EQ(show(used), show(fresh));
  EXPECT_EQ(digest_of(used), digest_of(fresh));
}

TYPED_TEST(BothPolicies, ADigestTellsStatesApart) {
  auto policy = TypeParam::make(4);
  std::vector<StateDigest> seen = {digest_of(policy)};
  const auto expect_new = [&] {
    for (const StateDigest& before : seen) EXPECT_NE(digest_of(policy), before);
    seen.push_back(digest_of(policy));
  };
  ASSERT_EQ(policy.insert("1", 0), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.make_ready("1"), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  expect_new();
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  expect_new();
  store(policy, {"2", "3"});
  expect_new();
  policy.touch(Keys{"2"});
  expect_new();
  EXPECT_EQ(evict(policy, 1), "3");
  expect_new();
}

// 1 is touched last, because the list is processed from its end.
TYPED_TEST(LRURules, ARepeatedKeyCountsAtItsFirstPlace) {
  auto policy = lru<TypeParam>(3);
  store(policy, {"1", "2", "3"});
  policy.touch(Keys{"1", "2", "1", "3"});
  EXPECT_EQ(show(policy), "3 2 1 |  |  |  | 0");
}

/// B1 holds 1 and B2 holds 2 3 4, of a capacity of 8.
template <class CachePolicy>
CachePolicy with_ghosts() {
  auto policy = arc<CachePolicy>(8);
  store(policy, {"2", "3", "4", "1"});
  policy.touch(Keys{"4", "3", "2"});
  EXPECT_EQ(evict(policy, 4), "1 2 3 4");
  EXPECT_EQ(show(policy), " |  | 1 | 2 3 4 | 0");
  return policy;
}

TYPED_TEST(ARCRules, TheTargetMovesByTheQuotientOfTheGhosts) {
  auto policy = with_ghosts<TypeParam>();
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), " |  | 1 | 2 3 4 | 3");
  // |B1| / |B2| is a third: the target falls by 1.
  policy.touch(Keys{"2"});
  EXPECT_EQ(show(policy), " |  | 1 | 3 4 2 | 2");
  policy.touch(Keys{"4", "3", "2"});
  EXPECT_EQ(show(policy), " |  | 1 | 2 3 4 | 0") << "never below 0";
  policy.touch(Keys{"1", "1", "1"});
  EXPECT_EQ(show(policy), " |  | 1 | 2 3 4 | 8") << "never above the capacity";
}

TYPED_TEST(ARCRules, TheTargetIsARealNumber) {
  auto policy = arc<TypeParam>(8);
  store(policy, {"1", "2", "3", "4", "5"});
  policy.touch(Keys{"3", "4", "5"});
  EXPECT_EQ(evict(policy, 5), "1 2 5 4 3");
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), " |  | 2 1 | 5 4 3 | 1.5");
  policy.touch(Keys{"5"});
  EXPECT_EQ(show(policy), " |  | 2 1 | 4 3 5 | 0.5");
  policy.touch(Keys{"5"});
  EXPECT_EQ(show(policy), " |  | 2 1 | 4 3 5 | 0");
}

// Thirds are not exact doubles: the result is the rounded sum of rounded quotients.
TYPED_TEST(ARCRules, TheTargetIsASumOfDoubles) {
  auto policy = arc<TypeParam>(8);
  store(policy, {"1", "2", "3", "4", "5", "6", "7"});
  policy.touch(Keys{"4", "5", "6", "7"});
  EXPECT_EQ(evict(policy, 7), "1 2 3 7 6 5 4");
  policy.touch(Keys{"3", "2", "1"});
  PolicyLists lists;
  policy.lists(lists);
  EXPECT_EQ(lists.target_t1_size, 4.0 / 3.0 + 4.0 / 3.0 + 4.0 / 3.0);
  EXPECT_EQ(lists.b1, (std::vector<OffloadKey>{"1", "2", "3"}));
}

/// T1 holds 3 4, T2 holds 1 2, B1 a ghost; the target is raised by touching the ghost.
template <class CachePolicy>
CachePolicy with_target(int target, bool arc_refuses_with_idle_t1 = true) {
  auto policy = arc<CachePolicy>(5, arc_refuses_with_idle_t1);
  store(policy, {"ghost", "1", "2", "3", "4"});
  EXPECT_EQ(evict(policy, 1), "ghost");
  policy.touch(Keys{"2", "1"});
  for (int count = 0; count < target; ++count) policy.touch(Keys{"ghost"});
  EXPECT_EQ(show(policy), "3 4 | 1 2 | ghost |  | " + std::to_string(target));
  return policy;
}

// Upstream: test_arc_manager_t1_t2_eviction_policy
TYPED_TEST(ARCRules, T1IsTheSourceAsLongAsItReachesTheTarget) {
  for (const auto& [target, victims] : {std::pair{0, "3 4 1 2"}, std::pair{1, "3 4 1 2"},
                                        std::pair{2, "3 1 2"}, std::pair{3, "1 2"}}) {
    auto policy = with_target<TypeParam>(target);
    const auto num_victims = static_cast<std::uint32_t>((std::string(victims).size() + 1) / 2);
    EXPECT_EQ(evict(policy, num_victims), victims) << "target " << target;
  }
}

// Upstream: test_arc_manager_ghost_list_bounds
TYPED_TEST(ARCRules, GhostsAreTrimmedToTheCapacityByAnEvict) {
  auto policy = arc<TypeParam>(2);
  store(policy, {"1", "2"});
  EXPECT_EQ(evict(policy, 2), "1 2");
  store(policy, {"3", "4"});
  EXPECT_EQ(show(policy), "3 4 |  | 1 2 |  | 0");
  EXPECT_EQ(evict(policy, 2, {"3"}), std::nullopt);
  EXPECT_EQ(show(policy), "3 4 |  | 1 2 |  | 0");
  EXPECT_EQ(evict(policy, 1), "3");
  EXPECT_EQ(show(policy), "4 |  | 2 3 |  | 0");
  store(policy, {"5"});
  policy.touch(Keys{"5", "4"});
  EXPECT_EQ(evict(policy, 2), "4 5");
  store(policy, {"6"});
  policy.touch(Keys{"6"});
  EXPECT_EQ(evict(policy, 1), "6");
  EXPECT_EQ(show(policy), " |  | 2 3 | 5 6 | 0");
}

TYPED_TEST(ARCRules, ADigestForgetsWhichListWasUsedLastAndTakesInGhostsAndTarget) {
  auto policy = arc<TypeParam>(4);
  store(policy, {"1", "2"});
  policy.touch(Keys{"1"});
  auto other = arc<TypeParam>(4);
  store(other, {"1"});
  other.touch(Keys{"1"});
  ASSERT_EQ(other.insert("2", 1), ErrorCode::kNone);
  ASSERT_EQ(other.make_ready("2"), ErrorCode::kNone);
  ASSERT_EQ(show(policy), show(other));
  EXPECT_EQ(digest_of(policy), digest_of(other));

  const StateDigest built = digest_of(arc<TypeParam>(4));
  EXPECT_EQ(evict(policy, 2), "2 1");
  EXPECT_NE(digest_of(policy), built);
  TypeParam raised = policy;
  raised.touch(Keys{"2"});
  EXPECT_NE(digest_of(raised), digest_of(policy));
}

// At most 3 * capacity keys are known, and more places are used than there are.
TYPED_TEST(ARCRules, ManyMoreKeysThanPlacesWork) {
  auto policy = arc<TypeParam>(3);
  for (int number = 0; number < 5'000; ++number) {
    const auto key = [number](int ago) { return std::to_string(number - ago); };
    if (policy.size() == 3) {
      ASSERT_TRUE(evict(policy, 1));
    }
    const std::string now = key(0);
    const std::string before = key(3);
    const std::string long_before = key(7);
    store(policy, {now});
    if (number % 3 == 0) policy.touch(Keys{now});
    policy.touch(Keys{long_before, before});
  }
  PolicyLists lists;
  policy.lists(lists);
  EXPECT_EQ(lists.b1.size(), 3U);
  EXPECT_EQ(lists.b2.size(), 3U);
}

}  // namespace
}  // namespace kvfence
