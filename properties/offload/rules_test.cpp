#include "properties/offload/rules.h"

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

namespace kvfence::offload {
namespace {

using eviction::Entry;
using eviction::Victim;
using Keys = std::vector<std::uint32_t>;

/// "1@0 2@1? 3@2+1": block 1 in slot 0 is idle, 2 is not ready, 3 has a reader.
std::vector<Entry> blocks(const std::string& text) {
  std::vector<Entry> entries;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto number_behind = [&](char mark) {
      const std::size_t at = word.find(mark);
      if (at == std::string::npos) return std::uint32_t{0};
      return static_cast<std::uint32_t>(std::stoul(word.substr(at + 1)));
    };
    entries.push_back({static_cast<std::uint32_t>(std::stoul(word)), number_behind('@'),
                       word.back() != '?', number_behind('+')});
  }
  return entries;
}

Keys keys(const std::string& text) {
  Keys numbers;
  for (const Entry& entry : blocks(text)) numbers.push_back(entry.key);
  return numbers;
}

OffloadingManagerConfig config_of(EvictionPolicy policy = EvictionPolicy::kLRU,
                                  Profile profile = Profile::kV019) {
  OffloadingManagerConfig config;
  config.cache.policy = policy;
  config.cache.capacity = 3;
  config.enable_events = true;
  config.rules = rules_of(profile);
  return config;
}

/// A manager of three slots, as a hand writes down what it shows.
class Scene {
 public:
  explicit Scene(const OffloadingManagerConfig& config = config_of())
      : capacity_(config.cache.capacity), invariants_(config) {}

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
    shown.num_free_slots = capacity_ - shown.size;
    shown.target_t1_size = target;
    return shown;
  }

  /// keys_to_store with their slots, and evicted, as blocks.
  Observation stored(const std::string& to_store, const std::string& evicted = "") const {
    Observation shown = show();
    shown.stored.emplace() = true;
    shown.keys_to_store.emplace() = keys(to_store);
    shown.slots.emplace();
    for (const Entry& entry : blocks(to_store)) shown.slots.emplace().push_back(entry.slot);
    shown.evicted.emplace();
    for (const Entry& entry : blocks(evicted)) {
      shown.evicted.emplace().push_back({entry.key, entry.slot});
    }
    return shown;
  }
  Observation not_stored() const {
    Observation shown = show();
    shown.stored.emplace() = false;
    return shown;
  }
  Observation hits(std::uint32_t num_hits) const {
    Observation shown = show();
    shown.num_hits.emplace() = num_hits;
    return shown;
  }
  Observation result(LookupResult result) const {
    Observation shown = show();
    shown.result.emplace() = result;
    return shown;
  }
  Observation slots(std::vector<SlotId> slots) const {
    Observation shown = show();
    shown.slots.emplace() = std::move(slots);
    return shown;
  }
  Observation events(std::vector<Event> events) const {
    Observation shown = show();
    shown.events.emplace() = std::move(events);
    return shown;
  }

  /// The verdict if the manager answered so; the scene stays where it is.
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

  /// 1, 2 and 3 are ready in slots 0, 1 and 2.
  void fill() {
    t1 = "1@0? 2@1? 3@2?";
    pass(PrepareStore{{1, 2, 3}}, stored("1@0 2@1 3@2"));
    t1 = "1@0 2@1 3@2";
    pass(CompleteStore{{1, 2, 3}, true});
  }

 private:
  std::uint32_t capacity_;
  Invariants invariants_;
  std::size_t step_ = 0;
};

/// The verdict names this invariant and this place.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field) {
  kvfence::expect_broken(kInvariants, found, id, field);
}

TEST(OffloadInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'O');
}

TEST(OffloadInvariants, O1AnswersFitTheCommand) {
  Scene scene;
  scene.fill();
  expect_broken(scene.verdict(LookupKey{1}, scene.result(LookupResult::kHit)), "O1", "error");
  expect_broken(scene.verdict(Lookup{{1}}, scene.show(ErrorCode::kNotInProfile)), "O1", "error");
  expect_broken(scene.verdict(ResetCache{}), "O1", "error");
  expect_broken(scene.verdict(Lookup{{1}}), "O1", "num_hits");
  expect_broken(scene.verdict(PrepareLoad{{1}}), "O1", "slots");
  expect_broken(scene.verdict(Touch{{1}}, scene.stored("")), "O1", "stored");
  expect_broken(scene.verdict(TakeEvents{}), "O1", "events");
  Observation plan_of_no_store = scene.stored("");
  plan_of_no_store.stored.emplace() = false;
  expect_broken(scene.verdict(PrepareStore{{4, 5, 6, 7}}, plan_of_no_store), "O1", "keys_to_store");
  scene.pass(LookupKey{1}, scene.show(ErrorCode::kNotInProfile));
}

// Each line is a command that the contract refuses with this code, and no other.
TEST(OffloadInvariants, O1KnowsEveryRefusal) {
  struct Refusal {
    Command command;
    ErrorCode error;
  };
  const std::vector<Refusal> refusals = {
      {PrepareLoad{{1, 3, 9}}, ErrorCode::kUnknownKey},
      {PrepareLoad{{1, 3}}, ErrorCode::kNotReady},
      {CompleteLoad{{1, 9}}, ErrorCode::kUnknownKey},
      {CompleteLoad{{3}}, ErrorCode::kNotReading},
      {CompleteLoad{{1, 1}}, ErrorCode::kNotReading},
      {PrepareStore{{9, 1, 9}}, ErrorCode::kListedTwice},
      {Lookup{{1}}, ErrorCode::kNotInProfile},
  };
  Scene scene(config_of(EvictionPolicy::kLRU, Profile::kV023));
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{1}}, scene.stored("1@0"));
  scene.t1 = "1@0";
  scene.pass(CompleteStore{{1}, true});
  scene.t1 = "1@0 3@1?";
  scene.pass(PrepareStore{{3}}, scene.stored("3@1"));
  scene.t1 = "1@0+1 3@1?";
  scene.pass(PrepareLoad{{1}}, scene.slots({0}));
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(print(to_line(kvfence::Command(refusal.command))));
    expect_broken(scene.verdict(refusal.command, scene.show(ErrorCode::kQueueEmpty)), "O1",
                  "error");
    scene.pass(refusal.command, scene.show(refusal.error));
  }
}

TEST(OffloadInvariants, O2NothingChangesUnasked) {
  Scene scene;
  scene.fill();
  const Scene before = scene;
  scene.t1 = "2@1 3@2 1@0";
  expect_broken(scene.verdict(Lookup{{1}}, scene.hits(1)), "O2", "t1[0].key");
  expect_broken(scene.verdict(PrepareStore{{4, 5, 6, 7}}, scene.not_stored()), "O2", "t1[0].key");
  scene.t1 = "1@0+1 2@1 3@2";
  expect_broken(scene.verdict(PrepareLoad{{1, 9}}, scene.show(ErrorCode::kUnknownKey)), "O2",
                "t1[0].readers");
  scene = before;
  Observation shown = scene.events({{{1, 2, 3}, false}});
  shown.num_free_slots = 1;
  expect_broken(scene.verdict(TakeEvents{}, shown), "O2", "num_free_slots");
  scene.pass(PrepareStore{{4, 5, 6, 7}}, scene.not_stored());
}

TEST(OffloadInvariants, O3ASlotHasOneBlock) {
  Scene scene;
  scene.fill();
  for (const char* wrong : {"1@0 2@0 3@2", "1@0 2@3 3@2"}) {
    scene.t1 = wrong;
    expect_broken(scene.verdict(Touch{{}}), "O3", "t1[1].slot");
  }
  scene.t1 = "1@0 2@1 3@2";
  Observation shown = scene.show();
  shown.num_free_slots = 1;
  expect_broken(scene.verdict(Touch{{}}, shown), "O3", "num_free_slots");
}

TEST(OffloadInvariants, O4SlotsAreUsedInOrder) {
  Scene scene;
  scene.t1 = "1@0? 2@1?";
  expect_broken(scene.verdict(PrepareStore{{1, 2}}, scene.stored("1@1 2@0")), "O4", "slots[0]");
  scene.pass(PrepareStore{{1, 2}}, scene.stored("1@0 2@1"));
  scene.t1 = "";
  scene.pass(CompleteStore{{2, 1}, false});
  // Slot 2 was never used; of the freed ones 0 came last.
  scene.t1 = "3@2? 4@0? 5@1?";
  expect_broken(scene.verdict(PrepareStore{{3, 4, 5}}, scene.stored("3@0 4@1 5@2")), "O4",
                "slots[0]");
  expect_broken(scene.verdict(PrepareStore{{3, 4, 5}}, scene.stored("3@2 4@1 5@0")), "O4",
                "slots[1]");
  scene.pass(PrepareStore{{3, 4, 5}}, scene.stored("3@2 4@0 5@1"));
  scene.t1 = "3@2 4@0 5@1";
  scene.pass(CompleteStore{{3, 4, 5}, true});
  scene.t1 = "3@2+1 4@0 5@1+1";
  expect_broken(scene.verdict(PrepareLoad{{5, 3}}, scene.slots({2, 1})), "O4", "slots[0]");
  scene.pass(PrepareLoad{{5, 3}}, scene.slots({1, 2}));
}

TEST(OffloadInvariants, O5OnlyWhatIsMissingIsStored) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 4@0?";
  expect_broken(scene.verdict(PrepareStore{{3, 4}}, scene.stored("3@0 4@1", "1@0 2@1")), "O5",
                "keys_to_store[0]");
  expect_broken(scene.verdict(PrepareStore{{3, 4}}, scene.stored("")), "O5", "keys_to_store[0]");
  expect_broken(scene.verdict(PrepareStore{{4}}, scene.stored("5@0", "1@0")), "O5",
                "keys_to_store[0]");
  scene.pass(PrepareStore{{3, 4}}, scene.stored("4@0", "1@0"));
}

TEST(OffloadInvariants, O6TheFilterWantsLookups) {
  OffloadingManagerConfig config = config_of();
  config.store_threshold = 2;
  config.max_tracker_size = 2;
  Scene scene(config);
  scene.pass(Lookup{{1, 2, 1}}, scene.hits(0));
  scene.t1 = "1@0? 2@1?";
  expect_broken(scene.verdict(PrepareStore{{1, 2}}, scene.stored("1@0 2@1")), "O6",
                "keys_to_store[1]");
  scene.t1 = "1@0?";
  expect_broken(scene.verdict(PrepareStore{{1, 2}}, scene.stored("")), "O6", "keys_to_store[0]");
  scene.pass(PrepareStore{{1, 2}}, scene.stored("1@0"));
  // 3 takes the place of 2, which starts anew when it comes back.
  scene.pass(Lookup{{3, 2}}, scene.hits(0));
  scene.t1 = "1@0? 2@1?";
  expect_broken(scene.verdict(PrepareStore{{2, 3}}, scene.stored("2@1")), "O6", "keys_to_store[0]");
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{2, 3}}, scene.stored(""));
}

TEST(OffloadInvariants, O7NothingInUseIsEvicted) {
  Scene scene;
  scene.fill();
  scene.t1 = "1@0+1 2@1 3@2";
  scene.pass(PrepareLoad{{1}}, scene.slots({0}));
  const Command store = PrepareStore{{2, 4}};
  for (const char* wrong : {"1@0", "2@1", "3@0", "9@2", "", "3@2 3@2"}) {
    SCOPED_TRACE(wrong);
    const auto found = scene.verdict(store, scene.stored("4@2", wrong));
    expect_broken(found, "O7", found ? found->field : "");
  }
  scene.t1 = "1@0+1 2@1 4@2?";
  scene.pass(store, scene.stored("4@2", "3@2"));
}

TEST(OffloadInvariants, O8TheOldestGoFirst) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 1@0";
  scene.pass(Touch{{1}});
  expect_broken(scene.verdict(PrepareStore{{4}}, scene.stored("4@0", "1@0")), "O8",
                "evicted[0].key");
  scene.t1 = "1@0 4@2? 5@1?";
  expect_broken(scene.verdict(PrepareStore{{4, 5}}, scene.stored("4@1 5@2", "3@2 2@1")), "O8",
                "evicted[0].key");
  scene.pass(PrepareStore{{4, 5}}, scene.stored("4@2 5@1", "2@1 3@2"));
}

TEST(OffloadInvariants, O9AStoreFailsOnlyIfItMust) {
  Scene scene;
  scene.fill();
  expect_broken(scene.verdict(PrepareStore{{4}}, scene.not_stored()), "O9", "stored");
  expect_broken(scene.verdict(PrepareStore{{1, 2, 3, 4}}, scene.stored("4@0", "1@0")), "O9",
                "stored");
  scene.pass(PrepareStore{{1, 2, 3, 4}}, scene.not_stored());
}

TEST(OffloadInvariants, O10ALookupFindsWhatIsReady) {
  Scene scene;
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{1}}, scene.stored("1@0"));
  scene.t1 = "1@0";
  scene.pass(CompleteStore{{1}, true});
  scene.t1 = "1@0 2@1?";
  scene.pass(PrepareStore{{2}}, scene.stored("2@1"));
  expect_broken(scene.verdict(Lookup{{1, 2}}, scene.hits(2)), "O10", "num_hits");
  expect_broken(scene.verdict(Lookup{{9, 1}}, scene.hits(1)), "O10", "num_hits");
  scene.pass(Lookup{{1, 2, 1}}, scene.hits(1));
}

TEST(OffloadInvariants, O10OfOneKey) {
  Scene scene(config_of(EvictionPolicy::kLRU, Profile::kV023));
  scene.pass(LookupKey{1}, scene.result(LookupResult::kMiss));
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{1}}, scene.stored("1@0"));
  expect_broken(scene.verdict(LookupKey{1}, scene.result(LookupResult::kMiss)), "O10", "result");
  expect_broken(scene.verdict(LookupKey{1}, scene.result(LookupResult::kHit)), "O10", "result");
  scene.pass(LookupKey{1}, scene.result(LookupResult::kPending));
  scene.t1 = "1@0";
  scene.pass(CompleteStore{{1}, true});
  expect_broken(scene.verdict(LookupKey{1}, scene.result(LookupResult::kPending)), "O10", "result");
  scene.pass(LookupKey{1}, scene.result(LookupResult::kHit));
}

TEST(OffloadInvariants, O11ABlockIsWrittenThenRead) {
  Scene scene;
  scene.t1 = "1@0 2@1?";
  expect_broken(scene.verdict(PrepareStore{{1, 2}}, scene.stored("1@0 2@1")), "O11", "t1[0].ready");
  scene.t1 = "1@0? 2@1?";
  scene.pass(PrepareStore{{1, 2}}, scene.stored("1@0 2@1"));
  expect_broken(scene.verdict(CompleteStore{{1}, true}), "O11", "t1[0].ready");
  scene.t1 = "1@0 2@1?";
  scene.pass(CompleteStore{{1}, true});
  scene.t1 = "1@0+1 2@1?";
  expect_broken(scene.verdict(PrepareLoad{{1, 1}}, scene.slots({0, 0})), "O11", "t1[0].readers");
  scene.t1 = "1@0+2 2@1?";
  scene.pass(PrepareLoad{{1, 1}}, scene.slots({0, 0}));
  expect_broken(scene.verdict(CompleteLoad{{1}}), "O11", "t1[0].readers");
  scene.t1 = "1@0 2@1?";
  scene.pass(CompleteLoad{{1, 1}});
  Observation shown = scene.show();
  shown.size = 1;
  expect_broken(scene.verdict(Touch{{}}, shown), "O11", "size");
}

TEST(OffloadInvariants, O12ListsChangeAsAsked) {
  Scene scene(config_of(EvictionPolicy::kARC));
  scene.fill();
  scene.t1 = "1@0 2@1";
  scene.t2 = "3@2";
  scene.pass(Touch{{3}});
  scene.t1 = "";
  scene.t2 = "3@2 1@0 2@1";
  expect_broken(scene.verdict(Touch{{1, 2}}), "O12", "t2[1].key");
  scene.t1 = "2@1 4@0?";
  scene.t2 = "3@2";
  expect_broken(scene.verdict(PrepareStore{{4}}, scene.stored("4@0", "1@0")), "O12", "b1[0]");
  scene.b1 = "1";
  scene.pass(PrepareStore{{4}}, scene.stored("4@0", "1@0"));
  scene.t1 = "2@1";
  expect_broken(scene.verdict(CompleteStore{{4}, true}), "O12", "t1[1]");
  scene.t1 = "2@1 4@0?";
  expect_broken(scene.verdict(Touch{{1}}), "O12", "target_t1_size");
  scene.target = 1;
  scene.pass(Touch{{1}});
}

TEST(OffloadInvariants, O13ListsAreSound) {
  Scene scene(config_of(EvictionPolicy::kARC));
  scene.fill();
  scene.t2 = "1@0";
  expect_broken(scene.verdict(Touch{{1}}), "O13", "t1[0].key");
  scene.t1 = "2@1 3@2";
  scene.target = -1;
  expect_broken(scene.verdict(Touch{{1}}), "O13", "target_t1_size");
  scene.target = 4;
  expect_broken(scene.verdict(Touch{{1}}), "O13", "target_t1_size");
  scene.target = 0;
  scene.pass(Touch{{1}});
  scene.t1 = "3@2 4@1?";
  scene.b1 = "9 8 7 2";
  expect_broken(scene.verdict(PrepareStore{{4}}, scene.stored("4@1", "2@1")), "O13", "b1[0]");
}

TEST(OffloadInvariants, O14EventsMirrorTheBlocks) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 4@0?";
  scene.pass(PrepareStore{{4}}, scene.stored("4@0", "1@0"));
  const auto verdict = [&](std::vector<Event> events) {
    return scene.verdict(TakeEvents{}, scene.events(std::move(events)));
  };
  expect_broken(verdict({}), "O14", "events[0]");
  expect_broken(verdict({{{1, 2, 3}, false}}), "O14", "events[0]");
  expect_broken(verdict({{{1, 2}, false}, {{1}, true}}), "O14", "events[1]");
  expect_broken(verdict({{{1}, true}, {{1, 2, 3}, false}}), "O14", "events[0]");
  expect_broken(verdict({{{1, 2, 3, 4}, false}, {{1}, true}}), "O14", "events[0]");
  expect_broken(verdict({{{1, 2, 3}, false}, {{2}, false}, {{1}, true}}), "O14", "events[1]");
  scene.pass(TakeEvents{}, scene.events({{{1, 2, 3}, false}, {{1}, true}}));
  scene.t1 = "2@1 3@2";
  scene.pass(CompleteStore{{4}, false});
  scene.pass(TakeEvents{}, scene.events({}));
}

TEST(OffloadInvariants, O14AResetTellsNothing) {
  Scene scene(config_of(EvictionPolicy::kLRU, Profile::kV023));
  scene.fill();
  scene.t1 = "";
  scene.pass(ResetCache{});
  expect_broken(scene.verdict(TakeEvents{}, scene.events({})), "O14", "events[0]");
  scene.pass(TakeEvents{}, scene.events({{{1, 2, 3}, false}}));
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{1}}, scene.stored("1@0"));
  scene.t1 = "1@0";
  scene.pass(CompleteStore{{1}, true});
  scene.pass(TakeEvents{}, scene.events({{{1}, false}}));
}

TEST(OffloadInvariants, O14NoEventWhereEventsAreOff) {
  OffloadingManagerConfig config = config_of();
  config.enable_events = false;
  Scene scene(config);
  scene.fill();
  expect_broken(scene.verdict(TakeEvents{}, scene.events({{{1, 2, 3}, false}})), "O14",
                "events[0]");
  scene.pass(TakeEvents{}, scene.events({}));
}

/// The observation without its lists.
Observation numbers_of(Observation shown) {
  shown.t1.reset();
  shown.t2.reset();
  shown.b1.reset();
  shown.b2.reset();
  return shown;
}

TEST(OffloadInvariants, BookkeepingGoesOnWithoutTheLists) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 4@0?";
  scene.pass(PrepareStore{{4}}, numbers_of(scene.stored("4@0", "1@0")));
  expect_broken(scene.verdict(Lookup{{2, 1}}, numbers_of(scene.hits(2))), "O10", "num_hits");
  scene.pass(Touch{{2}}, numbers_of(scene.show()));
  // The lists come back: what is wrong with them is not the lookup's fault.
  expect_broken(scene.verdict(Lookup{{1}}, scene.hits(0)), "O12", "t1[0].key");
  scene.t1 = "3@2 4@0? 2@1";
  scene.pass(Lookup{{1}}, scene.hits(0));
}

TEST(OffloadInvariants, ResetForgetsEverything) {
  Invariants invariants(config_of());
  Scene scene;
  scene.t1 = "1@0?";
  const Observation stored = scene.stored("1@0");
  EXPECT_FALSE(invariants.check(PrepareStore{{1}}, stored, World(), 0));
  EXPECT_TRUE(invariants.check(PrepareStore{{1}}, stored, World(), 1));
  invariants.reset();
  EXPECT_FALSE(invariants.check(PrepareStore{{1}}, stored, World(), 0));
}

}  // namespace
}  // namespace kvfence::offload
