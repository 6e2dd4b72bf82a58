// Upstream's own script of the manager, its reuse filter, and what a refusal leaves unchanged, on
// both sides. scenarios/cases/offload/ has each single rule and refusal.

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optimized/offload/offloading_manager.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/offload/offloading_manager.h"

namespace kvfence {
namespace {

using Keys = std::vector<OffloadKeyView>;
using Slots = std::vector<SlotId>;

OffloadingManagerConfig config_of(std::uint32_t capacity, Profile profile = Profile::kV019,
                                  EvictionPolicy policy = EvictionPolicy::kLRU) {
  OffloadingManagerConfig config;
  config.cache.policy = policy;
  config.cache.capacity = capacity;
  config.enable_events = true;
  config.rules = rules_of(profile);
  return config;
}

template <class OffloadingManager>
OffloadingManager filtered(std::uint32_t store_threshold, std::uint32_t max_tracker_size,
                           Profile profile = Profile::kV019) {
  OffloadingManagerConfig config = config_of(4, profile);
  config.store_threshold = store_threshold;
  config.max_tracker_size = max_tracker_size;
  return OffloadingManager(config);
}

/// "1 2? 3+2": block 1 is idle, 2 is not ready, 3 has two readers. T1 | T2 | B1 | B2.
template <class OffloadingManager>
std::string show(const OffloadingManager& manager) {
  PolicyLists lists;
  manager.policy().lists(lists);
  std::string text;
  for (const auto* blocks : {&lists.t1, &lists.t2}) {
    for (const PolicyEntry& block : *blocks) {
      text += block.key;
      if (block.status.ref_cnt == kNotReady) text += "?";
      if (block.status.ref_cnt > 0) text += "+" + std::to_string(block.status.ref_cnt);
      text += " ";
    }
    text += "| ";
  }
  for (const OffloadKey& ghost : lists.b1) text += ghost + " ";
  text += "| ";
  for (const OffloadKey& ghost : lists.b2) text += ghost + " ";
  return text + "free " + std::to_string(manager.num_free_slots());
}

/// What prepare_store answers: "keys -> slots, evicted", or "no" if nothing can be evicted.
template <class OffloadingManager>
std::string prepare(OffloadingManager& manager, const Keys& keys) {
  bool stored = false;
  PrepareStoreOutput out;
  EXPECT_EQ(manager.prepare_store(keys, stored, out), ErrorCode::kNone);
  if (!stored) return "no";
  std::string text;
  for (const OffloadKeyView key : out.keys_to_store) text += std::string(key) + " ";
  text += "->";
  for (const SlotId slot : out.slots) text += " " + std::to_string(slot);
  if (!out.evicted.empty()) text += ", evicted";
  for (const EvictedBlock& block : out.evicted) {
    text += " " + block.key + "@" + std::to_string(block.slot);
  }
  return text;
}

template <class OffloadingManager>
void store(OffloadingManager& manager, const Keys& keys) {
  EXPECT_NE(prepare(manager, keys), "no");
  manager.complete_store(keys, true);
}

template <class OffloadingManager>
std::uint32_t hits(OffloadingManager& manager, const Keys& keys) {
  std::uint32_t num_hits = 99;
  EXPECT_EQ(manager.lookup(keys, num_hits), ErrorCode::kNone);
  return num_hits;
}

template <class OffloadingManager>
LookupResult ask(OffloadingManager& manager, OffloadKeyView key) {
  LookupResult result = LookupResult::kMiss;
  EXPECT_EQ(manager.lookup_key(key, result), ErrorCode::kNone);
  return result;
}

/// "+1 2 -3": stored 1 and 2, removed 3.
template <class OffloadingManager>
std::string events_of(OffloadingManager& manager) {
  std::vector<OffloadingEvent> events = {{{"before"}, false}};
  manager.take_events(events);
  std::string text;
  for (const OffloadingEvent& event : events) {
    text += text.empty() ? "" : " ";
    text += event.removed ? "-" : "+";
    for (std::size_t i = 0; i < event.keys.size(); ++i) text += (i == 0 ? "" : ",") + event.keys[i];
  }
  return text;
}

template <class Manager>
class OffloadingManagerRules : public ::testing::Test {};
using Managers = ::testing::Types<reference::OffloadingManager, optimized::OffloadingManager>;
TYPED_TEST_SUITE(OffloadingManagerRules, Managers, SideNames);

// Upstream: test_cpu_manager, its script with its numbers.
TYPED_TEST(OffloadingManagerRules, UpstreamsScript) {
  TypeParam manager(config_of(4));
  EXPECT_EQ(prepare(manager, {"1", "2"}), "1 2 -> 0 1");
  EXPECT_EQ(hits(manager, {"1", "2"}), 0u);
  EXPECT_EQ(events_of(manager), "");
  manager.complete_store(Keys{"1", "2"}, true);
  EXPECT_EQ(events_of(manager), "+1,2");
  EXPECT_EQ(hits(manager, {"1"}), 1u);
  EXPECT_EQ(hits(manager, {"1", "2"}), 2u);
  EXPECT_EQ(hits(manager, {"1", "2", "3"}), 2u);

  EXPECT_EQ(prepare(manager, {"2", "3", "4", "5"}), "3 4 5 -> 2 3 0, evicted 1@0");
  EXPECT_EQ(events_of(manager), "-1");
  EXPECT_EQ(prepare(manager, {"1", "6"}), "no") << "only 2 is not being written";
  manager.complete_store(Keys{"2", "3", "4", "5"}, true);
  EXPECT_EQ(events_of(manager), "+3,4,5");

  Slots slots;
  ASSERT_EQ(manager.prepare_load(Keys{"2", "3"}, slots), ErrorCode::kNone);
  EXPECT_EQ(slots, (Slots{1, 2}));
  EXPECT_EQ(prepare(manager, {"6", "7", "8"}), "no") << "two of four are being read";
  ASSERT_EQ(manager.complete_load(Keys{"2", "3"}), ErrorCode::kNone);
  EXPECT_EQ(prepare(manager, {"6", "7", "8"}), "6 7 8 -> 3 2 1, evicted 2@1 3@2 4@3");
  manager.complete_store(Keys{"6", "7", "8"}, true);

  manager.touch(Keys{"5", "6", "7"});
  EXPECT_EQ(prepare(manager, {"7", "9"}), "9 -> 1, evicted 8@1");
  manager.complete_store(Keys{"7", "9"}, false);
  EXPECT_EQ(hits(manager, {"7"}), 1u) << "7 was ready before";
  EXPECT_EQ(hits(manager, {"9"}), 0u);
  EXPECT_EQ(events_of(manager), "-2,3,4 +6,7,8 -8");
  EXPECT_EQ(show(manager), "7 6 5 | | | free 1");
}

TYPED_TEST(OffloadingManagerRules, EachProfileHasItsLookup) {
  TypeParam v019(config_of(2, Profile::kV019));
  TypeParam v023(config_of(2, Profile::kV023));
  LookupResult result = LookupResult::kHit;
  std::uint32_t num_hits = 9;
  EXPECT_EQ(v019.lookup_key("1", result), ErrorCode::kNotInProfile);
  EXPECT_EQ(v023.lookup(Keys{"1"}, num_hits), ErrorCode::kNotInProfile);
  EXPECT_EQ(v019.reset_cache(), ErrorCode::kNotInProfile);
  EXPECT_EQ(result, LookupResult::kHit);
  EXPECT_EQ(num_hits, 9u);
}

// Upstream: test_filter_reused_manager
TYPED_TEST(OffloadingManagerRules, TheFilterCountsLookups) {
  auto manager = filtered<TypeParam>(2, 3);
  EXPECT_EQ(hits(manager, {"1", "2"}), 0u);
  EXPECT_EQ(prepare(manager, {"1", "2"}), "->");
  EXPECT_EQ(hits(manager, {"1"}), 0u);
  EXPECT_EQ(prepare(manager, {"1", "2"}), "1 -> 0");
  manager.complete_store(Keys{"1"}, true);
  // 3 finds room, 4 pushes 2 out, which is the oldest: seen again, it starts at 1.
  EXPECT_EQ(hits(manager, {"3", "4"}), 0u);
  EXPECT_EQ(hits(manager, {"2"}), 0u);
  EXPECT_EQ(prepare(manager, {"2"}), "->");
  EXPECT_EQ(hits(manager, {"2"}), 0u);
  EXPECT_EQ(prepare(manager, {"2"}), "2 -> 1");
}

TYPED_TEST(OffloadingManagerRules, ATrackerOfOneKeyRemembersTheLast) {
  auto manager = filtered<TypeParam>(2, 1);
  EXPECT_EQ(hits(manager, {"1", "2", "1", "1"}), 0u);
  EXPECT_EQ(prepare(manager, {"1", "2"}), "1 -> 0");
}

TYPED_TEST(OffloadingManagerRules, OnlyKeysThatPassTheFilterAreProtectedOrRefused) {
  auto manager = filtered<TypeParam>(2, 8);
  EXPECT_EQ(hits(manager, {"1", "2", "3", "4", "1", "2", "3", "4"}), 0u);
  store(manager, {"1", "2", "3", "4"});
  EXPECT_EQ(hits(manager, {"5", "5", "6", "7", "8", "9", "10", "11"}), 0u);
  // 1 to 4 were pushed out of the tracker, so 1 is not protected by its call.
  EXPECT_EQ(prepare(manager, {"1", "5", "6", "6"}), "5 -> 0, evicted 1@0");
}

// Upstream: test_reset_cache (v0.23.0)
TYPED_TEST(OffloadingManagerRules, AResetForgetsBlocksAndSlotsButNeitherCountsNorEvents) {
  OffloadingManagerConfig config = config_of(3, Profile::kV023, EvictionPolicy::kARC);
  config.store_threshold = 2;
  TypeParam manager(config);
  for (OffloadKeyView key : {"1", "2", "3", "4", "1", "2", "3", "4"}) ask(manager, key);
  store(manager, {"1", "2", "3"});
  Slots slots;
  ASSERT_EQ(manager.prepare_load(Keys{"2"}, slots), ErrorCode::kNone);
  EXPECT_EQ(prepare(manager, {"4"}), "4 -> 0, evicted 1@0");
  ASSERT_EQ(manager.reset_cache(), ErrorCode::kNone);
  EXPECT_EQ(show(manager), "| | | free 3");
  EXPECT_EQ(events_of(manager), "+1,2,3 -1");
  EXPECT_EQ(prepare(manager, {"4", "1"}), "4 1 -> 0 1");
  EXPECT_EQ(manager.complete_load(Keys{"2"}), ErrorCode::kUnknownKey);
}

}  // namespace
}  // namespace kvfence
