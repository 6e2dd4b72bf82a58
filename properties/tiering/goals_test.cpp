#include "properties/tiering/goals.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::tiering {
namespace {

using eviction::Entry;
using Blocks = std::vector<Entry>;
using Keys = std::vector<std::uint32_t>;
using Situations = std::vector<Reached>;
using Transfers = std::vector<Transfer>;

/// A block's slot is its key.
Entry idle(std::uint32_t key) { return {key, key, true, 0}; }
Entry writing(std::uint32_t key) { return {key, key, false, 0}; }
Entry reading(std::uint32_t key) { return {key, key, true, 1}; }

Transfer job(std::uint32_t number, std::uint32_t tier, bool promotion, Keys keys) {
  return {number, tier, promotion, "A", keys, keys};
}

/// A manager of 4 slots.
Observation shown(Blocks blocks, Transfers jobs = {}) {
  Observation observation;
  observation.size = static_cast<std::uint32_t>(blocks.size());
  observation.num_free_slots = 4 - observation.size;
  observation.num_jobs = static_cast<std::uint32_t>(jobs.size());
  observation.t1.emplace() = std::move(blocks);
  observation.t2.emplace();
  observation.b1.emplace();
  observation.b2.emplace();
  observation.jobs.emplace() = std::move(jobs);
  observation.pending.emplace();
  observation.tiers.emplace();
  return observation;
}

TierCallRecord call(std::string method, std::uint32_t tier, std::string answer = "", Keys keys = {},
                    std::string request = "A") {
  TierCallRecord record;
  record.method = std::move(method);
  record.tier = tier;
  record.request = std::move(request);
  record.keys = std::move(keys);
  record.answer = std::move(answer);
  return record;
}

Observation with_calls(Observation observation, std::vector<TierCallRecord> calls) {
  observation.tier_calls.emplace() = std::move(calls);
  return observation;
}

Observation with_result(LookupResult result, std::vector<TierCallRecord> calls = {},
                        Observation observation = shown({})) {
  observation.result.emplace() = result;
  return calls.empty() ? observation : with_calls(observation, std::move(calls));
}

/// What counting this one command adds.
Situations reached_by(const Command& command, const Observation& before, const Observation& after) {
  Reach reach;
  reach.count(command, before, after, World());
  return reached_between(Reach(), reach);
}

TEST(TieringReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(TieringReach, CountsLookups) {
  const Lookup lookup{1, "A"};
  const Observation empty = shown({});
  const auto asked = [](std::uint32_t tier, std::string answer) {
    return call("lookup", tier, std::move(answer), {1});
  };
  EXPECT_EQ(reached_by(lookup, empty, with_result(LookupResult::kHit)), Situations{Reached::kHit});
  EXPECT_EQ(reached_by(lookup, empty, with_result(LookupResult::kMiss, {asked(0, "miss")})),
            Situations{Reached::kMissInEveryTier});
  EXPECT_EQ(reached_by(lookup, empty, with_result(LookupResult::kMiss)), Situations{});
  EXPECT_EQ(reached_by(lookup, empty, with_result(LookupResult::kMiss, {asked(0, "hit")})),
            Situations{Reached::kPromotionHadNoRoom});
  const Observation with_block = shown({writing(1)});
  EXPECT_EQ(
      reached_by(lookup, empty, with_result(LookupResult::kPending, {asked(0, "hit")}, with_block)),
      Situations{Reached::kPromotionBegun});
  EXPECT_EQ(reached_by(lookup, shown({idle(2)}),
                       with_result(LookupResult::kPending, {asked(0, "hit")}, with_block)),
            (Situations{Reached::kPromotionBegun, Reached::kPromotionEvicted}));
  EXPECT_EQ(reached_by(lookup, empty,
                       with_result(LookupResult::kPending, {asked(0, "miss"), asked(1, "hit")},
                                   with_block)),
            (Situations{Reached::kPromotionBegun, Reached::kPromotionOfALowerTier}));
  EXPECT_EQ(reached_by(lookup, empty,
                       with_result(LookupResult::kMiss, {asked(0, "pending"), asked(1, "hit")})),
            (Situations{Reached::kPromotionHadNoRoom, Reached::kTierBehindTheOneThatAsksAgain}));
  EXPECT_EQ(
      reached_by(lookup, empty,
                 with_result(LookupResult::kPending, {asked(0, "pending"), asked(1, "miss")})),
      Situations{Reached::kPutOffByATier});
}

TEST(TieringReach, TellsWhatPutsALookupOff) {
  const Lookup lookup{1, "A"};
  EXPECT_EQ(reached_by(lookup, shown({writing(1)}), with_result(LookupResult::kPending)),
            Situations{Reached::kPutOffByAStore});
  EXPECT_EQ(reached_by(lookup, shown({writing(1)}, {job(0, 0, true, {1})}),
                       with_result(LookupResult::kPending)),
            Situations{Reached::kPutOffByAPromotion});
}

TEST(TieringReach, CountsResults) {
  const auto reported = [](std::string answer) {
    return with_calls(shown({}), {call("get_finished_jobs", 1, std::move(answer))});
  };
  const Observation before =
      shown({}, {job(0, 1, true, {1}), job(1, 1, false, {2}), job(2, 0, false, {2})});
  const PrepareLoad load{};
  EXPECT_EQ(reached_by(load, before, reported("")), Situations{});
  EXPECT_EQ(reached_by(load, before, reported("0 done")), Situations{Reached::kPromotionDone});
  EXPECT_EQ(reached_by(load, before, reported("0 failed")), Situations{Reached::kPromotionFailed});
  EXPECT_EQ(reached_by(load, before, reported("1 done")), Situations{Reached::kCascadeDone});
  EXPECT_EQ(reached_by(load, before, reported("1 failed")), Situations{Reached::kCascadeFailed});
  EXPECT_EQ(reached_by(load, before, reported("2 done")),
            Situations{Reached::kStrangeResultPassedOver});
  EXPECT_EQ(
      reached_by(load, before, reported("0 done 1 done")),
      (Situations{Reached::kPromotionDone, Reached::kCascadeDone, Reached::kSeveralJobsReported}));
}

TEST(TieringReach, CountsSubmissions) {
  const Observation before = shown({});
  EXPECT_EQ(reached_by(OnScheduleEnd{}, before,
                       with_calls(shown({}), {call("submit_load", 0, "", {1, 2})})),
            Situations{Reached::kLoadOfSeveralKeys});
  EXPECT_EQ(reached_by(OnScheduleEnd{}, before,
                       with_calls(shown({}), {call("submit_load", 0, "", {1}, "A"),
                                              call("submit_load", 0, "", {2}, "B")})),
            Situations{Reached::kLoadsOfTwoRequests});
  EXPECT_EQ(reached_by(OnScheduleEnd{}, before,
                       with_calls(shown({}), {call("submit_load", 0, "", {1}, "A"),
                                              call("submit_load", 1, "", {2}, "B")})),
            Situations{});
  const CompleteStore store{{1}, "A", true};
  EXPECT_EQ(reached_by(store, before, with_calls(shown({}), {call("submit_store", 0, "", {1})})),
            Situations{});
  EXPECT_EQ(reached_by(store, before, with_calls(shown({}), {call("submit_store", 1, "", {1})})),
            Situations{Reached::kCascadeToTwoTiers});
  EXPECT_EQ(reached_by(store, before, with_calls(shown({}), {call("submit_store", 0)})),
            Situations{Reached::kStoreOfNoKeys});
}

TEST(TieringReach, CountsStores) {
  Observation could_not = shown({reading(1)}, {job(0, 0, false, {1})});
  could_not.stored.emplace() = false;
  EXPECT_EQ(reached_by(PrepareStore{{2}, "A"}, shown({reading(1)}), could_not),
            Situations{Reached::kStoreFailedForCascades});
  Observation could = with_calls(shown({idle(1), writing(2)}), {call("submit_store", 0, "", {1})});
  could.stored.emplace() = true;
  EXPECT_EQ(reached_by(PrepareStore{{1}, "A"}, shown({idle(1)}), could),
            Situations{Reached::kRequestLevelCascade});
  EXPECT_EQ(reached_by(PrepareStore{{1, 2}, "A"}, shown({idle(1), writing(2)}), could),
            (Situations{Reached::kRequestLevelCascade, Reached::kPendingLeftOut}));
  EXPECT_EQ(reached_by(CompleteStore{{2}, "A", false}, shown({writing(2)}), shown({})),
            Situations{Reached::kFailedStoreStayed});
}

TEST(TieringReach, CountsTheRest) {
  EXPECT_EQ(reached_by(PrepareLoad{{1}}, shown({}), shown({reading(1)}, {job(0, 0, false, {1})})),
            Situations{Reached::kLoadAndCascade});
  const Observation promoting = shown({writing(1)}, {job(0, 0, true, {1})});
  EXPECT_EQ(reached_by(OnRequestFinished{"A"}, promoting, promoting),
            Situations{Reached::kPromotionOutlivedItsRequest});
  EXPECT_EQ(reached_by(OnRequestFinished{"B"}, promoting, promoting), Situations{});
  Observation told = shown({});
  told.events.emplace() = {{{1}, false}, {{2}, true}};
  EXPECT_EQ(reached_by(TakeEvents{}, shown({}), told),
            (Situations{Reached::kStoredEvent, Reached::kRemovedEvent}));
}

TEST(TieringReach, CountsRefusalsByTheirCode) {
  for (const auto& [code, goal] :
       {std::pair{ErrorCode::kUnknownKey, Reached::kErrorUnknownKey},
        std::pair{ErrorCode::kNotReady, Reached::kErrorNotReady},
        std::pair{ErrorCode::kNotReading, Reached::kErrorNotReading},
        std::pair{ErrorCode::kListedTwice, Reached::kErrorListedTwice},
        std::pair{ErrorCode::kNotInConfig, Reached::kErrorNotInConfig}}) {
    Observation refused = shown({});
    refused.error = code;
    EXPECT_EQ(reached_by(PrepareLoad{{1}}, shown({}), refused), Situations{goal});
  }
}

/// What a run with one file tier reaches at its last command.
struct Step {
  Command command;
  Observation after;
};

Situations reached_at_the_end_by(const std::vector<Step>& steps) {
  Reach reach;
  Config config;
  config.file_tiers = {0};
  reach.start(config);
  Observation before = shown({});
  before.tiers.emplace().resize(1);
  Reach before_last;
  for (const Step& step : steps) {
    before_last = reach;
    reach.count(step.command, before, step.after, World());
    before = step.after;
  }
  return reached_between(before_last, reach);
}

/// With what the one tier holds.
Observation holding(Observation observation, Keys held, std::uint32_t num_temporary_files = 0) {
  observation.tiers.emplace() = {TierState{std::move(held), num_temporary_files}};
  return observation;
}

Observation polled(std::string answer) {
  return holding(with_calls(shown({}), {call("get_finished_jobs", 0, std::move(answer), {}, "")}),
                 {});
}

TEST(TieringReach, CountsJobsOfFileTiers) {
  const Observation storing = holding(shown({reading(1)}, {job(3, 0, false, {1})}), {});
  const Observation loading = holding(shown({writing(1)}, {job(4, 0, true, {1})}), {1});
  const auto plan = [](FileOperation operation, FileError error) {
    return Step{TierFaults{0, {Fault{operation, 0, error, 5}}}, {}};
  };
  const auto run = [&](Step faults, const Observation& job, std::uint32_t number,
                       std::string answer) {
    faults.after = job;
    return reached_at_the_end_by(
        {faults, {TierFinish{0, number, true}, job}, {OnScheduleEnd{}, polled(std::move(answer))}});
  };
  const Step nothing{TierFaults{0, {}}, {}};
  EXPECT_EQ(run(nothing, storing, 3, "3 done"),
            (Situations{Reached::kCascadeDone, Reached::kCascadedToFile}));
  EXPECT_EQ(run(nothing, loading, 4, "4 done"),
            (Situations{Reached::kPromotionDone, Reached::kPromotedFromFile}));
  EXPECT_EQ(run(plan(FileOperation::kWrite, FileError::kENOSPC), storing, 3, "3 failed"),
            (Situations{Reached::kCascadeFailed, Reached::kFileStoreFailed, Reached::kDiskFull}));
  EXPECT_EQ(run(plan(FileOperation::kOpen, FileError::kEACCES), loading, 4, "4 failed"),
            (Situations{Reached::kPromotionFailed, Reached::kFileLoadFailed,
                        Reached::kPermissionDenied}));
  EXPECT_EQ(
      run(plan(FileOperation::kWrite, FileError::kNone), storing, 3, "3 done"),
      (Situations{Reached::kCascadeDone, Reached::kCascadedToFile, Reached::kShortTransferWentOn}));
}

TEST(TieringReach, CountsWhatBecomesOfFiles) {
  const Observation loading = holding(shown({writing(1)}, {job(4, 0, true, {1})}), {1});
  const TierFinish finish{0, 4, true};
  EXPECT_EQ(reached_at_the_end_by({{OnScheduleEnd{}, loading}, {finish, holding(loading, {})}}),
            Situations{Reached::kBadFileRemoved});
  EXPECT_EQ(reached_at_the_end_by({{OnScheduleEnd{}, loading}, {finish, holding(loading, {1}, 1)}}),
            Situations{Reached::kTemporaryFileLeft});
  const Step missed{
      Lookup{1, "A"},
      holding(with_result(LookupResult::kMiss, {call("lookup", 0, "miss", {1})}), {1})};
  const Step torn{TierDamage{0, 1, FileDamage::kGrow, 3}, holding(shown({}), {1})};
  EXPECT_EQ(reached_at_the_end_by({torn, missed}),
            (Situations{Reached::kMissInEveryTier, Reached::kTornFileMissed}));
  Observation failed = polled("4 failed");
  EXPECT_EQ(reached_at_the_end_by({{OnScheduleEnd{}, loading},
                                   {finish, loading},
                                   {OnScheduleEnd{}, holding(failed, {1})},
                                   missed}),
            (Situations{Reached::kMissInEveryTier, Reached::kDoubtfulFileMissed}));
}

}  // namespace
}  // namespace kvfence::tiering
