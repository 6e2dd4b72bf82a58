// The rules and refusals of the tiering manager on both sides, with a few slots above scripted
// tiers. The recorded calls show what a rule does to the tiers.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_tier.h"
#include "optimized/tiering/tiering_manager.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/tiering/tiering_manager.h"

namespace kvfence {
namespace {

using Keys = std::vector<OffloadKeyView>;

OffloadingManagerConfig config_of(std::uint32_t capacity) {
  OffloadingManagerConfig config;
  config.cache.capacity = capacity;
  config.enable_events = true;
  config.rules = rules_of(Profile::kV023);
  return config;
}

/// A manager with scripted tiers below it, and short names for its operations.
template <class TieringOffloadingManager>
class Scene {
 public:
  Scene(std::uint32_t capacity, std::uint32_t num_tiers)
      : manager_(config_of(capacity), make_tiers(num_tiers)) {}

  TieringOffloadingManager& manager() { return manager_; }
  ScriptedTier& tier(std::uint32_t place) {
    return dynamic_cast<ScriptedTier&>(*manager_.tiers()[place].get());
  }

  /// "keys -> slots", or "no" if nothing can be evicted.
  std::string prepare(const Keys& keys, std::string_view request = "A") {
    bool stored = false;
    PrepareStoreOutput out;
    EXPECT_EQ(manager_.prepare_store(keys, {request}, stored, out), ErrorCode::kNone);
    if (!stored) return "no";
    std::string text;
    for (const OffloadKeyView key : out.keys_to_store) text += std::string(key) + " ";
    text += "->";
    for (const SlotId slot : out.slots) text += " " + std::to_string(slot);
    return text;
  }
  ErrorCode complete(const Keys& keys, bool success = true, std::string_view request = "A") {
    return manager_.complete_store(keys, {request}, success);
  }
  void store(const Keys& keys, std::string_view request = "A") {
    EXPECT_NE(prepare(keys, request), "no");
    EXPECT_EQ(complete(keys, true, request), ErrorCode::kNone);
  }
  std::string look_up(OffloadKeyView key, std::string_view request = "A") {
    return std::string(to_text(manager_.lookup(key, {request})));
  }
  ErrorCode load(const Keys& keys) {
    std::vector<SlotId> slots;
    return manager_.prepare_load(keys, slots);
  }
  void end_step() { manager_.on_schedule_end(); }
  void finish(std::uint32_t place, TierJobId job, bool success = true) {
    tier(place).finish(job, success);
  }

  /// The stores and loads since the last time: "store 0 of A at 1: 5@0 6@1", "load ...".
  std::string transfers() {
    std::string text;
    for (const TierCall& call : *calls_) {
      if (call.method.rfind("submit_", 0) != 0) continue;
      text += (text.empty() ? "" : "; ") + call.method.substr(7) + " " + std::to_string(*call.job) +
              " of " + call.request + " at " + std::to_string(call.tier) + ":";
      for (std::size_t i = 0; i < call.keys.size(); ++i) {
        text += " " + call.keys[i] + "@" + std::to_string(call.slots[i]);
      }
    }
    calls_->clear();
    return text;
  }

  /// The calls since the last time by method and tier: "lookup 0, lookup 1".
  std::string methods() {
    std::string text;
    for (const TierCall& call : *calls_) {
      text += (text.empty() ? "" : ", ") + call.method + " " + std::to_string(call.tier);
    }
    calls_->clear();
    return text;
  }

  /// "1 2? 3+2": block 1 is idle, 2 is not ready, 3 has two readers.
  std::string show() const {
    PolicyLists lists;
    manager_.primary().policy().lists(lists);
    std::string text;
    for (const PolicyEntry& block : lists.t1) {
      text += (text.empty() ? "" : " ") + block.key;
      if (block.status.ref_cnt == kNotReady) text += "?";
      if (block.status.ref_cnt > 0) text += "+" + std::to_string(block.status.ref_cnt);
    }
    return text;
  }

  /// "+1 2 -3": stored 1 and 2, removed 3.
  std::string events() {
    std::vector<OffloadingEvent> events;
    manager_.take_events(events);
    std::string text;
    for (const OffloadingEvent& event : events) {
      for (const OffloadKey& key : event.keys) {
        text += (text.empty() ? "" : " ") + std::string(event.removed ? "-" : "+") + key;
      }
    }
    return text;
  }

 private:
  std::vector<SecondaryTierHandle> make_tiers(std::uint32_t num_tiers) {
    std::vector<SecondaryTierHandle> tiers;
    for (std::uint32_t place = 0; place < num_tiers; ++place) {
      tiers.emplace_back(std::make_unique<ScriptedTier>(place, calls_));
    }
    return tiers;
  }

  std::shared_ptr<TierCalls> calls_ = std::make_shared<TierCalls>();
  TieringOffloadingManager manager_;
};

TEST(TieringConfig, NeedsTheRuleAndNoFilter) {
  EXPECT_FALSE(check_tiering_config(config_of(4)).has_value());
  OffloadingManagerConfig config = config_of(4);
  config.rules = rules_of(Profile::kV019);
  EXPECT_TRUE(check_tiering_config(config).has_value());
  config = config_of(4);
  config.store_threshold = 2;
  EXPECT_TRUE(check_tiering_config(config).has_value());
  EXPECT_TRUE(check_tiering_config(config_of(0)).has_value());
}

template <class Manager>
class TieringManagerRules : public ::testing::Test {};
using Managers =
    ::testing::Types<reference::TieringOffloadingManager, optimized::TieringOffloadingManager>;
TYPED_TEST_SUITE(TieringManagerRules, Managers, SideNames);

// Upstream: test_tiering_offloading.py, cascade to all tiers.
TYPED_TEST(TieringManagerRules, AStoreCascadesToEveryTierInOrder) {
  Scene<TypeParam> scene(4, 2);
  EXPECT_EQ(scene.prepare({"1", "2"}), "1 2 -> 0 1");
  EXPECT_EQ(scene.transfers(), "") << "nothing is there to be copied yet";
  EXPECT_EQ(scene.complete({"1", "2"}), ErrorCode::kNone);
  EXPECT_EQ(scene.transfers(), "store 0 of A at 0: 1@0 2@1; store 1 of A at 1: 1@0 2@1");
  EXPECT_EQ(scene.manager().num_jobs(), 2u);
  EXPECT_EQ(scene.complete({}), ErrorCode::kNone);
  EXPECT_EQ(scene.transfers(), "store 2 of A at 0:; store 3 of A at 1:");
}

// Upstream: the same file, reference counts protect blocks during a cascade.
TYPED_TEST(TieringManagerRules, ACascadeHoldsItsBlocksUntilThePollAfterItsEnd) {
  Scene<TypeParam> scene(2, 2);
  scene.store({"1", "2"});
  EXPECT_EQ(scene.show(), "1+2 2+2");
  scene.finish(0, 0);
  EXPECT_EQ(scene.show(), "1+2 2+2");
  EXPECT_EQ(scene.prepare({"3"}), "no") << "this step was polled before";
  scene.end_step();
  EXPECT_EQ(scene.prepare({"3"}), "no") << "the other tier is still working";
  EXPECT_EQ(scene.show(), "1+1 2+1");
  scene.finish(1, 1, /*success=*/false);
  scene.end_step();
  EXPECT_EQ(scene.prepare({"3"}), "3 -> 0") << "a failed cascade releases its blocks, too";
}

// Upstream: the same file, a failed store is not cascaded.
TYPED_TEST(TieringManagerRules, AFailedStoreIsNotCascaded) {
  Scene<TypeParam> scene(4, 1);
  scene.prepare({"1"});
  EXPECT_EQ(scene.complete({"1"}, /*success=*/false), ErrorCode::kNone);
  EXPECT_EQ(scene.transfers(), "");
  EXPECT_EQ(scene.show(), "");
  EXPECT_EQ(scene.complete({"1"}, /*success=*/false), ErrorCode::kNone);
  EXPECT_EQ(scene.complete({"1"}), ErrorCode::kUnknownKey);
}

TYPED_TEST(TieringManagerRules, TiersAreAskedUpToTheFirstThatHasTheBlock) {
  Scene<TypeParam> scene(4, 3);
  scene.store({"1"});
  scene.methods();
  EXPECT_EQ(scene.look_up("1"), "hit");
  EXPECT_EQ(scene.methods(), "") << "the primary tier has it";
  EXPECT_EQ(scene.look_up("2"), "miss");
  EXPECT_EQ(scene.methods(), "lookup 0, lookup 1, lookup 2");
  scene.tier(1).add("2");
  scene.tier(2).add("2");
  EXPECT_EQ(scene.look_up("2"), "pending");
  EXPECT_EQ(scene.methods(), "lookup 0, lookup 1");
  EXPECT_EQ(scene.look_up("2"), "pending");
  EXPECT_EQ(scene.methods(), "") << "it is being promoted";
  EXPECT_EQ(scene.show(), "1+3 2?");
}

TYPED_TEST(TieringManagerRules, ATierThatAsksForARetryHidesNoOther) {
  Scene<TypeParam> scene(4, 2);
  scene.tier(0).ask_again("1", 2);
  EXPECT_EQ(scene.look_up("1"), "pending") << "no tier has it, but one may";
  scene.tier(1).add("1");
  EXPECT_EQ(scene.look_up("1"), "pending");
  EXPECT_EQ(scene.show(), "1?") << "promoted from the tier after";
  EXPECT_EQ(scene.look_up("2"), "miss");
}

// Upstream: the same file, one load per request; a shared block is promoted once.
TYPED_TEST(TieringManagerRules, TheEndOfAStepSubmitsOneLoadPerTierAndRequest) {
  Scene<TypeParam> scene(8, 2);
  for (OffloadKeyView key : {"1", "2", "3", "4"}) scene.tier(1).add(key);
  for (OffloadKeyView key : {"5", "6"}) scene.tier(0).add(key);
  for (OffloadKeyView key : {"3", "1"}) EXPECT_EQ(scene.look_up(key, "A"), "pending");
  EXPECT_EQ(scene.look_up("5", "A"), "pending");
  for (OffloadKeyView key : {"1", "4"}) EXPECT_EQ(scene.look_up(key, "B"), "pending");
  EXPECT_EQ(scene.look_up("2", "A"), "pending");
  EXPECT_EQ(scene.transfers(), "");
  EXPECT_EQ(scene.manager().num_pending(), 5u);
  scene.end_step();
  EXPECT_EQ(scene.transfers(),
            "load 0 of A at 1: 3@0 1@1 2@4; load 1 of B at 1: 4@3; load 2 of A at 0: 5@2");
  EXPECT_EQ(scene.manager().num_pending(), 0u);
  scene.end_step();
  EXPECT_EQ(scene.transfers(), "");
}

// Upstream: the same file, successful and failed promotions are finalised.
TYPED_TEST(TieringManagerRules, APromotionEndsWithThePollAfterItsJob) {
  Scene<TypeParam> scene(4, 1);
  for (OffloadKeyView key : {"1", "2"}) scene.tier(0).add(key);
  scene.look_up("1", "A");
  scene.look_up("2", "B");
  scene.end_step();
  scene.finish(0, 0);
  scene.finish(0, 1, /*success=*/false);
  scene.tier(0).drop("2");
  EXPECT_EQ(scene.look_up("1"), "hit") << "the poll comes before the lookup";
  EXPECT_EQ(scene.look_up("2"), "miss");
  EXPECT_EQ(scene.show(), "1");
  EXPECT_EQ(scene.events(), "+1");
  EXPECT_EQ(scene.manager().num_jobs(), 0u);
  EXPECT_EQ(scene.prepare({"3"}), "3 -> 2") << "the slot of 2 is free, but was used";
}

// Upstream: vllm#40020, which this release has: a full primary tier is a miss.
TYPED_TEST(TieringManagerRules, ABlockThatCannotBePromotedIsAMiss) {
  Scene<TypeParam> scene(1, 2);
  scene.store({"1"});
  scene.tier(0).ask_again("2", 1);
  scene.tier(1).add("2");
  EXPECT_EQ(scene.look_up("2"), "miss") << "although the first tier asks for a retry";
  EXPECT_EQ(scene.manager().num_pending(), 0u);
  scene.finish(0, 0);
  scene.finish(1, 1);
  scene.end_step();
  EXPECT_EQ(scene.look_up("2"), "pending");
  EXPECT_EQ(scene.show(), "2?") << "1 went for it";
  EXPECT_EQ(scene.events(), "+1 -1");
}

TYPED_TEST(TieringManagerRules, EachStepPollsOnceBeforeItsFirstQuery) {
  const std::string poll = "get_finished_jobs 0, get_finished_jobs 1";
  Scene<TypeParam> scene(4, 2);
  scene.manager().touch(Keys{"1"}, {"A"});
  scene.manager().on_new_request({"A"});
  EXPECT_EQ(scene.methods(), "touch 0, touch 1, on_new_request 0, on_new_request 1");
  EXPECT_EQ(scene.load({}), ErrorCode::kNone);
  EXPECT_EQ(scene.methods(), poll);
  scene.prepare({});
  EXPECT_EQ(scene.load({"9"}), ErrorCode::kUnknownKey);
  EXPECT_EQ(scene.methods(), "");
  scene.end_step();
  EXPECT_EQ(scene.methods(), "on_schedule_end 0, on_schedule_end 1");
  scene.end_step();
  EXPECT_EQ(scene.methods(), poll + ", on_schedule_end 0, on_schedule_end 1");
  EXPECT_EQ(scene.load({"9"}), ErrorCode::kUnknownKey);
  EXPECT_EQ(scene.methods(), poll) << "before a refusal, too";
}

// Upstream: the same file, request-level cascade of blocks that are there.
TYPED_TEST(TieringManagerRules, ATierAtRequestLevelGetsReadyBlocks) {
  Scene<TypeParam> scene(4, 2);
  scene.tier(1).want(OffloadPolicy::kRequestLevel);
  EXPECT_EQ(scene.manager().on_new_request({"B"}), OffloadPolicy::kRequestLevel);
  scene.tier(1).want(OffloadPolicy::kBlockLevel);
  EXPECT_EQ(scene.manager().on_new_request({"B"}), OffloadPolicy::kRequestLevel)
      << "after it said so once";
  EXPECT_EQ(scene.manager().on_new_request({"A"}), OffloadPolicy::kBlockLevel);
  scene.store({"1", "2"}, "A");
  scene.prepare({"3"}, "A");
  scene.transfers();
  EXPECT_EQ(scene.prepare({"3", "2", "4", "1"}, "B"), "4 -> 3");
  EXPECT_EQ(scene.transfers(), "store 2 of B at 1: 2@1 1@0") << "3 is left out for good";
  EXPECT_EQ(scene.show(), "1+3 2+3 3? 4?");
  EXPECT_EQ(scene.prepare({"1"}, "A"), "->");
  EXPECT_EQ(scene.prepare({"3"}, "B"), "->");
  scene.manager().on_request_finished({"B"});
  EXPECT_EQ(scene.prepare({"1"}, "B"), "->");
  EXPECT_EQ(scene.transfers(), "");
}

TYPED_TEST(TieringManagerRules, TransfersOfAnEndedRequestContinue) {
  Scene<TypeParam> scene(4, 1);
  scene.tier(0).add("1");
  scene.prepare({"2"}, "A");
  scene.look_up("1", "A");
  scene.manager().on_request_finished({"A"});
  EXPECT_EQ(scene.complete({"2"}, true, "A"), ErrorCode::kNone);
  scene.end_step();
  EXPECT_EQ(scene.transfers(), "store 0 of A at 0: 2@0; load 1 of A at 0: 1@1");
}

TYPED_TEST(TieringManagerRules, TheCallerCannotEndAPromotion) {
  Scene<TypeParam> scene(4, 1);
  scene.tier(0).add("1");
  scene.look_up("1");
  EXPECT_EQ(scene.complete({"1"}), ErrorCode::kNotReady);
  EXPECT_EQ(scene.complete({"1"}, /*success=*/false), ErrorCode::kNotReady);
  EXPECT_EQ(scene.complete({"1", "9"}), ErrorCode::kUnknownKey) << "looked for first";
  scene.end_step();
  EXPECT_EQ(scene.complete({"1"}), ErrorCode::kNotReady);
  EXPECT_EQ(scene.show(), "1?");
  scene.finish(0, 0);
  EXPECT_EQ(scene.look_up("1"), "hit");
  EXPECT_EQ(scene.complete({"1"}), ErrorCode::kNone);
}

TYPED_TEST(TieringManagerRules, ALoadReleasesNothingThatACascadeHolds) {
  Scene<TypeParam> scene(4, 2);
  scene.store({"1"});
  EXPECT_EQ(scene.manager().complete_load(Keys{"1"}), ErrorCode::kNotReading);
  EXPECT_EQ(scene.load({"1"}), ErrorCode::kNone);
  EXPECT_EQ(scene.manager().complete_load(Keys{"1", "1"}), ErrorCode::kNotReading);
  EXPECT_EQ(scene.show(), "1+3");
  EXPECT_EQ(scene.manager().complete_load(Keys{"1", "9"}), ErrorCode::kUnknownKey);
  EXPECT_EQ(scene.manager().complete_load(Keys{"1"}), ErrorCode::kNone);
  EXPECT_EQ(scene.show(), "1+2");
}

TYPED_TEST(TieringManagerRules, AStrangeResultIsPassedOver) {
  Scene<TypeParam> scene(4, 2);
  scene.store({"1"});
  scene.end_step();
  scene.finish(0, 1);
  scene.finish(0, 7);
  scene.finish(0, 0);
  scene.finish(0, 0);
  scene.end_step();
  EXPECT_EQ(scene.show(), "1+1") << "job 1 is the other tier's";
  scene.finish(1, 1);
  scene.end_step();
  EXPECT_EQ(scene.show(), "1");
}

TYPED_TEST(TieringManagerRules, TheFirstErrorOfAStoreIsThePrimarys) {
  Scene<TypeParam> scene(4, 1);
  bool stored = false;
  PrepareStoreOutput out;
  EXPECT_EQ(scene.manager().prepare_store(Keys{"1", "1"}, {"A"}, stored, out),
            ErrorCode::kListedTwice);
  EXPECT_EQ(scene.methods(), "get_finished_jobs 0");
  scene.prepare({"1"});
  EXPECT_EQ(scene.load({"1"}), ErrorCode::kNotReady);
}

TYPED_TEST(TieringManagerRules, AResetDoesNothing) {
  Scene<TypeParam> scene(4, 1);
  scene.store({"1"});
  scene.manager().reset_cache();
  EXPECT_EQ(scene.show(), "1+1");
}

TYPED_TEST(TieringManagerRules, WithoutTiersItIsItsPrimaryTier) {
  Scene<TypeParam> scene(2, 0);
  scene.store({"1", "2"});
  EXPECT_EQ(scene.manager().num_jobs(), 0u);
  EXPECT_EQ(scene.look_up("3"), "miss");
  EXPECT_EQ(scene.prepare({"3"}), "3 -> 0");
}

}  // namespace
}  // namespace kvfence
