#include "properties/offload/goals.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::offload {
namespace {

using eviction::Entry;
using Situations = std::vector<Reached>;
using Blocks = std::vector<Entry>;
using Keys = std::vector<std::uint32_t>;

/// A block's slot is its key.
Entry idle(std::uint32_t key) { return {key, key, true, 0}; }
Entry writing(std::uint32_t key) { return {key, key, false, 0}; }
Entry reading(std::uint32_t key, std::uint32_t readers = 1) { return {key, key, true, readers}; }

/// A manager of 4 slots.
Observation shown(Blocks t1, Blocks t2 = {}, Keys ghosts = {}, double target = 0) {
  Observation observation;
  observation.size = static_cast<std::uint32_t>(t1.size() + t2.size());
  observation.num_free_slots = 4 - observation.size;
  observation.target_t1_size = target;
  observation.t1.emplace() = std::move(t1);
  observation.t2.emplace() = std::move(t2);
  observation.b1.emplace() = std::move(ghosts);
  observation.b2.emplace();
  return observation;
}

Observation stored(const Keys& to_store, const Keys& evicted = {}) {
  Observation observation = shown({});
  observation.stored.emplace() = true;
  observation.keys_to_store.emplace() = to_store;
  observation.slots.emplace() = to_store;
  observation.evicted.emplace();
  for (std::uint32_t key : evicted) observation.evicted.emplace().push_back({key, key});
  return observation;
}

Observation not_stored() {
  Observation observation = shown({});
  observation.stored.emplace() = false;
  return observation;
}

/// What counting this one command adds.
Situations reached_by(const Command& command, const Observation& before, const Observation& after,
                      std::uint32_t store_threshold = 0) {
  Config config;
  config.store_threshold = store_threshold;
  Reach reach;
  reach.start(config);
  reach.count(command, before, after, World());
  return reached_between(Reach(), reach);
}

TEST(OffloadReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(OffloadReach, CountsLookups) {
  const Observation before = shown({idle(1), writing(2)});
  Observation after = before;
  after.num_hits.emplace() = 1;
  EXPECT_EQ(reached_by(Lookup{{1, 2}}, before, after),
            (Situations{Reached::kHit, Reached::kLookupEndedByAWrite}));
  EXPECT_EQ(reached_by(Lookup{{1, 3}}, before, after), Situations{Reached::kHit});
  EXPECT_EQ(reached_by(Lookup{{1}}, before, after), Situations{Reached::kHit});
  after.num_hits.emplace() = 0;
  EXPECT_EQ(reached_by(Lookup{{3}}, before, after), Situations{});

  after = before;
  for (const auto& [result, reached] :
       {std::pair{LookupResult::kHit, Situations{Reached::kHit}},
        std::pair{LookupResult::kPending, Situations{Reached::kPending}},
        std::pair{LookupResult::kMiss, Situations{}}}) {
    after.result.emplace() = result;
    EXPECT_EQ(reached_by(LookupKey{1}, before, after), reached);
  }
}

TEST(OffloadReach, CountsTouches) {
  EXPECT_EQ(reached_by(Touch{{1}}, shown({idle(1)}), shown({}, {idle(1)})),
            Situations{Reached::kPromoted});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({}, {}, {1}), shown({}, {}, {1}, 1)),
            Situations{Reached::kGhostTouched});
  EXPECT_EQ(reached_by(Touch{{1}}, shown({}, {idle(1)}), shown({}, {idle(1)})), Situations{});
}

TEST(OffloadReach, CountsLoads) {
  EXPECT_EQ(reached_by(PrepareLoad{{1, 1}}, shown({idle(1)}), shown({reading(1, 2)})),
            Situations{Reached::kLoadOfOneKeyTwice});
  EXPECT_EQ(reached_by(PrepareLoad{{1}}, shown({reading(1)}), shown({reading(1, 2)})),
            Situations{Reached::kTwoLoads});
  EXPECT_EQ(reached_by(PrepareLoad{{1}}, shown({idle(1)}), shown({reading(1)})), Situations{});
}

TEST(OffloadReach, CountsStores) {
  const Observation before = shown({idle(0), idle(1)}, {}, {7});
  EXPECT_EQ(reached_by(PrepareStore{{0, 1}}, before, stored({})),
            Situations{Reached::kNothingToStore});
  EXPECT_EQ(reached_by(PrepareStore{{0, 3}}, before, stored({3})),
            Situations{Reached::kPartlyHeld});
  EXPECT_EQ(reached_by(PrepareStore{{7}}, before, stored({7})), Situations{Reached::kGhostStored});
  EXPECT_EQ(reached_by(PrepareStore{{3}}, before, stored({3})), Situations{});
  EXPECT_EQ(reached_by(PrepareStore{{}}, before, stored({})), Situations{});
  EXPECT_EQ(reached_by(PrepareStore{{3}}, before, stored({3}, {0})),
            Situations{Reached::kStoreEvicted});
  // Slot 0 is below slot 1, which is held.
  EXPECT_EQ(reached_by(PrepareStore{{0}}, shown({idle(1)}), stored({0})),
            Situations{Reached::kFreedSlotReused});
}

TEST(OffloadReach, CountsTheFilter) {
  const Observation before = shown({idle(0)});
  EXPECT_EQ(reached_by(PrepareStore{{2}}, before, stored({2}), 2),
            Situations{Reached::kFilterLetPass});
  EXPECT_EQ(reached_by(PrepareStore{{2}}, before, stored({}), 2),
            Situations{Reached::kFilterKeptBack});
  EXPECT_EQ(reached_by(PrepareStore{{2}}, before, stored({2}), 1), Situations{});
}

TEST(OffloadReach, CountsFailedStores) {
  const Observation busy = shown({idle(0), reading(1), writing(2), reading(3)});
  EXPECT_EQ(reached_by(PrepareStore{{4, 5}}, busy, not_stored()),
            Situations{Reached::kStoreFailed});
  EXPECT_EQ(reached_by(PrepareStore{{0, 4}}, busy, not_stored()),
            (Situations{Reached::kStoreFailed, Reached::kStoreFailedForItsOwnKeys}));
  EXPECT_EQ(reached_by(PrepareStore{{4}}, busy, not_stored()),
            (Situations{Reached::kStoreFailed, Reached::kStoreFailedWithIdleT1}));
  EXPECT_EQ(reached_by(PrepareStore{{4}}, busy, not_stored(), 2),
            Situations{Reached::kStoreFailed});
}

TEST(OffloadReach, CountsEndedStores) {
  const Observation before = shown({idle(0), writing(1)});
  EXPECT_EQ(reached_by(CompleteStore{{0, 1}, true}, before, shown({idle(0), idle(1)})),
            Situations{Reached::kStoreEndedTwice});
  EXPECT_EQ(reached_by(CompleteStore{{1}, false}, before, shown({idle(0)})),
            Situations{Reached::kFailedStoreForgotten});
  EXPECT_EQ(reached_by(CompleteStore{{1, 9}, true}, before, shown({idle(0), idle(1)})),
            Situations{});
}

TEST(OffloadReach, CountsResetsAndEvents) {
  EXPECT_EQ(reached_by(ResetCache{}, shown({idle(0)}), shown({})), Situations{Reached::kReset});
  EXPECT_EQ(reached_by(ResetCache{}, shown({}), shown({})), Situations{});
  Observation after = shown({});
  after.events.emplace() = {{{1}, false}};
  EXPECT_EQ(reached_by(TakeEvents{}, shown({}), after), Situations{Reached::kStoredEvent});
  after.events.emplace() = {{{1}, true}};
  EXPECT_EQ(reached_by(TakeEvents{}, shown({}), after), Situations{Reached::kRemovedEvent});
}

TEST(OffloadReach, CountsRefusals) {
  for (const auto& [error, reached] :
       {std::pair{ErrorCode::kNotInProfile, Reached::kErrorNotInProfile},
        std::pair{ErrorCode::kUnknownKey, Reached::kErrorUnknownKey},
        std::pair{ErrorCode::kNotReady, Reached::kErrorNotReady},
        std::pair{ErrorCode::kNotReading, Reached::kErrorNotReading},
        std::pair{ErrorCode::kListedTwice, Reached::kErrorListedTwice}}) {
    Observation refused = shown({});
    refused.error = error;
    EXPECT_EQ(reached_by(PrepareLoad{{1}}, shown({}), refused), Situations{reached});
  }
}

}  // namespace
}  // namespace kvfence::offload
