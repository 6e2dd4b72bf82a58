// Each rule is seen to break: an honest connector, as the ledger adds it up, answers one command
// otherwise in one respect, and that rule is named. That the honest one is upstream's connector is
// shown where implementations are plugged together.
#include "properties/connectors/multi/rules.h"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kvfence::multi_connector {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Texts = std::vector<std::string>;

Config config_of(std::string profile = "v0.23", std::uint32_t num_ranks = 2) {
  Config config;
  config.profile = std::move(profile);
  config.children = {{"a", true}, {"b", true}, {"a", true}};
  config.num_ranks = num_ranks;
  return config;
}

/// A connector over three children that does as it should, until it is told otherwise.
class Scene {
 public:
  explicit Scene(const Config& config = config_of()) : ledger_(config), invariants_(config) {}

  /// What an honest connector answers, and shows behind it.
  Scene& run(const Command& command) {
    const auto found = invariants_.check(command, ledger_.apply(command), World(), 0);
    EXPECT_FALSE(found.has_value()) << found->oracle << " " << found->field;
    return *this;
  }

  /// The rule that is broken if it answers so; empty if none is. The scene stays where it is.
  std::string broken_by(const Command& command,
                        const std::function<void(Observation&)>& lie) const {
    Ledger ledger = ledger_;
    Invariants invariants = invariants_;
    Observation shown = ledger.apply(command);
    lie(shown);
    const auto found = invariants.check(command, shown, World(), 7);
    if (!found) return "";
    EXPECT_EQ(found->step, 7u);
    return std::string(found->oracle);
  }

 private:
  Ledger ledger_;
  Invariants invariants_;
};

std::vector<ChildCall>& calls(Observation& shown) { return shown.calls.emplace(); }

void drop_last_call(Observation& shown) { calls(shown).pop_back(); }

/// A is to be loaded by child 1.
Scene chosen() {
  Scene scene;
  scene.run(GetNumNewMatchedTokens{"A", 0, {{0, false}, {8, true}, {4, false}}});
  return scene;
}

/// Children 0 and 2 hold A, and rank 0 knows.
Scene held() {
  Scene scene = chosen();
  scene.run(RequestFinished{"A", {}, {{true, {}}, {false, {}}, {true, {}}}});
  scene.run(BuildConnectorMeta{{"m0", "m1", "m2"}}).run(StartLoadKV{0});
  return scene;
}

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

TEST(MultiConnectorInvariants, NamesAreUnique) {
  std::set<std::string_view> names;
  std::set<std::string_view> ids;
  for (const Invariant& invariant : kInvariants) {
    names.insert(invariant.name);
    ids.insert(invariant.id);
  }
  EXPECT_EQ(names.size(), kInvariants.size());
  EXPECT_EQ(ids.size(), kInvariants.size());
}

TEST(MultiConnectorInvariants, AnswersFitTheCommand) {
  const Scene scene = held();
  const std::string rule = "answers_fit_the_command";
  const auto accept = [](Observation& shown) { shown.error = ErrorCode::kNone; };
  EXPECT_EQ(Scene(config_of("v0.19")).broken_by(OnNewRequest{"A"}, accept), rule);
  EXPECT_EQ(scene.broken_by(TakeEvents{{{}, {}, {}, {}}}, accept), rule);
  EXPECT_EQ(scene.broken_by(RequestFinished{"A", {{1}, {2}}, {}}, accept), rule);
  EXPECT_EQ(scene.broken_by(UpdateStateAfterAlloc{"A", {{1}, {2}}, 0}, accept), rule);
  EXPECT_EQ(scene.broken_by(StartLoadKV{0}, accept), rule);
  EXPECT_EQ(scene.broken_by(WaitForLayerLoad{1, "0"}, accept), rule);
  EXPECT_EQ(scene.broken_by(SaveKVLayer{2, "0"}, accept), rule);
  EXPECT_EQ(scene.broken_by(UpdateConnectorOutput{}, accept), rule);
  EXPECT_EQ(scene.broken_by(TakeEvents{}, [](Observation& shown) { shown.events.reset(); }), rule);
  EXPECT_EQ(scene.broken_by(TakeEvents{}, [](Observation& shown) { shown.hold.emplace() = false; }),
            rule);
}

TEST(MultiConnectorInvariants, NothingChangesUnasked) {
  const Scene scene = chosen();
  const auto forget = [](Observation& shown) {
    shown.chosen.emplace().clear();
    shown.num_chosen = 0;
  };
  const std::vector<Finish> two_params = {{false, "p"}, {false, "q"}};
  for (const Command& command :
       {Command(TakeEvents{}), Command(ResetCache{}), Command(OnNewRequest{"A"}),
        Command(UpdateStateAfterAlloc{"A", {}, 8}), Command(StartLoadKV{0}),
        Command(RequestFinished{"A", {}, two_params})}) {
    EXPECT_EQ(scene.broken_by(command, forget), "nothing_changes_unasked");
  }
}

TEST(MultiConnectorInvariants, EveryChildIsTold) {
  const Scene scene = held();
  const std::string rule = "every_child_is_told";
  for (const Command& command :
       {Command(OnNewRequest{"B"}), Command(UpdateStateAfterAlloc{"B", {{1}}, 0}),
        Command(BuildConnectorMeta{}), Command(RequestFinished{"B", {{1}}, {{true, {}}}}),
        Command(TakeEvents{}), Command(ResetCache{{{false}}}), Command(HandlePreemptions{1}),
        Command(StartLoadKV{1}), Command(WaitForLayerLoad{0, "0"}), Command(SaveKVLayer{0, "0"}),
        Command(output_of(0, {}))}) {
    EXPECT_EQ(scene.broken_by(command, drop_last_call), rule);
  }
  EXPECT_EQ(
      scene.broken_by(TakeEvents{},
                      [](Observation& shown) { std::swap(calls(shown)[0], calls(shown)[1]); }),
      rule);
  EXPECT_EQ(scene.broken_by(RequestFinished{"B", {{1}}, {}},
                            [](Observation& shown) { calls(shown)[0].blocks = {{2}}; }),
            rule);
}

TEST(MultiConnectorInvariants, ChildrenAreAskedInOrder) {
  const std::string rule = "children_are_asked_in_order";
  const GetNumNewMatchedTokens hit{"A", 0, {{8, false}}};
  EXPECT_EQ(Scene().broken_by(hit, drop_last_call), rule);
  const GetNumNewMatchedTokens put_off{"A", 0, {{std::nullopt, false}}};
  EXPECT_EQ(Scene().broken_by(put_off,
                              [](Observation& shown) {
                                calls(shown).push_back(calls(shown).front());
                                calls(shown).back().child = 1;
                              }),
            rule);
}

TEST(MultiConnectorInvariants, TheFirstHitIsAnswered) {
  const std::string rule = "the_first_hit_is_answered";
  const GetNumNewMatchedTokens two{"A", 0, {{8, false}, {16, true}}};
  EXPECT_EQ(
      Scene().broken_by(two, [](Observation& shown) { shown.matched.emplace() = "16 async"; }),
      rule);
  const GetNumNewMatchedTokens put_off{"A", 0, {{8, false}, {std::nullopt, true}}};
  EXPECT_EQ(Scene().broken_by(put_off, [](Observation& shown) { shown.matched.emplace() = "8"; }),
            rule);
}

TEST(MultiConnectorInvariants, OneChildLoads) {
  const std::string rule = "one_child_loads";
  const Scene scene = chosen();
  const UpdateStateAfterAlloc allocated{"A", {{1, 2}}, 8};
  EXPECT_EQ(scene.broken_by(allocated, [](Observation& shown) { calls(shown)[2].num_tokens = 8; }),
            rule);
  EXPECT_EQ(scene.broken_by(allocated, [](Observation& shown) { calls(shown)[0].blocks = {{1}}; }),
            rule);
  EXPECT_EQ(scene.broken_by(allocated, [](Observation& shown) { calls(shown)[1].blocks = {{}}; }),
            rule);
  EXPECT_EQ(scene.broken_by(GetNumNewMatchedTokens{"A", 0, {{4, false}}},
                            [](Observation& shown) { shown.chosen.emplace()[0].child = 1; }),
            rule);
}

TEST(MultiConnectorInvariants, MetadataReachTheirChild) {
  const std::string rule = "metadata_reach_their_child";
  const auto another = [](Observation& shown) { calls(shown)[1].metadata = "m0"; };
  const Scene scene = held();
  EXPECT_EQ(scene.broken_by(HandlePreemptions{1}, another), rule);
  EXPECT_EQ(scene.broken_by(StartLoadKV{1}, another), rule);
  EXPECT_EQ(scene.broken_by(BuildConnectorMeta{{"x", "y", "z"}},
                            [](Observation& shown) { shown.metadata.emplace()[2] = "y"; }),
            rule);
}

TEST(MultiConnectorInvariants, ExtraSavesTravelOnce) {
  const std::string rule = "extra_saves_travel_once";
  Scene scene = chosen();
  const RequestFinished both{"A", {}, {{true, {}}, {true, {}}}};
  EXPECT_EQ(scene.broken_by(both, [](Observation& shown) { shown.extra.emplace()[0].saves = 2; }),
            rule);
  scene.run(both);
  EXPECT_EQ(scene.broken_by(BuildConnectorMeta{},
                            [](Observation& shown) { shown.extra_async_saves.emplace().clear(); }),
            rule);
  scene.run(BuildConnectorMeta{});
  EXPECT_EQ(scene.broken_by(BuildConnectorMeta{},
                            [](Observation& shown) {
                              shown.extra_async_saves.emplace().push_back({"A", 1});
                            }),
            rule);
  EXPECT_EQ(scene.broken_by(StartLoadKV{1},
                            [](Observation& shown) { shown.ranks.emplace()[1].extra.clear(); }),
            rule);
}

TEST(MultiConnectorInvariants, SentWithTheLastChild) {
  const std::string rule = "sent_with_the_last_child";
  Scene scene = held();
  const auto send = [](Observation& shown) { shown.finished_sending.emplace() = {"A"}; };
  const auto keep = [](Observation& shown) { shown.finished_sending.emplace().clear(); };
  EXPECT_EQ(scene.broken_by(output_of(0, {sending("A")}), send), rule);
  EXPECT_EQ(scene.broken_by(output_of(0, {sending("A"), {}, sending("A")}), keep), rule);
  EXPECT_EQ(scene.broken_by(output_of(0, {sending("B")}), keep), rule);
  scene.run(output_of(0, {sending("A")})).run(StartLoadKV{1});
  EXPECT_EQ(scene.broken_by(output_of(1, {}), send), rule) << "each rank counts for itself";
  scene.run(output_of(1, {sending("A"), {}, sending("A")}));
  EXPECT_EQ(scene.broken_by(UpdateConnectorOutput{},
                            [](Observation& shown) {
                              for (ChildCall& call : calls(shown)) call.sending.clear();
                              shown.finished_sending.emplace() = {"A"};
                            }),
            rule)
      << "rank 0 has not sent it";
}

TEST(MultiConnectorInvariants, ReceivedIsPassedOn) {
  Output received;
  received.recving = {"A"};
  EXPECT_EQ(held().broken_by(output_of(0, {received}),
                             [](Observation& shown) { shown.finished_recving.emplace().clear(); }),
            "received_is_passed_on");
}

TEST(MultiConnectorInvariants, LoadErrorsAreThoseOfAll) {
  Output failed;
  failed.invalid = {3};
  Output also_failed;
  also_failed.invalid = {4};
  EXPECT_EQ(held().broken_by(output_of(0, {failed, also_failed}),
                             [](Observation& shown) { shown.invalid_block_ids.emplace() = {3}; }),
            "load_errors_are_those_of_all");
}

TEST(MultiConnectorInvariants, WorkerMetadataReachTheirChild) {
  const std::string rule = "worker_metadata_reach_their_child";
  Output with_meta;
  with_meta.meta = Numbers{1};
  Scene scene(config_of("v0.23", 1));
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  const GetKVConnectorOutput report = output_of(0, {{}, with_meta});
  EXPECT_EQ(scene.broken_by(report,
                            [](Observation& shown) {
                              std::swap(shown.worker_meta.emplace()[0],
                                        shown.worker_meta.emplace()[1]);
                            }),
            rule);
  scene.run(report);
  EXPECT_EQ(scene.broken_by(UpdateConnectorOutput{},
                            [](Observation& shown) { calls(shown)[0].meta = Numbers{1}; }),
            rule);
}

TEST(MultiConnectorInvariants, StatisticsAreKeptByClass) {
  Output with_stats;
  with_stats.stats = Numbers{1};
  EXPECT_EQ(
      held().broken_by(output_of(0, {with_stats, {}, with_stats}),
                       [](Observation& shown) { shown.stats.emplace()[0].numbers.pop_back(); }),
      "statistics_are_kept_by_class");
}

TEST(MultiConnectorInvariants, ARequestEndsForAll) {
  const std::string rule = "a_request_ends_for_all";
  const RequestFinished ends{"B", {}, {{true, "p"}}};
  const Scene scene = chosen();
  EXPECT_EQ(scene.broken_by(ends, [](Observation& shown) { shown.hold.emplace() = false; }), rule);
  EXPECT_EQ(
      scene.broken_by(ends, [](Observation& shown) { shown.kv_transfer_params.emplace().reset(); }),
      rule);
  EXPECT_EQ(scene.broken_by(RequestFinished{"B", {}, {{false, "p"}, {false, "q"}}},
                            [](Observation& shown) { shown.error = ErrorCode::kNone; }),
            rule);
}

TEST(MultiConnectorInvariants, EventsAndResetsAreThoseOfAll) {
  const std::string rule = "events_and_resets_are_those_of_all";
  EXPECT_EQ(Scene().broken_by(TakeEvents{{{{1}}, {{2}}}},
                              [](Observation& shown) {
                                shown.events.emplace() = {2, 1};
                              }),
            rule);
  EXPECT_EQ(Scene().broken_by(ResetCache{{{true}, {false}}},
                              [](Observation& shown) { shown.success.emplace() = true; }),
            rule);
}

TEST(MultiConnectorInvariants, NothingIsKeptOfWhatIsOver) {
  const std::string rule = "nothing_is_kept_of_what_is_over";
  EXPECT_EQ(chosen().broken_by(RequestFinished{"A", {}, {}},
                               [](Observation& shown) {
                                 shown.chosen.emplace().push_back({"A", 1});
                                 ++shown.num_chosen;
                               }),
            rule);
  Scene scene(config_of("v0.23", 1));
  scene.run(RequestFinished{"A", {}, {{true, {}}, {true, {}}}});
  scene.run(BuildConnectorMeta{}).run(StartLoadKV{0});
  EXPECT_EQ(scene.broken_by(output_of(0, {sending("A"), sending("A")}),
                            [](Observation& shown) { ++shown.num_extra; }),
            rule);
}

TEST(MultiConnectorInvariants, AResetBeginsAnew) {
  Invariants invariants(config_of());
  Ledger ledger(config_of());
  const GetNumNewMatchedTokens lookup{"A", 0, {{8, false}}};
  EXPECT_FALSE(invariants.check(lookup, ledger.apply(lookup), World(), 0).has_value());
  invariants.reset();
  ledger = Ledger(config_of());
  EXPECT_FALSE(invariants.check(TakeEvents{}, ledger.apply(TakeEvents{}), World(), 0).has_value());
}

}  // namespace
}  // namespace kvfence::multi_connector
