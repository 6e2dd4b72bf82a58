// Each goal is counted where it happens and not where it does not. What a connector shows is what
// the ledger adds up.
#include "properties/connectors/multi/goals.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/connectors/multi/ledger.h"
#include "properties/core/goals_test_support.h"

namespace kvfence::multi_connector {
namespace {

using Situations = std::vector<Reached>;
using Numbers = std::vector<std::uint32_t>;

Config config_of(std::uint32_t num_ranks = 1, std::uint32_t num_groups = 1, bool hma = true) {
  Config config;
  config.profile = "v0.23";
  config.children = {{"a", true}, {"b", hma}, {"a", true}};
  config.num_ranks = num_ranks;
  config.num_groups = num_groups;
  return config;
}

class Scene {
 public:
  explicit Scene(const Config& config = config_of()) : ledger_(config) { reach_.start(config); }

  Scene& run(const Command& command) {
    reached_by(command);
    return *this;
  }

  /// What that command reached, once each.
  Situations reached_by(const Command& command) {
    const Reach before = reach_;
    const Observation shown = ledger_.apply(command);
    reach_.count(command, before_, shown, World());
    before_ = shown;
    return reached_between(before, reach_);
  }

 private:
  Ledger ledger_;
  Reach reach_;
  Observation before_;
};

GetNumNewMatchedTokens lookup(std::vector<Match> answers) { return {"A", 0, std::move(answers)}; }

GetKVConnectorOutput output_of(std::uint32_t rank, std::vector<Output> answers) {
  GetKVConnectorOutput command;
  command.rank = rank;
  command.answers = std::move(answers);
  return command;
}

Output sending(std::string request) {
  Output output;
  output.sending.push_back(std::move(request));
  return output;
}

TEST(MultiConnectorReach, NamesAreUniqueAndEveryGoalIsPositive) {
  expect_named_once_and_positive(Reach());
}

TEST(MultiConnectorReach, CountsLookups) {
  const Match none;
  const Match again{std::nullopt, false};
  EXPECT_EQ(Scene().reached_by(lookup({})), Situations{Reached::kNothingFound});
  EXPECT_EQ(Scene().reached_by(lookup({{8, false}})), Situations{Reached::kFirstChildChosen});
  EXPECT_EQ(Scene().reached_by(lookup({none, {8, true}, {4, false}})),
            (Situations{Reached::kLaterChildChosen, Reached::kLosingHit, Reached::kAsyncLoad}));
  EXPECT_EQ(Scene().reached_by(lookup({none, again, {8, false}})),
            Situations{Reached::kAskedAgain});
  EXPECT_EQ(Scene().reached_by(lookup({{8, true}, again})),
            (Situations{Reached::kFirstChildChosen, Reached::kAskedAgain,
                        Reached::kAskedAgainBehindHit}));
  Scene scene;
  scene.run(lookup({{8, false}}));
  EXPECT_EQ(scene.reached_by(lookup({})),
            (Situations{Reached::kNothingFound, Reached::kChoiceKeptWithoutHit}));
  EXPECT_EQ(scene.reached_by(lookup({none, {8, false}})),
            (Situations{Reached::kLaterChildChosen, Reached::kChoiceChanged}));
}

TEST(MultiConnectorReach, CountsAllocations) {
  Scene scene;
  EXPECT_EQ(scene.reached_by(UpdateStateAfterAlloc{"A", {{1}}, 0}),
            Situations{Reached::kAllocatedWithoutChoice});
  scene.run(lookup({{8, false}}));
  EXPECT_EQ(scene.reached_by(UpdateStateAfterAlloc{"A", {{1}}, 0}), Situations{});
  EXPECT_EQ(scene.reached_by(UpdateStateAfterAlloc{"A", {{1}}, 8}),
            Situations{Reached::kLoadedByChosen});
}

TEST(MultiConnectorReach, CountsEnds) {
  const Finish holds{true, std::nullopt};
  EXPECT_EQ(Scene().reached_by(RequestFinished{"A", {}, {}}), Situations{Reached::kHeldByNobody});
  EXPECT_EQ(Scene().reached_by(RequestFinished{"A", {}, {{true, "p"}}}),
            (Situations{Reached::kHeldByOne, Reached::kFinishedWithParams}));
  EXPECT_EQ(Scene(config_of(1, 2)).reached_by(RequestFinished{"A", {}, {holds, holds}}),
            (Situations{Reached::kHeldBySeveral, Reached::kAllGroups}));
  EXPECT_EQ(Scene(config_of(1, 1, false)).reached_by(RequestFinished{"A", {}, {}}),
            (Situations{Reached::kHeldByNobody, Reached::kOneGroupOfHma}));
}

TEST(MultiConnectorReach, CountsNotices) {
  Scene scene;
  const Finish holds{true, std::nullopt};
  EXPECT_EQ(scene.reached_by(BuildConnectorMeta{}), Situations{});
  scene.run(StartLoadKV{0}).run(output_of(0, {})).run(UpdateConnectorOutput{});
  scene.run(RequestFinished{"A", {}, {holds, holds}});
  EXPECT_EQ(scene.reached_by(BuildConnectorMeta{}), Situations{Reached::kExtraSavesTravel});
  scene.run(StartLoadKV{0});
  Output received = sending("A");
  received.recving = {"A"};
  EXPECT_EQ(scene.reached_by(output_of(0, {received})),
            (Situations{Reached::kNoticeSwallowed, Reached::kReceivedWhileHeld}));
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  EXPECT_EQ(scene.reached_by(output_of(0, {{}, sending("A")})), Situations{Reached::kSentInTheEnd});
  scene.run(UpdateConnectorOutput{});
  EXPECT_EQ(scene.reached_by(UpdateConnectorOutput{}), Situations{Reached::kSentOnAllRanks});
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  EXPECT_EQ(scene.reached_by(output_of(0, {sending("B"), sending("B")})),
            (Situations{Reached::kSentInTheEnd, Reached::kSeveralChildrenSendAtOnce}));
}

TEST(MultiConnectorReach, CountsReports) {
  Scene scene;
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  Output output;
  output.invalid = {1};
  output.stats = Numbers{1};
  output.meta = Numbers{1};
  GetKVConnectorOutput command = output_of(0, {output, output, output});
  command.wait_for_save = false;
  EXPECT_EQ(scene.reached_by(command),
            (Situations{Reached::kLoadErrorsOfTwo, Reached::kStatsOfOneClass,
                        Reached::kStatsOfTwoClasses, Reached::kStepWithoutSave}));
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  EXPECT_EQ(scene.reached_by(output_of(0, {output})), Situations{Reached::kMetaOfSomeChildren});
}

TEST(MultiConnectorReach, CountsRanks) {
  Scene scene(config_of(2));
  Output sent = sending("A");
  sent.meta = Numbers{1};
  scene.run(BuildConnectorMeta{}).run(BuildConnectorMeta{});
  EXPECT_EQ(scene.reached_by(HandlePreemptions{0}), Situations{Reached::kPreemptions});
  EXPECT_EQ(scene.reached_by(StartLoadKV{0}), Situations{});
  scene.run(output_of(0, {sent}));
  EXPECT_EQ(scene.reached_by(StartLoadKV{0}), Situations{Reached::kRanksApart});
  scene.run(StartLoadKV{1}).run(output_of(1, {}));
  EXPECT_EQ(scene.reached_by(UpdateConnectorOutput{}),
            (Situations{Reached::kSentOnSomeRanks, Reached::kMetaOfTwoRanks}));
}

TEST(MultiConnectorReach, CountsTheRest) {
  Scene scene;
  EXPECT_EQ(scene.reached_by(TakeEvents{{{{1}}}}), Situations{});
  EXPECT_EQ(scene.reached_by(TakeEvents{{{{1}}, {{2}}}}), Situations{Reached::kEventsOfTwo});
  EXPECT_EQ(scene.reached_by(ResetCache{{{true}}}), Situations{Reached::kResetDone});
  EXPECT_EQ(scene.reached_by(ResetCache{{{false}, {}}}),
            (Situations{Reached::kResetFailed, Reached::kResetUnsaid}));
}

TEST(MultiConnectorReach, CountsRefusalsByTheirCode) {
  Scene scene;
  for (const auto& [code, goal] :
       {std::pair{ErrorCode::kNotInProfile, Reached::kErrorNotInProfile},
        std::pair{ErrorCode::kNotInConfig, Reached::kErrorNotInConfig},
        std::pair{ErrorCode::kNoStepInFlight, Reached::kErrorNoStepInFlight},
        std::pair{ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight},
        std::pair{ErrorCode::kSeveralParams, Reached::kErrorSeveralParams}}) {
    Reach reach;
    reach.start(config_of());
    Observation refused;
    refused.error = code;
    reach.count(TakeEvents{}, {}, refused, World());
    EXPECT_EQ(reach.count_of(goal), 1u);
  }
}

}  // namespace
}  // namespace kvfence::multi_connector
