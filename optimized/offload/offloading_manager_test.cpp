#include "optimized/offload/offloading_manager.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "contract/offload/offload_key_number.h"

namespace kvfence::optimized {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Slots = std::vector<SlotId>;

/// What prepare_store said, in numbers.
struct Stored {
  ErrorCode error = ErrorCode::kNone;
  bool stored = false;
  Numbers keys = {};
  Slots slots = {};
  Numbers evicted = {};
  friend bool operator==(const Stored&, const Stored&) = default;
};

/// A manager that is spoken to in numbers.
class Subject {
 public:
  explicit Subject(const OffloadingManagerConfig& config) : manager_(config) {}

  std::uint32_t lookup(const Numbers& numbers) {
    const Keys keys(numbers);
    std::uint32_t num_hits = 99;
    EXPECT_EQ(manager_.lookup(keys.views, num_hits), ErrorCode::kNone);
    return num_hits;
  }
  LookupResult lookup_key(std::uint32_t number) {
    LookupResult result = LookupResult::kMiss;
    EXPECT_EQ(manager_.lookup_key(key_of_number(number), result), ErrorCode::kNone);
    return result;
  }
  void touch(const Numbers& numbers) {
    const Keys keys(numbers);
    manager_.touch(keys.views);
  }
  ErrorCode prepare_load(const Numbers& numbers) {
    const Keys keys(numbers);
    return manager_.prepare_load(keys.views, slots_);
  }
  ErrorCode complete_load(const Numbers& numbers) {
    const Keys keys(numbers);
    return manager_.complete_load(keys.views);
  }
  Stored prepare_store(const Numbers& numbers) {
    const Keys keys(numbers);
    Stored result;
    result.error = manager_.prepare_store(keys.views, result.stored, out_);
    if (result.error != ErrorCode::kNone) return result;
    for (OffloadKeyView key : out_.keys_to_store) result.keys.push_back(*number_of_key(key));
    result.slots = out_.slots;
    for (const EvictedBlock& block : out_.evicted) {
      result.evicted.push_back(*number_of_key(block.key));
    }
    return result;
  }
  void complete_store(const Numbers& numbers, bool success = true) {
    const Keys keys(numbers);
    manager_.complete_store(keys.views, success);
  }
  void store(const Numbers& numbers) {
    ASSERT_TRUE(prepare_store(numbers).stored);
    complete_store(numbers);
  }

  /// "+1,2 -3": stored 1 and 2, removed 3.
  std::string events() {
    std::vector<OffloadingEvent> events;
    manager_.take_events(events);
    std::string text;
    for (const OffloadingEvent& event : events) {
      text += text.empty() ? "" : " ";
      const char* separator = event.removed ? "-" : "+";
      for (const OffloadKey& key : event.keys) {
        text += separator + std::to_string(*number_of_key(key));
        separator = ",";
      }
    }
    return text;
  }

  PolicyLists lists() const {
    PolicyLists lists;
    manager_.policy().lists(lists);
    return lists;
  }

  OffloadingManager& manager() { return manager_; }
  const Slots& slots() const { return slots_; }

 private:
  struct Keys {
    explicit Keys(const Numbers& numbers) {
      for (std::uint32_t number : numbers) keys.push_back(key_of_number(number));
      views.assign(keys.begin(), keys.end());
    }
    std::vector<OffloadKey> keys;
    std::vector<OffloadKeyView> views;
  };

  OffloadingManager manager_;
  Slots slots_;
  PrepareStoreOutput out_;
};

OffloadingManagerConfig config_of(std::uint32_t capacity, Profile profile = Profile::kV019) {
  OffloadingManagerConfig config;
  config.cache.capacity = capacity;
  config.enable_events = true;
  config.rules = rules_of(profile);
  return config;
}

TEST(OffloadingManager, GivesOutFreshSlotsFirstThenTheOnesFreedLast) {
  Subject manager(config_of(4));
  EXPECT_EQ(manager.prepare_store({1, 2}),
            (Stored{.stored = true, .keys = {1, 2}, .slots = {0, 1}}));
  manager.complete_store({1, 2});
  EXPECT_EQ(
      manager.prepare_store({3, 4, 5, 6}),
      (Stored{.stored = true, .keys = {3, 4, 5, 6}, .slots = {2, 3, 1, 0}, .evicted = {1, 2}}));
  EXPECT_EQ(manager.manager().num_free_slots(), 0U);
}

TEST(OffloadingManager, StoresWhatIsNotHeldAndKeepsTheRestOfTheList) {
  Subject manager(config_of(4));
  manager.store({1, 2, 3, 4});
  EXPECT_EQ(manager.prepare_store({1, 5, 2}),
            (Stored{.stored = true, .keys = {5}, .slots = {2}, .evicted = {3}}));
  EXPECT_EQ(manager.prepare_store({1, 5, 2}), (Stored{.stored = true}));
}

TEST(OffloadingManager, ARefusedStoreChangesNothing) {
  Subject manager(config_of(3));
  manager.store({1, 2, 3});
  ASSERT_EQ(manager.prepare_load({2}), ErrorCode::kNone);
  manager.events();
  const PolicyLists before = manager.lists();
  EXPECT_EQ(manager.prepare_store({4, 5, 6}), Stored{});
  EXPECT_EQ(manager.prepare_store({1, 4, 5}), Stored{});
  EXPECT_EQ(manager.prepare_store({4, 5, 6, 7}), Stored{});
  EXPECT_EQ(manager.prepare_store({4, 5, 4}).error, ErrorCode::kListedTwice);
  EXPECT_EQ(manager.lists(), before);
  EXPECT_EQ(manager.events(), "");
  EXPECT_TRUE(manager.prepare_store({1, 1, 4}).stored);
}

TEST(OffloadingManager, CountsLeadingBlocksThatCanBeRead) {
  Subject manager(config_of(4));
  ASSERT_TRUE(manager.prepare_store({1, 2, 3}).stored);
  EXPECT_EQ(manager.lookup({1, 2, 3}), 0U);
  manager.complete_store({1, 3});
  EXPECT_EQ(manager.lookup({1, 2, 3}), 1U);
  EXPECT_EQ(manager.lookup({3, 1, 3, 9, 1}), 3U);
  LookupResult result = LookupResult::kHit;
  EXPECT_EQ(manager.manager().lookup_key(key_of_number(1), result), ErrorCode::kNotInProfile);
  EXPECT_EQ(manager.manager().reset_cache(), ErrorCode::kNotInProfile);
}

TEST(OffloadingManager, AnswersKeyByKeyWithTheRule) {
  Subject manager(config_of(4, Profile::kV023));
  ASSERT_TRUE(manager.prepare_store({1, 2}).stored);
  manager.complete_store({1});
  EXPECT_EQ(manager.lookup_key(1), LookupResult::kHit);
  EXPECT_EQ(manager.lookup_key(2), LookupResult::kPending);
  EXPECT_EQ(manager.lookup_key(3), LookupResult::kMiss);
  std::uint32_t num_hits = 0;
  EXPECT_EQ(manager.manager().lookup({}, num_hits), ErrorCode::kNotInProfile);
}

TEST(OffloadingManager, LoadsAreAllOrNothing) {
  Subject manager(config_of(4));
  manager.store({1, 2});
  ASSERT_TRUE(manager.prepare_store({3}).stored);
  EXPECT_EQ(manager.prepare_load({3, 1, 9}), ErrorCode::kUnknownKey);
  EXPECT_EQ(manager.prepare_load({1, 3}), ErrorCode::kNotReady);
  EXPECT_EQ(manager.prepare_load({2, 1, 2}), ErrorCode::kNone);
  EXPECT_EQ(manager.slots(), (Slots{1, 0, 1}));
  const PolicyLists before = manager.lists();
  EXPECT_EQ(manager.complete_load({2, 2, 2, 9}), ErrorCode::kUnknownKey);
  EXPECT_EQ(manager.complete_load({2, 1, 2, 2}), ErrorCode::kNotReading);
  EXPECT_EQ(manager.complete_load({1, 3}), ErrorCode::kNotReading);
  EXPECT_EQ(manager.lists(), before);
  EXPECT_EQ(manager.complete_load({2, 1, 2}), ErrorCode::kNone);
  EXPECT_EQ(manager.lists().t1[1].status.ref_cnt, 0);
}

TEST(OffloadingManager, AFailedStoreGivesItsSlotsBack) {
  Subject manager(config_of(3));
  manager.store({1});
  ASSERT_TRUE(manager.prepare_store({2, 3}).stored);
  manager.complete_store({3, 1, 9, 2, 3}, /*success=*/false);
  EXPECT_EQ(manager.manager().num_free_slots(), 2U);
  EXPECT_EQ(manager.lookup({1}), 1U);
  EXPECT_EQ(manager.prepare_store({4, 5}).slots, (Slots{1, 2}));
}

TEST(OffloadingManager, TellsWhatWasStoredAndRemoved) {
  Subject manager(config_of(2));
  ASSERT_TRUE(manager.prepare_store({1, 2}).stored);
  EXPECT_EQ(manager.events(), "");
  manager.complete_store({2, 9, 1, 2});
  manager.complete_store({1});
  ASSERT_TRUE(manager.prepare_store({3, 4}).stored);
  manager.complete_store({3, 4}, /*success=*/false);
  EXPECT_EQ(manager.events(), "+2,1 -1,2");
  EXPECT_EQ(manager.events(), "");
}

TEST(OffloadingManager, TellsNothingWithoutEvents) {
  OffloadingManagerConfig config = config_of(2);
  config.enable_events = false;
  Subject manager(config);
  manager.store({1, 2});
  manager.store({3});
  EXPECT_EQ(manager.events(), "");
}

TEST(OffloadingManager, StoresWhatWasLookedUpOften) {
  OffloadingManagerConfig config = config_of(4);
  config.store_threshold = 2;
  config.max_tracker_size = 3;
  Subject manager(config);
  manager.lookup({1, 2});
  EXPECT_EQ(manager.prepare_store({1, 2}), (Stored{.stored = true}));
  manager.lookup({1, 2});
  EXPECT_EQ(manager.prepare_store({1, 5, 2}).keys, (Numbers{1, 2}));
  manager.lookup({3, 4});  // drops 1
  manager.lookup({1});     // drops 2, and 1 starts again
  manager.complete_store({1, 2}, /*success=*/false);
  EXPECT_EQ(manager.prepare_store({1, 2}), (Stored{.stored = true}));
  manager.lookup({1, 1, 4});
  // A key that stands twice and does not pass is no error.
  EXPECT_EQ(manager.prepare_store({3, 3, 1, 4}).keys, (Numbers{1, 4}));
}

// Held keys that the filter drops are not protected.
TEST(OffloadingManager, ProtectsWhatPassesTheFilter) {
  OffloadingManagerConfig config = config_of(2);
  config.store_threshold = 2;
  config.max_tracker_size = 2;
  Subject manager(config);
  manager.lookup({1, 2, 1, 2});
  manager.store({1, 2});
  manager.lookup({3, 3, 2});  // 1 is counted no more, 2 is at 3
  EXPECT_EQ(manager.prepare_store({1, 2, 3}).evicted, (Numbers{1}));
}

TEST(OffloadingManager, ForgetsBlocksAndSlotsButNotCountsAndEvents) {
  OffloadingManagerConfig config = config_of(2, Profile::kV023);
  config.store_threshold = 2;
  Subject manager(config);
  for (int i = 0; i < 2; ++i) {
    for (std::uint32_t number : {1U, 2U, 3U}) manager.lookup_key(number);
  }
  manager.store({1, 2});
  ASSERT_EQ(manager.prepare_load({1}), ErrorCode::kNone);
  ASSERT_EQ(manager.manager().reset_cache(), ErrorCode::kNone);
  EXPECT_EQ(manager.lists(), PolicyLists{});
  EXPECT_EQ(manager.manager().num_free_slots(), 2U);
  EXPECT_EQ(manager.prepare_store({3}).slots, (Slots{0}));
  EXPECT_EQ(manager.events(), "+1,2");
}

TEST(OffloadingManager, ACopyGoesItsOwnWay) {
  Subject manager(config_of(2));
  manager.store({1, 2});
  Subject copy = manager;
  ASSERT_TRUE(copy.prepare_store({3, 4}).stored);
  EXPECT_EQ(manager.lookup({1, 2}), 2U);
  EXPECT_EQ(manager.events(), "+1,2");
}

TEST(OffloadingManager, WorksWithARC) {
  OffloadingManagerConfig config = config_of(4);
  config.cache.policy = EvictionPolicy::kARC;
  Subject manager(config);
  manager.store({1, 2, 3, 4});
  manager.touch({3, 4});
  EXPECT_EQ(manager.prepare_store({5, 6}).evicted, (Numbers{1, 2}));
  manager.complete_store({5, 6});
  manager.touch({1});
  EXPECT_EQ(manager.lists().target_t1_size, 1);
  EXPECT_EQ(manager.prepare_store({1}),
            (Stored{.stored = true, .keys = {1}, .slots = {1}, .evicted = {5}}));
  EXPECT_EQ(manager.lists().b1.size(), 2U);
}

}  // namespace
}  // namespace kvfence::optimized
