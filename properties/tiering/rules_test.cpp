// Each rule is seen to break: an honest manager, as the ledger adds it up, answers one command
// otherwise in one respect, and that rule is named. That the honest one is upstream's manager is
// shown where implementations are plugged together.
#include "properties/tiering/rules.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/rules_test_support.h"

namespace kvfence::tiering {
namespace {

using Keys = std::vector<std::uint32_t>;
using eviction::Entry;

OffloadingManagerConfig config_of(std::uint32_t capacity) {
  OffloadingManagerConfig config;
  config.cache.capacity = capacity;
  config.enable_events = true;
  config.rules = rules_of(Profile::kV023);
  return config;
}

/// A manager above two tiers that does as it should, until it is told otherwise.
class Scene {
 public:
  explicit Scene(std::uint32_t capacity = 3, std::uint32_t num_tiers = 2, Keys file_tiers = {})
      : ledger_(config_of(capacity), num_tiers, file_tiers),
        invariants_(config_of(capacity), num_tiers, file_tiers) {}

  /// What an honest manager answers, and shows behind it.
  Scene& run(const Command& command) {
    const Observation shown = honest(ledger_, command);
    const auto found = invariants_.check(command, shown, World(), 0);
    EXPECT_FALSE(found.has_value()) << found->oracle << " " << found->field;
    return *this;
  }

  /// What it answers otherwise, and may.
  Scene& run_otherwise(const Command& command, const std::function<void(Observation&)>& other) {
    Ledger before = ledger_;
    Observation shown = honest(before, command);
    other(shown);
    const auto found = invariants_.check(command, shown, World(), 0);
    EXPECT_FALSE(found.has_value()) << found->oracle << " " << found->field;
    ledger_.apply(command, &shown);
    return *this;
  }

  /// The rule that is broken if it answers so; empty if none is. The scene stays where it is.
  std::string broken_by(const Command& command,
                        const std::function<void(Observation&)>& lie) const {
    Ledger ledger = ledger_;
    Invariants invariants = invariants_;
    Observation shown = honest(ledger, command);
    lie(shown);
    const auto found = invariants.check(command, shown, World(), 7);
    if (!found) return "";
    EXPECT_EQ(found->step, 7u);
    return std::string(found->oracle);
  }

 private:
  static Observation honest(Ledger& ledger, const Command& command) {
    const Expected expected = ledger.apply(command);
    Observation shown;
    shown.error = expected.error;
    if (expected.result) shown.result.emplace() = *expected.result;
    if (expected.slots) shown.slots.emplace() = *expected.slots;
    if (expected.stored) shown.stored.emplace() = *expected.stored;
    if (expected.plan) {
      shown.keys_to_store.emplace() = expected.plan->keys_to_store;
      shown.evicted.emplace();
      for (const Entry& block : expected.plan->victims) {
        shown.evicted.emplace().push_back({block.key, block.slot});
      }
    }
    if (expected.request_level) shown.request_level.emplace() = *expected.request_level;
    if (!expected.calls.empty()) shown.tier_calls.emplace() = expected.calls;
    if (std::holds_alternative<TakeEvents>(command)) {
      offload::Event event;
      event.keys.assign(ledger.primary().told().begin(), ledger.primary().told().end());
      shown.events.emplace().push_back(event);
    }
    const eviction::Ledger& cache = ledger.primary().cache();
    shown.size = cache.size();
    shown.num_free_slots = ledger.primary().num_free_slots();
    shown.num_jobs = static_cast<std::uint32_t>(ledger.jobs().size());
    shown.num_pending = ledger.num_pending();
    shown.t1.emplace() = cache.t1();
    shown.t2.emplace() = cache.t2();
    shown.b1.emplace() = cache.b1();
    shown.b2.emplace() = cache.b2();
    shown.jobs.emplace() = ledger.jobs();
    shown.pending.emplace() = ledger.pending();
    shown.tiers.emplace() = ledger.tiers();
    if (ledger.has_files()) shown.damaged.emplace().clear();
    return shown;
  }

  Ledger ledger_;
  Invariants invariants_;
};

/// The block of a key in t1.
Entry& block(Observation& shown, std::uint32_t key) {
  std::vector<Entry> blocks = *shown.t1;
  std::size_t at = 0;
  while (at < blocks.size() && blocks[at].key != key) ++at;
  EXPECT_LT(at, blocks.size());
  return shown.t1.emplace()[at];
}

void erase(Observation& shown, std::uint32_t key) {
  std::erase_if(shown.t1.emplace(), [key](const Entry& entry) { return entry.key == key; });
  --shown.size;
  ++shown.num_free_slots;
}

std::vector<TierCallRecord>& calls(Observation& shown) { return shown.tier_calls.emplace(); }

/// Block 1 is stored and in both tiers, no job is under way, the step was polled.
Scene stored() {
  Scene scene;
  scene.run(PrepareStore{{1}, "A"}).run(CompleteStore{{1}, "A", true});
  scene.run(TierFinish{0, 0, true}).run(TierFinish{1, 1, true});
  scene.run(OnScheduleEnd{}).run(Lookup{1, "A"});
  return scene;
}

/// Besides, 5 is being promoted from tier 0 for B by job 2.
Scene promoting() {
  Scene scene = stored();
  scene.run(TierAdd{0, {5, 6}}).run(Lookup{5, "B"}).run(OnScheduleEnd{});
  return scene;
}

TEST(TieringInvariants, AreNumberedInOrderAndNamedOnce) {
  expect_numbered_and_named_once(kInvariants, 'T');
}

TEST(TieringInvariants, AnswersFitTheCommand) {
  const Scene scene = promoting();
  const std::string rule = "answers_fit_the_command";
  const auto accept = [](Observation& shown) { shown.error = ErrorCode::kNone; };
  EXPECT_EQ(scene.broken_by(CompleteStore{{5}, "B", false}, accept), rule)
      << "the tier is writing it";
  EXPECT_EQ(scene.broken_by(CompleteStore{{9}, "B", true}, accept), rule);
  EXPECT_EQ(scene.broken_by(CompleteLoad{{1}}, accept), rule);
  EXPECT_EQ(scene.broken_by(TierDrop{2, {1}}, accept), rule);
  EXPECT_EQ(scene.broken_by(OnNewRequest{"A", {2}}, accept), rule);
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { shown.result.reset(); }),
            rule);
  EXPECT_EQ(scene.broken_by(TakeEvents{}, [](Observation& shown) { shown.events.reset(); }), rule);
  EXPECT_EQ(scene.broken_by(OnNewRequest{"A", {}},
                            [](Observation& shown) { shown.request_level.reset(); }),
            rule);
  EXPECT_EQ(
      scene.broken_by(PrepareStore{{2}, "A"}, [](Observation& shown) { shown.evicted.reset(); }),
      rule);
  EXPECT_EQ(
      scene.broken_by(TierAdd{1, {1}}, [](Observation& shown) { shown.slots.emplace() = {0}; }),
      rule);
}

TEST(TieringInvariants, NothingChangesUnasked) {
  const Scene scene = stored();
  const auto forget = [](Observation& shown) { erase(shown, 1); };
  for (const Command& command :
       {Command(ResetCache{}), Command(TakeEvents{}), Command(TierFinish{0, 9, true}),
        Command(TierAdd{0, {3}}), Command(CompleteLoad{{9}})}) {
    EXPECT_EQ(scene.broken_by(command, forget), "nothing_changes_unasked");
  }
  const auto miscount = [](Observation& shown) { ++shown.num_jobs; };
  EXPECT_EQ(scene.broken_by(ResetCache{}, miscount), "nothing_changes_unasked");
}

TEST(TieringInvariants, TiersArePolledOnceAStep) {
  Scene scene = stored();
  const std::string rule = "tiers_are_polled_once_a_step";
  const auto poll = [](Observation& shown) {
    calls(shown).insert(calls(shown).begin(),
                        TierCallRecord{"get_finished_jobs", 0, {}, {}, {}, {}, {}});
  };
  const auto drop_first = [](Observation& shown) { calls(shown).erase(calls(shown).begin()); };
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, poll), rule);
  scene.run(OnScheduleEnd{});
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, drop_first), rule);
  EXPECT_EQ(scene.broken_by(PrepareLoad{{9}}, drop_first), rule) << "before a refusal, too";
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, drop_first), rule);
  EXPECT_EQ(
      scene.broken_by(Lookup{1, "A"},
                      [](Observation& shown) { std::swap(calls(shown)[0], calls(shown)[1]); }),
      rule);
  EXPECT_EQ(
      scene.broken_by(Lookup{9, "A"},
                      [](Observation& shown) { std::swap(calls(shown)[1], calls(shown)[2]); }),
      rule);
}

TEST(TieringInvariants, TiersAreSearchedInOrder) {
  Scene scene = stored();
  const std::string rule = "tiers_are_searched_in_order";
  const auto drop_last = [](Observation& shown) { calls(shown).pop_back(); };
  EXPECT_EQ(scene.broken_by(Lookup{9, "A"}, drop_last), rule);
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"},
                            [](Observation& shown) {
                              calls(shown).push_back({"lookup", 0, "A", {}, {1}, {}, "hit"});
                            }),
            rule)
      << "the primary tier has it";
  scene.run(TierAskAgain{0, 4, 1}).run(TierAdd{1, {4}});
  EXPECT_EQ(scene.broken_by(Lookup{4, "A"}, drop_last), rule);
}

TEST(TieringInvariants, WhatIsHeldIsFound) {
  Scene scene = stored();
  const std::string rule = "what_is_held_is_found";
  const auto miss = [](Observation& shown) { shown.result.emplace() = LookupResult::kMiss; };
  const auto hit = [](Observation& shown) { shown.result.emplace() = LookupResult::kHit; };
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, miss), rule);
  EXPECT_EQ(scene.broken_by(Lookup{9, "A"}, hit), rule);
  scene.run(TierAdd{1, {5}});
  EXPECT_EQ(scene.broken_by(Lookup{5, "A"}, miss), rule) << "it can be promoted";
  scene.run(PrepareStore{{6}, "A"});
  EXPECT_EQ(scene.broken_by(Lookup{6, "A"}, miss), rule);
}

TEST(TieringInvariants, AnAskAgainHasACause) {
  Scene scene = promoting();
  const std::string rule = "an_ask_again_has_a_cause";
  const auto again = [](Observation& shown) { shown.result.emplace() = LookupResult::kPending; };
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, again), rule);
  EXPECT_EQ(scene.broken_by(Lookup{9, "A"}, again), rule);
  EXPECT_EQ(scene.broken_by(Lookup{5, "A"}, again), "") << "its job is under way";
  scene.run(TierFinish{0, 2, true});
  EXPECT_EQ(scene.broken_by(Lookup{5, "A"}, again), rule) << "the poll has ended its job";
  scene.run(Lookup{1, "A"});
  scene.run(PrepareStore{{7}, "A"}).run(PrepareLoad{{1}}).run(PrepareLoad{{5}});
  EXPECT_EQ(scene.broken_by(Lookup{6, "A"}, again), rule)
      << "nothing can go for what tier 0 has: asking again is in vain";
}

TEST(TieringInvariants, APromotedBlockIsPinned) {
  Scene scene = promoting();
  const std::string rule = "a_promoted_block_is_pinned";
  EXPECT_EQ(
      scene.broken_by(Lookup{5, "B"},
                      [](Observation& shown) { shown.result.emplace() = LookupResult::kHit; }),
      rule);
  EXPECT_EQ(
      scene.broken_by(OnScheduleEnd{}, [](Observation& shown) { block(shown, 5).ready = true; }),
      rule);
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, [](Observation& shown) { erase(shown, 5); }), rule);
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, [](Observation& shown) { block(shown, 5).slot = 2; }),
            rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{8, 9}, "A"},
                            [](Observation& shown) {
                              shown.evicted.emplace() = {{5, 1}};
                            }),
            rule);
  scene.run(TierFinish{0, 2, true});
  EXPECT_EQ(
      scene.broken_by(Lookup{5, "B"}, [](Observation& shown) { block(shown, 5).readers = 1; }),
      "nothing_is_held_when_all_is_done");
}

TEST(TieringInvariants, FailureIsNeverSuccess) {
  Scene scene = promoting();
  const std::string rule = "failure_is_never_success";
  scene.run(TierDrop{0, {5}}).run(TierFinish{0, 2, false});
  EXPECT_EQ(
      scene.broken_by(Lookup{5, "B"},
                      [](Observation& shown) { shown.result.emplace() = LookupResult::kHit; }),
      rule);
  const auto keep = [](bool ready) {
    return [ready](Observation& shown) {
      shown.t1.emplace().push_back({5, 1, ready, 0});
      ++shown.size;
      --shown.num_free_slots;
    };
  };
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, keep(/*ready=*/true)), rule);
  EXPECT_EQ(scene.broken_by(PrepareLoad{{1}}, keep(/*ready=*/true)), rule);
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, [](Observation& shown) { --shown.num_free_slots; }),
            rule);
  scene.run(OnScheduleEnd{}).run(PrepareStore{{7}, "A"});
  EXPECT_EQ(scene.broken_by(CompleteStore{{7}, "A", false},
                            [](Observation& shown) {
                              calls(shown) = {{"submit_store", 0, "A", 3, {7}, {1}, {}}};
                            }),
            rule);
}

TEST(TieringInvariants, ACascadedBlockIsPinned) {
  Scene scene = stored();
  const std::string rule = "a_cascaded_block_is_pinned";
  scene.run(PrepareStore{{2}, "A"});
  const auto unpinned = [](Observation& shown) { block(shown, 2).readers = 1; };
  EXPECT_EQ(scene.broken_by(CompleteStore{{2}, "A", true}, unpinned), rule) << "two tiers read it";
  scene.run(CompleteStore{{2}, "A", true}).run(TierFinish{0, 2, false}).run(OnScheduleEnd{});
  EXPECT_EQ(
      scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { block(shown, 2).readers = 2; }),
      rule)
      << "a failed cascade is over, too";
  EXPECT_EQ(
      scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { block(shown, 2).readers = 0; }),
      rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{7, 8}, "A"},
                            [](Observation& shown) {
                              shown.evicted.emplace() = {{2, 1}};
                            }),
            rule);
}

TEST(TieringInvariants, StoresGoDownToEveryTier) {
  Scene scene = stored();
  const std::string rule = "stores_go_down_to_every_tier";
  scene.run(PrepareStore{{2}, "A"}).run(OnNewRequest{"B", {1}});
  const CompleteStore store{{2}, "A", true};
  const auto drop_last = [](Observation& shown) { calls(shown).pop_back(); };
  EXPECT_EQ(scene.broken_by(store, drop_last), rule);
  EXPECT_EQ(scene.broken_by(
                store, [](Observation& shown) { std::swap(calls(shown)[0], calls(shown)[1]); }),
            rule);
  EXPECT_EQ(scene.broken_by(store, [](Observation& shown) { calls(shown)[1].slots = {0}; }), rule);
  EXPECT_EQ(scene.broken_by(store, [](Observation& shown) { calls(shown)[1].keys = {1}; }), rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{1, 2}, "B"}, drop_last), rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{1, 2}, "A"},
                            [](Observation& shown) {
                              calls(shown).push_back({"submit_store", 1, "A", 2, {1}, {0}, {}});
                            }),
            rule)
      << "no tier asked for that";
}

TEST(TieringInvariants, PromotionsAreSubmittedOnce) {
  Scene scene = stored();
  const std::string rule = "promotions_are_submitted_once";
  scene.run(TierAdd{0, {5, 6}}).run(Lookup{6, "B"});
  EXPECT_EQ(scene.broken_by(Lookup{5, "B"}, [](Observation& shown) { --shown.num_pending; }), rule);
  EXPECT_EQ(scene.broken_by(Lookup{5, "B"},
                            [](Observation& shown) { shown.pending.emplace().pop_back(); }),
            rule);
  scene.run(Lookup{5, "B"});
  const auto load = [](Observation& shown) -> TierCallRecord& { return calls(shown)[0]; };
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{},
                            [&](Observation& shown) {
                              load(shown).keys = {5, 6};
                            }),
            rule)
      << "6 was looked up first";
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{}, [&](Observation& shown) { load(shown).keys = {6}; }),
            rule);
  EXPECT_EQ(
      scene.broken_by(OnScheduleEnd{}, [&](Observation& shown) { load(shown).request = "A"; }),
      rule);
  EXPECT_EQ(scene.broken_by(OnScheduleEnd{},
                            [](Observation& shown) { calls(shown).erase(calls(shown).begin()); }),
            rule);
}

TEST(TieringInvariants, JobsAreNumberedInOrder) {
  Scene scene = stored();
  const std::string rule = "jobs_are_numbered_in_order";
  scene.run(PrepareStore{{2}, "A"});
  const CompleteStore store{{2}, "A", true};
  EXPECT_EQ(scene.broken_by(store, [](Observation& shown) { calls(shown)[1].job = 2; }), rule);
  scene.run(store);
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { --shown.num_jobs; }), rule);
  EXPECT_EQ(
      scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { shown.jobs.emplace().pop_back(); }),
      rule);
}

TEST(TieringInvariants, EveryTierIsTold) {
  const Scene scene = stored();
  const std::string rule = "every_tier_is_told";
  const auto drop_last = [](Observation& shown) { calls(shown).pop_back(); };
  for (const Command& command : {Command(Touch{{1}, "A"}), Command(OnNewRequest{"B", {}}),
                                 Command(OnRequestFinished{"A"}), Command(OnScheduleEnd{})}) {
    EXPECT_EQ(scene.broken_by(command, drop_last), rule);
  }
  EXPECT_EQ(
      scene.broken_by(Touch{{1, 2}, "A"}, [](Observation& shown) { calls(shown)[0].keys = {1}; }),
      rule);
  EXPECT_EQ(scene.broken_by(OnNewRequest{"B", {1}},
                            [](Observation& shown) { shown.request_level.emplace() = false; }),
            rule);
}

TEST(TieringInvariants, NothingIsHeldWhenAllIsDone) {
  Scene scene = stored();
  const std::string rule = "nothing_is_held_when_all_is_done";
  const auto held = [](Observation& shown) { block(shown, 1).readers = 1; };
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, held), rule);
  EXPECT_EQ(
      scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { block(shown, 1).ready = false; }),
      rule);
  scene.run(PrepareLoad{{1}});
  EXPECT_EQ(scene.broken_by(CompleteLoad{{1}}, held), rule);
  EXPECT_NE(scene.broken_by(PrepareStore{{2}, "A"}, held), rule);
}

TEST(TieringInvariants, ThePrimaryIsAnOffloadingManager) {
  Scene scene = stored();
  const std::string rule = "the_primary_is_an_offloading_manager";
  EXPECT_EQ(
      scene.broken_by(PrepareLoad{{1}}, [](Observation& shown) { shown.slots.emplace() = {2}; }),
      rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{1, 2}, "A"},
                            [](Observation& shown) {
                              shown.keys_to_store.emplace() = {1, 2};
                            }),
            rule);
  EXPECT_EQ(scene.broken_by(PrepareStore{{2}, "A"},
                            [](Observation& shown) {
                              shown.stored.emplace() = false;
                              shown.keys_to_store.reset();
                              shown.slots.reset();
                              shown.evicted.reset();
                            }),
            rule);
  EXPECT_EQ(
      scene.broken_by(TakeEvents{}, [](Observation& shown) { shown.events.emplace().clear(); }),
      rule);
  EXPECT_EQ(scene.broken_by(TakeEvents{},
                            [](Observation& shown) {
                              shown.events.emplace().push_back({{9}, /*removed=*/true});
                            }),
            rule);
  scene.run(PrepareStore{{2}, "A"});
  EXPECT_EQ(scene.broken_by(Touch{{1}, "A"},
                            [](Observation& shown) {
                              std::swap(shown.t1.emplace()[0], shown.t1.emplace()[1]);
                            }),
            rule);
}

TEST(TieringInvariants, AResetBeginsAnew) {
  Scene scene = stored();
  Invariants invariants(config_of(3), 2);
  invariants.reset();
  EXPECT_EQ(scene.broken_by(OnRequestFinished{"A"}, [](Observation&) {}), "");
}

/// Block 1 is stored and in the one tier, a file tier, and no longer in the primary one.
Scene only_in_a_file() {
  Scene scene(1, 1, {0});
  scene.run(PrepareStore{{1}, "A"}).run(CompleteStore{{1}, "A", true}).run(TierFinish{0, 0, true});
  scene.run(OnScheduleEnd{}).run(PrepareStore{{2}, "A"}).run(CompleteStore{{2}, "A", false});
  return scene;
}

TEST(TieringInvariants, WhatIsReadyIsWhatWasStored) {
  Scene scene = only_in_a_file();
  const std::string rule = "what_is_ready_is_what_was_stored";
  const auto damage = [](Observation& shown) { shown.damaged.emplace() = {1}; };
  scene.run(Lookup{1, "A"}).run(OnScheduleEnd{}).run(TierFinish{0, 1, true});
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, damage), rule);
  EXPECT_EQ(scene.broken_by(Lookup{1, "A"}, [](Observation& shown) { shown.damaged.reset(); }),
            "answers_fit_the_command");
  EXPECT_EQ(stored().broken_by(Lookup{1, "A"}, damage), "answers_fit_the_command")
      << "no file tier is there";
}

TEST(TieringInvariants, FilesKeepWhatWasStored) {
  const std::string rule = "files_keep_what_was_stored";
  const auto answer = [](std::string text) {
    return [text](Observation& shown) { calls(shown).back().answer = text; };
  };
  const auto miss = answer("miss");
  const Scene whole = only_in_a_file();
  EXPECT_EQ(whole.broken_by(Lookup{1, "A"}, miss), rule) << "nothing was made to go wrong";
  EXPECT_EQ(whole.broken_by(Lookup{9, "A"}, answer("hit")), rule);
  EXPECT_EQ(
      whole.broken_by(OnScheduleEnd{},
                      [](Observation& shown) { shown.tiers.emplace()[0].num_temporary_files = 1; }),
      rule);
  EXPECT_EQ(
      whole.broken_by(ResetCache{}, [](Observation& shown) { shown.tiers.emplace()[0].held = {}; }),
      rule);
  Scene storing(2, 1, {0});
  storing.run(PrepareStore{{1}, "A"})
      .run(CompleteStore{{1}, "A", true})
      .run(TierFinish{0, 0, true});
  EXPECT_EQ(storing.broken_by(OnScheduleEnd{},
                              [](Observation& shown) { calls(shown)[0].answer = "0 failed"; }),
            rule);

  // From the first fault on a block may be lost, but none is found that was not there.
  Scene torn = only_in_a_file();
  torn.run(TierDamage{0, 1, FileDamage::kTruncate, 3});
  const auto lose = [](Observation& shown) { shown.tiers.emplace()[0].held = {}; };
  const auto hit = [](Observation& shown) { calls(shown).back().answer = "hit"; };
  EXPECT_EQ(torn.broken_by(Lookup{1, "A"}, hit), rule) << "it has another size";
  // Another bit in it is no other size, as far as can be said.
  torn.run(TierDamage{0, 1, FileDamage::kFlip, 3});
  const auto find = [](Observation& shown) { shown.tiers.emplace()[0].held = {1, 7}; };
  const auto leave = [](Observation& shown) { shown.tiers.emplace()[0].num_temporary_files = 1; };
  EXPECT_EQ(torn.broken_by(ResetCache{}, lose), "");
  EXPECT_EQ(torn.broken_by(ResetCache{}, find), rule);
  EXPECT_EQ(torn.broken_by(ResetCache{}, leave), rule);
  EXPECT_EQ(
      torn.broken_by(TierFaults{0, {Fault{FileOperation::kRemove, 0, FileError::kEIO, 0}}}, leave),
      "");
  EXPECT_EQ(torn.broken_by(Lookup{9, "A"}, answer("hit")), rule);

  // What could not be loaded is missed, until it is stored again.
  const auto promote = [](Observation& shown) {
    calls(shown).back().answer = "hit";
    shown.result.emplace() = LookupResult::kPending;
    shown.t1.emplace() = {Entry{1, 0, false, 0}};
    shown.size = 1;
    shown.num_free_slots = 0;
    shown.num_pending = 1;
    shown.pending.emplace() = {Transfer{std::nullopt, 0, true, "A", {1}, {0}}};
  };
  torn.run_otherwise(Lookup{1, "A"}, promote).run(OnScheduleEnd{}).run(TierFinish{0, 1, true});
  const auto forget = [](Observation& shown) {
    calls(shown).front().answer = "1 failed";
    shown.t1.emplace().clear();
    shown.size = 0;
    shown.num_free_slots = 1;
    shown.num_jobs = 0;
    shown.jobs.emplace().clear();
  };
  Scene again = torn;
  again.run(TierAdd{0, {1}});
  for (Scene* scene : {&torn, &again}) scene->run_otherwise(OnScheduleEnd{}, forget);
  EXPECT_EQ(torn.broken_by(Lookup{1, "A"}, promote), rule);
  EXPECT_EQ(again.broken_by(Lookup{1, "A"}, promote), "");
}

TEST(TieringInvariants, AStoreIsDoneIfItsFileIsThere) {
  const std::string rule = "files_keep_what_was_stored";
  Scene scene(2, 1, {0});
  scene.run(TierAdd{0, {5}}).run(TierFaults{0, {}});
  scene.run(PrepareStore{{1}, "A"}).run(CompleteStore{{1}, "A", true});
  const auto show = [](Keys held) {
    return [held](Observation& shown) { shown.tiers.emplace()[0].held = held; };
  };
  const auto report = [&](std::string result, Keys held) {
    return [result, held](Observation& shown) {
      shown.tiers.emplace()[0].held = held;
      calls(shown)[0].answer = result;
      shown.t1.emplace() = {Entry{1, 0, true, 0}};
      shown.jobs.emplace().clear();
      shown.num_jobs = 0;
    };
  };
  EXPECT_EQ(scene.broken_by(TierFinish{0, 0, true}, show({})), rule) << "a whole file went";
  Scene stored = scene;
  Scene failed = scene;
  stored.run_otherwise(TierFinish{0, 0, true}, show({1, 5}))
      .run_otherwise(OnScheduleEnd{}, show({1, 5}));
  failed.run_otherwise(TierFinish{0, 0, true}, show({5})).run_otherwise(OnScheduleEnd{}, show({5}));
  EXPECT_EQ(stored.broken_by(OnScheduleEnd{}, report("0 done", {1, 5})), "");
  EXPECT_EQ(stored.broken_by(OnScheduleEnd{}, report("0 failed", {1, 5})), rule);
  EXPECT_EQ(failed.broken_by(OnScheduleEnd{}, report("0 failed", {5})), "");
  EXPECT_EQ(failed.broken_by(OnScheduleEnd{}, report("0 done", {5})), rule);
}

}  // namespace
}  // namespace kvfence::tiering
