// Each rule and each refusal of LRU and ARC, on policies small enough to write every list down.
#include "reference/eviction/cache_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace kvfence::reference {
namespace {

using Keys = std::vector<OffloadKeyView>;

CachePolicy lru(std::uint32_t capacity) {
  return CachePolicy({EvictionPolicy::kLRU, capacity, /*arc_refuses_with_idle_t1=*/true});
}

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
std::string show(const CachePolicy& policy) {
  PolicyLists lists;
  policy.lists(lists);
  std::ostringstream text;
  text << text_of(lists.t1) << " | " << text_of(lists.t2) << " | " << text_of(lists.b1) << " | "
       << text_of(lists.b2) << " | " << lists.target_t1_size;
  return text.str();
}

/// Inserts blocks and makes them ready; a block's slot is its place in the list.
void store(CachePolicy& policy, std::initializer_list<OffloadKeyView> keys) {
  SlotId slot = 0;
  for (const OffloadKeyView key : keys) {
    EXPECT_EQ(policy.insert(key, slot++), ErrorCode::kNone) << key;
    EXPECT_EQ(policy.make_ready(key), ErrorCode::kNone) << key;
  }
}

/// The keys of the victims in the order of choice; nothing if so many cannot go.
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

TEST(CachePolicy, PicksThePolicyOfItsConfiguration) {
  CachePolicy recency = lru(2);
  CachePolicy adaptive = arc(2);
  for (CachePolicy* policy : {&recency, &adaptive}) {
    store(*policy, {"1"});
    policy->touch(Keys{"1"});
  }
  EXPECT_EQ(show(recency), "1 |  |  |  | 0");
  EXPECT_EQ(show(adaptive), " | 1 |  |  | 0");
  EXPECT_EQ(recency.config().policy, EvictionPolicy::kLRU);
  EXPECT_EQ(adaptive.config().capacity, 2u);
}

/// What both policies do alike.
class BothPolicies : public ::testing::TestWithParam<EvictionPolicy> {
 protected:
  CachePolicy make(std::uint32_t capacity) const {
    return CachePolicy({GetParam(), capacity, /*arc_refuses_with_idle_t1=*/true});
  }
};

INSTANTIATE_TEST_SUITE_P(Reference, BothPolicies,
                         ::testing::Values(EvictionPolicy::kLRU, EvictionPolicy::kARC),
                         [](const auto& tested) { return std::string(to_text(tested.param)); });

TEST_P(BothPolicies, ABlockIsWrittenThenIdleThenRead) {
  CachePolicy policy = make(4);
  BlockStatus status;
  EXPECT_FALSE(policy.get("1", status));
  ASSERT_EQ(policy.insert("1", 7), ErrorCode::kNone);
  ASSERT_TRUE(policy.get("1", status));
  EXPECT_EQ(status, (BlockStatus{kNotReady, 7}));
  ASSERT_EQ(policy.make_ready("1"), ErrorCode::kNone);
  EXPECT_EQ(show(policy), "1 |  |  |  | 0");
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  EXPECT_EQ(show(policy), "1+2 |  |  |  | 0");
  ASSERT_EQ(policy.release("1"), ErrorCode::kNone);
  ASSERT_TRUE(policy.get("1", status));
  EXPECT_EQ(status, (BlockStatus{1, 7}));
  EXPECT_EQ(policy.size(), 1u);
}

TEST_P(BothPolicies, RefusalsComeInOrderAndChangeNothing) {
  CachePolicy policy = make(3);
  store(policy, {"1"});
  ASSERT_EQ(policy.insert("2", 1), ErrorCode::kNone);
  ASSERT_EQ(policy.insert("3", 2), ErrorCode::kNone);
  const std::string before = show(policy);

  // A block that is held is looked for before room is.
  EXPECT_EQ(policy.insert("1", 9), ErrorCode::kAlreadyStored);
  EXPECT_EQ(policy.insert("2", 9), ErrorCode::kAlreadyStored);
  EXPECT_EQ(policy.insert("4", 9), ErrorCode::kNoFreeBlocks);
  EXPECT_EQ(policy.remove("4"), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.make_ready("4"), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.make_ready("1"), ErrorCode::kAlreadyReady);
  EXPECT_EQ(policy.acquire("4"), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.acquire("2"), ErrorCode::kNotReady);
  EXPECT_EQ(policy.release("4"), ErrorCode::kUnknownKey);
  EXPECT_EQ(policy.release("2"), ErrorCode::kNotReady);
  EXPECT_EQ(policy.release("1"), ErrorCode::kNotReading);
  EXPECT_EQ(show(policy), before);

  // A block that is read is no less ready.
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  EXPECT_EQ(policy.make_ready("1"), ErrorCode::kAlreadyReady);
  EXPECT_EQ(show(policy), "1+1 2? 3? |  |  |  | 0");
}

TEST_P(BothPolicies, ARemovedBlockMayBeInAnyState) {
  CachePolicy policy = make(3);
  store(policy, {"1", "2"});
  ASSERT_EQ(policy.insert("3", 2), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire("2"), ErrorCode::kNone);
  for (const OffloadKeyView key : {"3", "2", "1"}) EXPECT_EQ(policy.remove(key), ErrorCode::kNone);
  EXPECT_EQ(show(policy), " |  |  |  | 0");
  EXPECT_EQ(policy.size(), 0u);
}

TEST_P(BothPolicies, EvictPassesOverWhatIsNotIdleOrProtected) {
  CachePolicy policy = make(6);
  store(policy, {"1", "2", "3", "4", "5"});
  ASSERT_EQ(policy.insert("6", 5), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  const std::string before = show(policy);

  // Free to go are 3 and 5.
  EXPECT_EQ(evict(policy, 3, {"2", "4", "2", "absent"}), std::nullopt);
  EXPECT_EQ(show(policy), before);
  EXPECT_EQ(evict(policy, 2, {"2", "4"}), "3 5");
  EXPECT_EQ(policy.size(), 4u);
}

TEST_P(BothPolicies, EvictingNothingDoesNothingAndAbsurdCountsAreRefused) {
  CachePolicy policy = make(2);
  EXPECT_EQ(evict(policy, 0), "");
  EXPECT_EQ(evict(policy, 1), std::nullopt);
  store(policy, {"1", "2"});
  EXPECT_EQ(evict(policy, 0), "");
  EXPECT_EQ(evict(policy, UINT32_MAX), std::nullopt);
  EXPECT_EQ(show(policy), "1 2 |  |  |  | 0");
}

TEST_P(BothPolicies, EvictAppendsWithTheSlotsOfTheVictims) {
  CachePolicy policy = make(2);
  store(policy, {"1", "2"});
  std::vector<EvictedBlock> evicted = {{"before", 9}};
  ASSERT_TRUE(policy.evict(2, {}, evicted));
  EXPECT_EQ(evicted, (std::vector<EvictedBlock>{{"before", 9}, {"1", 0}, {"2", 1}}));
}

TEST_P(BothPolicies, ACopyLivesItsOwnLife) {
  CachePolicy policy = make(2);
  store(policy, {"1", "2"});
  CachePolicy copy = policy;
  EXPECT_EQ(evict(copy, 1), "1");
  EXPECT_EQ(show(policy), "1 2 |  |  |  | 0");
  policy.clear();
  EXPECT_EQ(copy.size(), 1u);
}

TEST(LRUCachePolicy, TheFirstOfATouchedListEndsAsTheNewest) {
  CachePolicy policy = lru(4);
  store(policy, {"1", "2", "3", "4"});
  policy.touch(Keys{"2", "absent", "1"});
  EXPECT_EQ(show(policy), "3 4 1 2 |  |  |  | 0");
  EXPECT_EQ(evict(policy, 3), "3 4 1");
}

// 1 is touched last of all, since the list is walked from its end.
TEST(LRUCachePolicy, AKeyThatStandsTwiceCountsWhereItStandsFirst) {
  CachePolicy policy = lru(3);
  store(policy, {"1", "2", "3"});
  policy.touch(Keys{"1", "2", "1", "3"});
  EXPECT_EQ(show(policy), "3 2 1 |  |  |  | 0");
}

TEST(LRUCachePolicy, WhatIsWrittenOrReadIsTouchedLikeAllOthers) {
  CachePolicy policy = lru(3);
  store(policy, {"1", "2"});
  ASSERT_EQ(policy.insert("3", 2), ErrorCode::kNone);
  ASSERT_EQ(policy.acquire("1"), ErrorCode::kNone);
  policy.touch(Keys{"3", "1"});
  EXPECT_EQ(show(policy), "2 1+1 3? |  |  |  | 0");
}

TEST(LRUCachePolicy, RemembersNoGhosts) {
  CachePolicy policy = lru(1);
  store(policy, {"1"});
  EXPECT_EQ(evict(policy, 1), "1");
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), " |  |  |  | 0");
}

// Upstream: test_arc_manager_basic, test_arc_manager_t1_to_t2_promotion
TEST(ARCCachePolicy, ASecondUseMovesAReadyBlockFromT1ToT2) {
  CachePolicy policy = arc(4);
  store(policy, {"1", "2"});
  ASSERT_EQ(policy.insert("3", 2), ErrorCode::kNone);
  EXPECT_EQ(show(policy), "1 2 3? |  |  |  | 0");
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), "2 3? | 1 |  |  | 0");
  ASSERT_EQ(policy.acquire("2"), ErrorCode::kNone);
  policy.touch(Keys{"2"});
  EXPECT_EQ(show(policy), "3? | 1 2+1 |  |  | 0");
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), "3? | 2+1 1 |  |  | 0");
}

// A defect of this shape: vllm-project/vllm#34576.
TEST(ARCCachePolicy, ABlockThatIsWrittenStaysInT1AsTheNewest) {
  CachePolicy policy = arc(3);
  ASSERT_EQ(policy.insert("1", 0), ErrorCode::kNone);
  ASSERT_EQ(policy.insert("2", 1), ErrorCode::kNone);
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), "2? 1? |  |  |  | 0");
}

// The first mention, seen last, finds the block in T2.
TEST(ARCCachePolicy, AKeyThatStandsTwiceIsUsedTwice) {
  CachePolicy policy = arc(3);
  store(policy, {"1", "2", "3"});
  policy.touch(Keys{"1", "2", "1"});
  EXPECT_EQ(show(policy), "3 | 2 1 |  |  | 0");
}

// Upstream: test_arc_manager_touch_ordering; the order of T2 is the one that its classes give.
TEST(ARCCachePolicy, TheFirstOfATouchedListEndsAsTheNewest) {
  CachePolicy policy = arc(4);
  store(policy, {"1", "2", "3", "4"});
  policy.touch(Keys{"3", "4"});
  EXPECT_EQ(show(policy), "1 2 | 4 3 |  |  | 0");
  policy.touch(Keys{"1", "3", "4"});
  EXPECT_EQ(show(policy), "2 | 4 3 1 |  |  | 0");
  EXPECT_EQ(evict(policy, 1), "2");
  EXPECT_EQ(show(policy), " | 4 3 1 | 2 |  | 0");
}

TEST(ARCCachePolicy, VictimsOfT1GoToB1AndThoseOfT2ToB2) {
  CachePolicy policy = arc(4);
  store(policy, {"1", "2", "3", "4"});
  policy.touch(Keys{"1", "2"});
  // The target is 0: T1 first, also when it has none left.
  EXPECT_EQ(evict(policy, 3), "3 4 2");
  EXPECT_EQ(show(policy), " | 1 | 3 4 | 2 | 0");
}

// Upstream: test_arc_manager_adaptive_target
TEST(ARCCachePolicy, AHitInB1RaisesTheTargetByOneAtLeast) {
  CachePolicy policy = arc(2);
  store(policy, {"1", "2"});
  EXPECT_EQ(evict(policy, 1), "1");
  policy.touch(Keys{"1"});
  EXPECT_EQ(show(policy), "2 |  | 1 |  | 1");
  policy.touch(Keys{"1", "1"});
  EXPECT_EQ(show(policy), "2 |  | 1 |  | 2") << "never above the capacity";
}

/// B1 holds 1 and B2 holds 2 3 4, of a capacity of 8.
CachePolicy with_ghosts() {
  CachePolicy policy = arc(8);
  store(policy, {"2", "3", "4", "1"});
  policy.touch(Keys{"4", "3", "2"});
  EXPECT_EQ(evict(policy, 4), "1 2 3 4");
  EXPECT_EQ(show(policy), " |  | 1 | 2 3 4 | 0");
  return policy;
}

TEST(ARCCachePolicy, TheTargetMovesByTheQuotientOfTheGhosts) {
  CachePolicy policy = with_ghosts();
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

TEST(ARCCachePolicy, TheTargetIsARealNumber) {
  CachePolicy policy = arc(8);
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

// Thirds are no doubles: what counts is the rounded sum of rounded quotients.
TEST(ARCCachePolicy, TheTargetIsASumOfDoubles) {
  CachePolicy policy = arc(8);
  store(policy, {"1", "2", "3", "4", "5", "6", "7"});
  policy.touch(Keys{"4", "5", "6", "7"});
  EXPECT_EQ(evict(policy, 7), "1 2 3 7 6 5 4");
  policy.touch(Keys{"3", "2", "1"});
  PolicyLists lists;
  policy.lists(lists);
  EXPECT_EQ(lists.target_t1_size, 4.0 / 3.0 + 4.0 / 3.0 + 4.0 / 3.0);
  EXPECT_EQ(lists.b1, (std::vector<OffloadKey>{"1", "2", "3"}));
}

TEST(ARCCachePolicy, AnInsertedKeyIsNoGhostAnyMore) {
  CachePolicy policy = with_ghosts();
  ASSERT_EQ(policy.insert("1", 0), ErrorCode::kNone);
  ASSERT_EQ(policy.insert("3", 1), ErrorCode::kNone);
  EXPECT_EQ(show(policy), "1? 3? |  |  | 2 4 | 0");
}

TEST(ARCCachePolicy, ARemovedBlockLeavesNoGhost) {
  CachePolicy policy = arc(2);
  store(policy, {"1", "2"});
  policy.touch(Keys{"2"});
  EXPECT_EQ(policy.remove("1"), ErrorCode::kNone);
  EXPECT_EQ(policy.remove("2"), ErrorCode::kNone);
  EXPECT_EQ(show(policy), " |  |  |  | 0");
}

/// T1 holds 3 4, T2 holds 1 2, B1 a ghost; the target is raised by touching the ghost.
CachePolicy with_target(int target, bool arc_refuses_with_idle_t1 = true) {
  CachePolicy policy = arc(5, arc_refuses_with_idle_t1);
  store(policy, {"ghost", "1", "2", "3", "4"});
  EXPECT_EQ(evict(policy, 1), "ghost");
  policy.touch(Keys{"2", "1"});
  for (int count = 0; count < target; ++count) policy.touch(Keys{"ghost"});
  EXPECT_EQ(show(policy), "3 4 | 1 2 | ghost |  | " + std::to_string(target));
  return policy;
}

// Upstream: test_arc_manager_t1_t2_eviction_policy
TEST(ARCCachePolicy, T1IsTheSourceAsLongAsItReachesTheTarget) {
  for (const auto& [target, victims] : {std::pair{0, "3 4 1 2"}, std::pair{1, "3 4 1 2"},
                                        std::pair{2, "3 1 2"}, std::pair{3, "1 2"}}) {
    CachePolicy policy = with_target(target);
    const auto num_victims = static_cast<std::uint32_t>((std::string(victims).size() + 1) / 2);
    EXPECT_EQ(evict(policy, num_victims), victims) << "target " << target;
  }
}

// With a target of 1.5 one block of T1 is enough: the target is rounded down.
TEST(ARCCachePolicy, TheTargetIsRoundedDown) {
  CachePolicy policy = arc(8);
  store(policy, {"1", "2", "3", "4", "5"});
  policy.touch(Keys{"3", "4", "5"});
  ASSERT_EQ(evict(policy, 5), "1 2 5 4 3");
  policy.touch(Keys{"1"});
  store(policy, {"6", "7"});
  policy.touch(Keys{"7"});
  EXPECT_EQ(show(policy), "6 | 7 | 2 1 | 5 4 3 | 1.5");
  EXPECT_EQ(evict(policy, 1), "6");
}

// The public report of it: vllm-project/vllm#55461.
TEST(ARCCachePolicy, BelowItsTargetT1IsNotLookedInto) {
  CachePolicy policy = with_target(3);
  const std::string before = show(policy);
  EXPECT_EQ(evict(policy, 3), std::nullopt) << "3 and 4 are idle";
  EXPECT_EQ(evict(policy, 1, {"1", "2"}), std::nullopt);
  EXPECT_EQ(show(policy), before);

  // Also where it falls below the target in the middle of the call.
  CachePolicy midway = with_target(2);
  EXPECT_EQ(evict(midway, 4), std::nullopt);
  EXPECT_EQ(evict(midway, 2, {"1", "2"}), std::nullopt);
}

TEST(ARCCachePolicy, WithoutThatRuleT1IsTheLastResort) {
  CachePolicy policy = with_target(3, /*arc_refuses_with_idle_t1=*/false);
  EXPECT_EQ(evict(policy, 5), std::nullopt);
  EXPECT_EQ(evict(policy, 3), "1 2 3");
  EXPECT_EQ(show(policy), "4 |  | ghost 3 | 1 2 | 3");

  CachePolicy midway = with_target(2, /*arc_refuses_with_idle_t1=*/false);
  EXPECT_EQ(evict(midway, 4), "3 1 2 4");
}

// Upstream: test_arc_manager_ghost_list_bounds
TEST(ARCCachePolicy, GhostsAreTrimmedToTheCapacityByAnEvict) {
  CachePolicy policy = arc(2);
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

TEST(ARCCachePolicy, ClearForgetsGhostsAndTarget) {
  CachePolicy policy = with_target(2);
  policy.clear();
  EXPECT_EQ(show(policy), " |  |  |  | 0");
  store(policy, {"1", "2", "3", "4", "ghost"});
  EXPECT_EQ(policy.size(), 5u);
}

}  // namespace
}  // namespace kvfence::reference
