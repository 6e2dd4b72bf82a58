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
#include "properties/targets/rooms.h"

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
    const auto number_after = [&](char mark) {
      const std::size_t at = word.find(mark);
      if (at == std::string::npos) return std::uint32_t{0};
      return static_cast<std::uint32_t>(std::stoul(word.substr(at + 1)));
    };
    entries.push_back({static_cast<std::uint32_t>(std::stoul(word)), number_after('@'),
                       word.back() != '?', number_after('+')});
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

/// A manager of three slots whose observations are written by hand.
class Scene {
 public:
  explicit Scene(const OffloadingManagerConfig& config = config_of())
      : capacity_(config.cache.capacity), run_([config] { return rules().make(config); }) {}

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

  /// The verdict on such an answer; the scene does not change.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown) const {
    return run_.verdict(command, shown, World());
  }
  std::optional<Divergence> verdict(const Command& command) const {
    return verdict(command, show());
  }

  /// Continues after a right answer.
  void pass(const Command& command, const Observation& shown) {
    run_.pass(command, shown, World());
  }
  void pass(const Command& command) { pass(command, show()); }

  /// 1, 2 and 3 are ready in slots 0, 1 and 2.
  void fill() {
    t1 = "1@0? 2@1? 3@2?";
    pass(PrepareStore{{{1, 2, 3}}}, stored("1@0 2@1 3@2"));
    t1 = "1@0 2@1 3@2";
    pass(CompleteStore{{{1, 2, 3}}, true});
  }

 private:
  std::uint32_t capacity_;
  WatchedRun<OffloadTarget> run_;
};

/// The verdict names this invariant and this place.
void expect_broken(const std::optional<Divergence>& found, std::string_view id,
                   std::string_view field) {
  kvfence::expect_broken(rules().rows, found, id, field);
}

TEST(OffloadInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(rules().rows, "offload.");
}

// The rest of these three is in properties/eviction/rules_test.cpp.
TEST(OffloadInvariants, ListsAreSound) {
  Scene scene;
  scene.fill();
  scene.t2 = "1@0";
  expect_broken(scene.verdict(Touch{{1}}), "offload.1", "t1");
  scene.t2 = "";
  scene.target = 4;
  expect_broken(scene.verdict(Touch{{1}}), "offload.2", "target_t1_size");
  scene.target = 0;
  scene.t1 = "1@0 2@1 3@1";
  expect_broken(scene.verdict(Touch{{1}}), "offload.3", "t1[2].slot");
}

TEST(OffloadInvariants, BlocksAreHeldAsAsked) {
  Scene scene;
  scene.t1 = "1@0 2@1?";
  expect_broken(scene.verdict(PrepareStore{{{1, 2}}}, scene.stored("1@0 2@1")), "offload.3",
                "t1[0].ready");
  scene.t1 = "1@0? 2@1?";
  scene.pass(PrepareStore{{{1, 2}}}, scene.stored("1@0 2@1"));
  expect_broken(scene.verdict(CompleteStore{{{1}}, true}), "offload.3", "t1[0].ready");
  scene.t1 = "1@0 2@1?";
  scene.pass(CompleteStore{{{1}}, true});
  scene.t1 = "1@0+1 2@1?";
  expect_broken(scene.verdict(PrepareLoad{{{1, 1}}}, scene.slots({0, 0})), "offload.3",
                "t1[0].readers");
  Observation kept = scene.show();
  kept.size = 1;
  expect_broken(scene.verdict(CompleteStore{{{2}}, false}, kept), "offload.3", "t1[0].readers");
}

TEST(OffloadInvariants, ASlotHasOneBlock) {
  Scene scene;
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{{1}}}, scene.stored("1@0"));
  for (const char* wrong : {"2@0", "2@3", "2@1 3@1"}) {
    expect_broken(scene.verdict(PrepareStore{{{2, 3}}}, scene.stored(wrong)), "offload.4", "slots");
  }
  Observation shown = scene.show();
  shown.num_free_slots = 3;
  expect_broken(scene.verdict(Touch{{}}, shown), "offload.4", "num_free_slots");
}

TEST(OffloadInvariants, NothingInUseIsEvicted) {
  Scene scene;
  scene.fill();
  scene.t1 = "1@0+1 2@1 3@2";
  scene.pass(PrepareLoad{{{1}}}, scene.slots({0}));
  for (const char* wrong : {"1@0", "2@1", "3@0", "9@2", "3@2 3@2"}) {
    SCOPED_TRACE(wrong);
    expect_broken(scene.verdict(PrepareStore{{{2, 4}}}, scene.stored("4@2", wrong)), "offload.5",
                  "evicted");
  }
  scene.t1 = "1@0+1 2@1 4@2?";
  scene.pass(PrepareStore{{{2, 4}}}, scene.stored("4@2", "3@2"));
}

TEST(OffloadInvariants, OnlyWhatIsReadyIsRead) {
  Scene scene;
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{{1}}}, scene.stored("1@0"));
  expect_broken(scene.verdict(PrepareLoad{{{1}}}, scene.slots({0})), "offload.6", "error");
  expect_broken(scene.verdict(PrepareLoad{{{9}}}, scene.slots({0})), "offload.6", "error");
  expect_broken(scene.verdict(CompleteLoad{{{1}}}), "offload.6", "error");
  scene.t1 = "1@0";
  scene.pass(CompleteStore{{{1}}, true});
  scene.t1 = "1@0+1";
  expect_broken(scene.verdict(PrepareLoad{{{1}}}, scene.slots({1})), "offload.6", "slots[0]");
  scene.pass(PrepareLoad{{{1}}}, scene.slots({0}));
}

TEST(OffloadInvariants, OnlyWhatIsMissingIsStored) {
  Scene scene;
  scene.t1 = "1@0?";
  scene.pass(PrepareStore{{{1}}}, scene.stored("1@0"));
  for (const char* wrong : {"1@1", "5@1", "2@1 2@2"}) {
    expect_broken(scene.verdict(PrepareStore{{{1, 2}}}, scene.stored(wrong)), "offload.7",
                  "keys_to_store");
  }
  Observation no_slot = scene.stored("2@1");
  no_slot.slots.emplace().clear();
  expect_broken(scene.verdict(PrepareStore{{{1, 2}}}, no_slot), "offload.7", "slots");
}

TEST(OffloadInvariants, LookupAgreesWithBlocks) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 4@0?";
  scene.pass(PrepareStore{{{4}}}, scene.stored("4@0", "1@0"));
  expect_broken(scene.verdict(Lookup{{{2, 4}}}, scene.hits(2)), "offload.8", "num_hits");
  expect_broken(scene.verdict(Lookup{{{9, 2}}}, scene.hits(1)), "offload.8", "num_hits");
  scene.pass(Lookup{{{2, 4, 3}}}, scene.hits(1));
  for (const auto& [key, right] : {std::pair{1U, LookupResult::kMiss},
                                   {2U, LookupResult::kHit},
                                   {4U, LookupResult::kPending}}) {
    for (LookupResult wrong : {LookupResult::kMiss, LookupResult::kHit, LookupResult::kPending}) {
      if (wrong == right) continue;
      expect_broken(scene.verdict(LookupKey{key}, scene.result(wrong)), "offload.8", "result");
    }
    scene.pass(LookupKey{key}, scene.result(right));
  }
}

TEST(OffloadInvariants, EventsMirrorTheBlocks) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 4@0?";
  scene.pass(PrepareStore{{{4}}}, scene.stored("4@0", "1@0"));
  const auto verdict = [&](std::vector<Event> events) {
    return scene.verdict(TakeEvents{}, scene.events(std::move(events)));
  };
  expect_broken(verdict({}), "offload.9", "events[0]");
  expect_broken(verdict({{{1, 2, 3}, false}}), "offload.9", "events[0]");
  expect_broken(verdict({{{1}, true}, {{1, 2, 3}, false}}), "offload.9", "events[0]");
  expect_broken(verdict({{{1, 2, 3, 4}, false}, {{1}, true}}), "offload.9", "events[0]");
  expect_broken(verdict({{{1, 2, 3}, false}, {{2}, false}, {{1}, true}}), "offload.9", "events[1]");
  scene.pass(TakeEvents{}, scene.events({{{1, 2, 3}, false}, {{1}, true}}));
  scene.t1 = "";
  scene.pass(ResetCache{});
  scene.pass(TakeEvents{}, scene.events({}));  // a reset sends none

  OffloadingManagerConfig config = config_of();
  config.enable_events = false;
  Scene off(config);
  off.fill();
  expect_broken(off.verdict(TakeEvents{}, off.events({{{1, 2, 3}, false}})), "offload.9",
                "events[0]");
  off.pass(TakeEvents{}, off.events({}));
}

TEST(OffloadInvariants, RefusedChangesNothing) {
  Scene scene;
  scene.fill();
  scene.t1 = "2@1 3@2 1@0";
  expect_broken(scene.verdict(PrepareStore{{{4, 5, 6, 7}}}, scene.not_stored()), "offload.10",
                "t1[0].key");
  scene.t1 = "1@0+1 2@1 3@2";
  expect_broken(scene.verdict(PrepareLoad{{{1, 9}}}, scene.show(ErrorCode::kUnknownKey)),
                "offload.10", "t1[0].readers");
  scene.t1 = "1@0 2@1 3@2";
  scene.pass(PrepareStore{{{4, 5, 6, 7}}}, scene.not_stored());
}

}  // namespace
}  // namespace kvfence::offload
