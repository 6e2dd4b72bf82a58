#include "properties/eviction/rules.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"

namespace kvfence::eviction {
namespace {

/// "1 2? 3+2": block 1 is idle, 2 is not ready, 3 has two readers. A block's slot is its key.
std::vector<Entry> blocks(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto key = static_cast<std::uint32_t>(std::stoul(word));
    const std::size_t plus = word.find('+');
    const auto readers = plus == std::string::npos
                             ? std::uint32_t{0}
                             : static_cast<std::uint32_t>(std::stoul(word.substr(plus + 1)));
    entries.push_back({key, key, word.back() != '?', readers});
  }
  return entries;
}

std::vector<std::uint32_t> keys(const std::string& text) {
  std::vector<std::uint32_t> numbers;
  for (const Entry& entry : blocks(text)) numbers.push_back(entry.key);
  return numbers;
}

std::vector<Victim> victims(const std::string& text) {
  std::vector<Victim> evicted;
  for (std::uint32_t key : keys(text)) evicted.push_back({key, key});
  return evicted;
}

/// A policy as a hand writes down what it shows.
class Scene {
 public:
  explicit Scene(EvictionPolicy policy = EvictionPolicy::kARC, std::uint32_t capacity = 4,
                 bool arc_refuses_with_idle_t1 = true)
      : invariants_({policy, capacity, arc_refuses_with_idle_t1}) {}

  // What the next observation shows.
  std::string t1;
  std::string t2;
  std::string b1;
  std::string b2;
  double target = 0;

  Observation show(ErrorCode error = ErrorCode::kNone) const {
    Observation shown;
    shown.error = error;
    shown.t1.emplace() = blocks(t1);
    shown.t2.emplace() = blocks(t2);
    shown.b1.emplace() = keys(b1);
    shown.b2.emplace() = keys(b2);
    shown.size = static_cast<std::uint32_t>(blocks(t1).size() + blocks(t2).size());
    shown.target_t1_size = target;
    return shown;
  }

  Observation evicted(const std::string& text) const {
    Observation shown = show();
    shown.success.emplace() = true;
    shown.evicted.emplace() = victims(text);
    return shown;
  }
  Observation failed() const {
    Observation shown = show();
    shown.success.emplace() = false;
    return shown;
  }
  Observation found(const std::string& text) const {
    Observation shown = show();
    shown.found.emplace() = blocks(text);
    return shown;
  }

  /// The verdict if the policy answered so; the scene stays where it is.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown) const {
    Invariants invariants = invariants_;
    return invariants.check(command, shown, World(), step_);
  }
  std::optional<Divergence> verdict(const Command& command) const {
    return verdict(command, show());
  }

  /// Goes on with an answer that is right.
  void pass(const Command& command, const Observation& shown) {
    const auto found = invariants_.check(command, shown, World(), step_++);
    if (found) {
      ADD_FAILURE() << "step " << found->step << ": " << found->message << "\n  " << found->field
                    << ": expected " << found->expected << ", actual " << found->actual;
    }
  }
  void pass(const Command& command) { pass(command, show()); }

  /// Blocks that are ready, oldest first.
  void store(const std::vector<std::uint32_t>& stored) {
    for (std::uint32_t key : stored) {
      const std::string before = t1;
      t1 = before + " " + std::to_string(key) + "?";
      pass(Insert{key, key});
      t1 = before + " " + std::to_string(key);
      pass(MakeReady{key});
    }
  }

  /// T1 is 1 2, T2 is 3 4.
  void fill() {
    store({1, 2, 4, 3});
    t1 = "1 2";
    t2 = "3 4";
    pass(Touch{{4, 3}});
  }

  /// The same of ARC with a capacity of 5, B1 with 9, and a target of 3.
  void fill_below_target() {
    store({9, 1, 2, 4, 3});
    t1 = "1 2 4 3";
    b1 = "9";
    pass(Evict{1, {}}, evicted("9"));
    t1 = "1 2";
    t2 = "3 4";
    pass(Touch{{4, 3}});
    target = 3;
    pass(Touch{{9, 9, 9}});
  }

 private:
  Invariants invariants_;
  std::size_t step_ = 0;
};

/// The verdict names this invariant and this place.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field) {
  kvfence::expect_broken(kInvariants, found, id, field);
}

TEST(EvictionInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'E');
}

TEST(EvictionInvariants, E1AnswersFitTheCommand) {
  Scene scene;
  scene.fill();
  expect_broken(scene.verdict(Insert{1, 0}), "E1", "error");
  expect_broken(scene.verdict(Insert{1, 0}, scene.show(ErrorCode::kNoFreeBlocks)), "E1", "error");
  expect_broken(scene.verdict(Remove{1}, scene.show(ErrorCode::kUnknownKey)), "E1", "error");
  expect_broken(scene.verdict(Evict{1, {}}), "E1", "success");
  expect_broken(scene.verdict(Touch{{}}, scene.evicted("")), "E1", "success");
  expect_broken(scene.verdict(Get{1}), "E1", "found");
  expect_broken(scene.verdict(Get{1}, scene.found("")), "E1", "found[0]");
  expect_broken(scene.verdict(Get{1}, scene.found("1?")), "E1", "found[0].ready");
  expect_broken(scene.verdict(Get{9}, scene.found("9")), "E1", "found[0]");
  Observation with_victims = scene.failed();
  with_victims.evicted.emplace() = victims("1");
  expect_broken(scene.verdict(Evict{5, {}}, with_victims), "E1", "evicted");
  scene.pass(Get{1}, scene.found("1"));
  scene.pass(Get{9}, scene.found(""));
}

// Each line is a command that the contract refuses with this code, and no other.
TEST(EvictionInvariants, E1KnowsEveryRefusal) {
  struct Refusal {
    Command command;
    ErrorCode error;
  };
  const std::vector<Refusal> refusals = {
      {Insert{1, 0}, ErrorCode::kAlreadyStored}, {Insert{9, 0}, ErrorCode::kNoFreeBlocks},
      {Remove{9}, ErrorCode::kUnknownKey},       {MakeReady{9}, ErrorCode::kUnknownKey},
      {MakeReady{1}, ErrorCode::kAlreadyReady},  {Acquire{9}, ErrorCode::kUnknownKey},
      {Acquire{5}, ErrorCode::kNotReady},        {Release{9}, ErrorCode::kUnknownKey},
      {Release{5}, ErrorCode::kNotReady},        {Release{1}, ErrorCode::kNotReading},
  };
  Scene scene(EvictionPolicy::kARC, 5);
  scene.fill();
  scene.t1 = "1 2 5?";
  scene.pass(Insert{5, 5});
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(print(to_line(kvfence::Command(refusal.command))));
    expect_broken(scene.verdict(refusal.command, scene.show(ErrorCode::kQueueEmpty)), "E1",
                  "error");
    scene.pass(refusal.command, scene.show(refusal.error));
  }
}

TEST(EvictionInvariants, E2NothingChangesUnasked) {
  Scene scene;
  scene.fill();
  const Scene before = scene;
  scene.t1 = "2 1";
  expect_broken(scene.verdict(Get{1}, scene.found("1")), "E2", "t1[0].key");
  expect_broken(scene.verdict(Evict{5, {}}, scene.failed()), "E2", "t1[0].key");
  expect_broken(scene.verdict(Insert{1, 0}, scene.show(ErrorCode::kAlreadyStored)), "E2",
                "t1[0].key");
  scene = before;
  scene.t1 = "1 2+1";
  expect_broken(scene.verdict(Release{1}, scene.show(ErrorCode::kNotReading)), "E2",
                "t1[1].readers");
  scene = before;
  scene.target = 1;
  expect_broken(scene.verdict(Get{9}, scene.found("")), "E2", "target_t1_size");
  scene = before;
  scene.pass(Evict{5, {}}, scene.failed());
}

TEST(EvictionInvariants, E3AKeyHasOnePlace) {
  Scene scene;
  scene.fill();
  scene.t2 = "3 4 1";
  expect_broken(scene.verdict(Touch{{1}}), "E3", "t1[0].key");
  scene.t1 = "2 2";
  expect_broken(scene.verdict(Touch{{1}}), "E3", "t1[1]");
  scene.t1 = "2";
  scene.b1 = "1";
  expect_broken(scene.verdict(Touch{{1}}), "E3", "b1[0]");
  scene.b1 = "";
  scene.pass(Touch{{1}});
}

TEST(EvictionInvariants, E4SizeIsConserved) {
  Scene scene;
  scene.fill();
  Observation shown = scene.show();
  shown.size = 3;
  expect_broken(scene.verdict(Touch{{}}, shown), "E4", "size");
}

TEST(EvictionInvariants, E5TargetMovesWithGhostHits) {
  Scene scene(EvictionPolicy::kARC, 5);
  scene.fill_below_target();
  for (double wrong : {3.0, 4.5, 6.0, -1.0}) {
    scene.target = wrong;
    expect_broken(scene.verdict(Touch{{9}}), "E5", "target_t1_size");
  }
  scene.target = 4;
  scene.pass(Touch{{9}});
  expect_broken(scene.verdict(Clear{}), "E12", "t1[0]");
  scene.t1 = scene.t2 = scene.b1 = "";
  expect_broken(scene.verdict(Clear{}), "E5", "target_t1_size");
  scene.target = 0;
  scene.pass(Clear{});
}

TEST(EvictionInvariants, E5OfQuotients) {
  Scene scene(EvictionPolicy::kARC, 8);
  scene.store({1, 2, 3, 4, 5});
  scene.t1 = "1 2";
  scene.t2 = "5 4 3";
  scene.pass(Touch{{3, 4, 5}});
  scene.t1 = scene.t2 = "";
  scene.b1 = "1 2";
  scene.b2 = "5 4 3";
  scene.pass(Evict{5, {}}, scene.evicted("1 2 5 4 3"));
  scene.b1 = "2 1";
  scene.target = 1;
  expect_broken(scene.verdict(Touch{{1}}), "E5", "target_t1_size");
  scene.target = 1.5;
  scene.pass(Touch{{1}});
  scene.b2 = "4 3 5";
  scene.target = 1.5 - 2.0 / 3.0;
  expect_broken(scene.verdict(Touch{{5}}), "E5", "target_t1_size");
  scene.target = 0.5;
  scene.pass(Touch{{5}});
}

TEST(EvictionInvariants, E6GhostsAreBounded) {
  Scene scene(EvictionPolicy::kARC, 1);
  scene.store({1});
  scene.t1 = "";
  scene.b1 = "1";
  scene.pass(Evict{1, {}}, scene.evicted("1"));
  scene.store({2});
  scene.t1 = "";
  scene.b1 = "1 2";
  expect_broken(scene.verdict(Evict{1, {}}, scene.evicted("2")), "E6", "b1[0]");
  scene.b1 = "2";
  scene.pass(Evict{1, {}}, scene.evicted("2"));
}

TEST(EvictionInvariants, E7WhatMayGoGoes) {
  Scene scene;
  scene.fill();
  scene.t1 = "1+1 2";
  scene.pass(Acquire{1});
  // Being read, too few, too many, one twice, one that is not held, a protected one.
  for (const auto& [wrong, field] :
       {std::pair{"1 3", "evicted[0].key"}, std::pair{"2", "evicted[1]"},
        std::pair{"2 3 4", "evicted[2]"}, std::pair{"2 2", "evicted[1].key"},
        std::pair{"2 9", "evicted[1].key"}, std::pair{"2 4", "evicted[1].key"}}) {
    SCOPED_TRACE(wrong);
    expect_broken(scene.verdict(Evict{2, {4}}, scene.evicted(wrong)), "E7", field);
  }
  scene.t1 = "1+1";
  scene.t2 = "4";
  scene.b1 = "2";
  scene.b2 = "3";
  Observation wrong_slot = scene.evicted("2 3");
  wrong_slot.evicted.emplace()[1].slot = 9;
  expect_broken(scene.verdict(Evict{2, {4}}, wrong_slot), "E7", "evicted[1].slot");
  Scene kept = scene;
  kept.t2 = "4 3";
  kept.b2 = "";
  expect_broken(kept.verdict(Evict{2, {4}}, kept.evicted("2 3")), "E7", "t2[1]");
  scene.pass(Evict{2, {4}}, scene.evicted("2 3"));
}

TEST(EvictionInvariants, E8AnEvictFailsOnlyIfItMust) {
  Scene scene(EvictionPolicy::kARC, 5);
  scene.fill_below_target();
  expect_broken(scene.verdict(Evict{2, {}}, scene.failed()), "E8", "success");
  scene.pass(Evict{3, {}}, scene.failed());
  scene.pass(Evict{1, {3, 4}}, scene.failed());
  scene.t1 = "2";
  scene.t2 = "";
  scene.b1 = "9 1";
  scene.b2 = "3 4";
  expect_broken(scene.verdict(Evict{3, {}}, scene.evicted("3 4 1")), "E8", "success");

  Scene without_rule(EvictionPolicy::kARC, 5, /*arc_refuses_with_idle_t1=*/false);
  without_rule.fill_below_target();
  expect_broken(without_rule.verdict(Evict{3, {}}, without_rule.failed()), "E8", "success");
  without_rule.t1 = "2";
  without_rule.t2 = "";
  without_rule.b1 = "9 1";
  without_rule.b2 = "3 4";
  without_rule.pass(Evict{3, {}}, without_rule.evicted("3 4 1"));
}

TEST(EvictionInvariants, E9TheOldestGoFirst) {
  Scene scene;
  scene.fill();
  expect_broken(scene.verdict(Evict{1, {}}, scene.evicted("2")), "E9", "evicted[0].key");
  expect_broken(scene.verdict(Evict{1, {}}, scene.evicted("3")), "E9", "evicted[0].key");
  expect_broken(scene.verdict(Evict{2, {}}, scene.evicted("2 1")), "E9", "evicted[0].key");

  Scene below(EvictionPolicy::kARC, 5);
  below.fill_below_target();
  expect_broken(below.verdict(Evict{1, {}}, below.evicted("1")), "E9", "evicted[0].key");

  Scene lru(EvictionPolicy::kLRU);
  lru.store({1, 2});
  lru.t1 = "2 1";
  lru.pass(Touch{{1}});
  lru.t1 = "2";
  expect_broken(lru.verdict(Evict{1, {}}, lru.evicted("1")), "E9", "evicted[0].key");
  lru.t1 = "1";
  lru.pass(Evict{1, {}}, lru.evicted("2"));
}

TEST(EvictionInvariants, E10VictimsBecomeGhosts) {
  Scene scene;
  scene.fill();
  scene.t1 = "";
  scene.t2 = "4";
  scene.b1 = "2 1";
  scene.b2 = "3";
  expect_broken(scene.verdict(Evict{3, {}}, scene.evicted("1 2 3")), "E10", "b1[0]");
  scene.b1 = "1 2";
  scene.b2 = "";
  expect_broken(scene.verdict(Evict{3, {}}, scene.evicted("1 2 3")), "E10", "b2[0]");
  scene.b2 = "3";
  scene.pass(Evict{3, {}}, scene.evicted("1 2 3"));

  Scene lru(EvictionPolicy::kLRU);
  lru.store({1});
  lru.t1 = "";
  lru.b1 = "1";
  expect_broken(lru.verdict(Evict{1, {}}, lru.evicted("1")), "E10", "b1[0]");
}

TEST(EvictionInvariants, E11TheFirstTouchedIsTheNewest) {
  Scene scene;
  scene.fill();
  scene.t1 = "";
  scene.t2 = "3 4 1 2";
  expect_broken(scene.verdict(Touch{{1, 2}}), "E11", "t2[2].key");
  scene.t2 = "3 4 2 1";
  scene.pass(Touch{{1, 2}});
  // Where a key stands first in the call is what counts.
  expect_broken(scene.verdict(Touch{{2, 9, 1, 2}}), "E11", "t2[2].key");
  scene.t2 = "3 4 1 2";
  scene.pass(Touch{{2, 9, 1, 2}});
}

TEST(EvictionInvariants, E11OfBlocksThatAreWritten) {
  Scene scene;
  scene.t1 = "1?";
  scene.pass(Insert{1, 1});
  scene.t1 = "1? 2?";
  scene.pass(Insert{2, 2});
  scene.t1 = "2?";
  scene.t2 = "1?";
  expect_broken(scene.verdict(Touch{{1}}), "E11", "t1[1]");
  scene.t1 = "2? 1?";
  scene.t2 = "";
  scene.pass(Touch{{1}});
}

TEST(EvictionInvariants, E12BlocksComeAndGoAsAsked) {
  Scene scene(EvictionPolicy::kARC, 5);
  scene.fill_below_target();
  scene.t1 = "5? 1 2";
  expect_broken(scene.verdict(Insert{5, 5}), "E12", "t1[0].key");
  scene.t1 = "1 2 9?";
  scene.b1 = "";
  scene.pass(Insert{9, 9});
  scene.t1 = "2 9?";
  scene.b1 = "1";
  expect_broken(scene.verdict(Remove{1}), "E12", "b1[0]");
  scene.b1 = "";
  scene.pass(Remove{1});
}

TEST(EvictionInvariants, E13ReadersAreCounted) {
  Scene scene;
  scene.t1 = "1";
  expect_broken(scene.verdict(Insert{1, 1}), "E13", "t1[0].ready");
  scene.t1 = "1?";
  expect_broken(scene.verdict(Insert{1, 7}), "E13", "t1[0].slot");
  scene.pass(Insert{1, 1});
  expect_broken(scene.verdict(MakeReady{1}), "E13", "t1[0].ready");
  scene.t1 = "1";
  scene.pass(MakeReady{1});
  expect_broken(scene.verdict(Acquire{1}), "E13", "t1[0].readers");
  scene.t1 = "1+1";
  scene.pass(Acquire{1});
  expect_broken(scene.verdict(Release{1}), "E13", "t1[0].readers");
}

/// The observation without its lists.
Observation numbers_of(Observation shown) {
  shown.t1.reset();
  shown.t2.reset();
  shown.b1.reset();
  shown.b2.reset();
  return shown;
}

TEST(EvictionInvariants, BookkeepingGoesOnWithoutTheLists) {
  Scene scene;
  scene.fill();
  scene.t1 = "2";
  scene.b1 = "1";
  expect_broken(scene.verdict(Evict{1, {}}, numbers_of(scene.evicted("2"))), "E9",
                "evicted[0].key");
  scene.pass(Evict{1, {}}, numbers_of(scene.evicted("1")));
  scene.target = 1;
  expect_broken(scene.verdict(Touch{{2}}, numbers_of(scene.show())), "E5", "target_t1_size");
  scene.pass(Touch{{1}}, numbers_of(scene.show()));
  // The lists come back: what is wrong with them is not the question's fault.
  scene.b1 = "";
  expect_broken(scene.verdict(Get{1}, scene.found("")), "E12", "b1[0]");
  scene.b1 = "1";
  scene.pass(Get{1}, scene.found(""));
}

TEST(EvictionInvariants, ResetForgetsEverything) {
  Invariants invariants({EvictionPolicy::kARC, 4, true});
  Scene scene;
  scene.t1 = "1?";
  EXPECT_FALSE(invariants.check(Insert{1, 1}, scene.show(), World(), 0));
  EXPECT_TRUE(invariants.check(Insert{1, 1}, scene.show(), World(), 1));
  invariants.reset();
  EXPECT_FALSE(invariants.check(Insert{1, 1}, scene.show(), World(), 0));
}

TEST(EvictionInvariants, StepIsTheOneGiven) {
  Scene scene;
  scene.fill();
  const auto found = scene.verdict(Insert{1, 0}, scene.show());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 9U);
}

}  // namespace
}  // namespace kvfence::eviction
