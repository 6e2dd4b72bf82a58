#pragma once

/// One named test a rule of contract/connectors/multi/multi_connector.h, for both halves of any
/// MultiConnector over scripted children: what these were called with, and what came of their
/// answers, by hand.
///
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, MultiConnectorConformance, MyTypes);
///
/// in the namespace multi_connector_conformance, where MyTypes is a ::testing::Types of types with
/// Scheduler, over ScriptedChild, and Worker, over ScriptedWorkerChild.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/connectors/multi/multi_connector.h"
#include "contract/scripted/scripted_child.h"

namespace kvfence::multi_connector_conformance {

using Metadata = MultiConnectorMetadata<std::string>;
using Requests = std::vector<std::string>;
using Numbers = std::vector<std::uint32_t>;
using Chosen = std::vector<ChosenConnector>;
using Extras = std::vector<ExtraAsyncSaves>;

/// Both halves over three children, and the calls on these.
template <class Types>
class Scene {
 public:
  using Scheduler = typename Types::Scheduler;
  using Worker = typename Types::Worker;
  static_assert(MultiConnector<Scheduler, ScriptedChild>);
  static_assert(MultiConnectorWorker<Worker, ScriptedWorkerChild>);

  explicit Scene(Profile profile = Profile::kV023, std::vector<bool> hma = {true, true, true})
      : scheduler(rules_of(profile), schedulers(hma)), worker(workers()) {}

  /// (method child) of the calls since the last time.
  std::vector<std::string> taken() {
    std::vector<std::string> texts;
    for (const multi_connector::ChildCall& call : *calls) {
      texts.push_back(call.method + " " + std::to_string(call.child));
    }
    calls->clear();
    return texts;
  }

  MatchedTokens look_up(const std::string& request,
                        std::vector<std::optional<std::uint32_t>> num_tokens) {
    for (std::size_t place = 0; place < num_tokens.size(); ++place) {
      scheduler.children()[place].answers().match = {num_tokens[place], place == 1};
    }
    return scheduler.get_num_new_matched_tokens(request, 4);
  }

  FinishedAnswer finish(const std::string& request, const std::vector<bool>& hold) {
    for (std::size_t place = 0; place < hold.size(); ++place) {
      scheduler.children()[place].answers().finish = {hold[place], std::nullopt};
    }
    FinishedAnswer answer;
    EXPECT_EQ(scheduler.request_finished(request, {{1}}, answer), ErrorCode::kNone);
    return answer;
  }

  /// The worker binds what the scheduler built.
  void begin_step() {
    Metadata metadata;
    scheduler.build_connector_meta(metadata);
    worker.bind_connector_metadata(metadata);
  }

  FinishedTransfers report(std::vector<Requests> sending, std::vector<Requests> recving = {}) {
    for (std::size_t place = 0; place < 3; ++place) {
      multi_connector::Output& answers = worker.children()[place].answers();
      answers.sending = place < sending.size() ? sending[place] : Requests();
      answers.recving = place < recving.size() ? recving[place] : Requests();
    }
    FinishedTransfers out;
    worker.get_finished({}, out);
    return out;
  }

  std::vector<ChosenConnector> chosen() const {
    std::vector<ChosenConnector> out;
    scheduler.chosen(out);
    return out;
  }

  std::vector<ExtraAsyncSaves> extra_of_worker() const {
    std::vector<ExtraAsyncSaves> out;
    worker.extra_async_saves(out);
    std::sort(out.begin(), out.end(),
              [](const auto& a, const auto& b) { return a.request < b.request; });
    return out;
  }

  std::shared_ptr<ChildCalls> calls = std::make_shared<ChildCalls>();
  Scheduler scheduler;
  Worker worker;

 private:
  std::vector<ScriptedChild> schedulers(const std::vector<bool>& hma) const {
    std::vector<ScriptedChild> children;
    for (std::uint32_t place = 0; place < 3; ++place) {
      children.emplace_back(place, hma[place], calls);
    }
    return children;
  }
  std::vector<ScriptedWorkerChild> workers() const {
    std::vector<ScriptedWorkerChild> children;
    for (std::uint32_t place = 0; place < 3; ++place) {
      children.emplace_back(place, 0, place == 1 ? "b" : "a", calls);
    }
    return children;
  }
};

template <class Types>
class MultiConnectorConformance : public ::testing::Test {};

TYPED_TEST_SUITE_P(MultiConnectorConformance);

TYPED_TEST_P(MultiConnectorConformance, TellsEveryChildOfANewRequestWhereThatIsKnown) {
  Scene<TypeParam> scene;
  EXPECT_EQ(scene.scheduler.on_new_request("A"), ErrorCode::kNone);
  EXPECT_EQ(scene.taken(), (Requests{"on_new_request 0", "on_new_request 1", "on_new_request 2"}));
  Scene<TypeParam> before(Profile::kV019);
  EXPECT_EQ(before.scheduler.on_new_request("A"), ErrorCode::kNotInProfile);
  EXPECT_EQ(before.taken(), Requests{});
}

TYPED_TEST_P(MultiConnectorConformance, AnswersWithTheFirstHitAndAsksEverybody) {
  Scene<TypeParam> scene;
  const MatchedTokens matched = scene.look_up("A", {0, 8, 16});
  EXPECT_EQ(matched.num_tokens, 8u);
  EXPECT_TRUE(matched.load_async);
  EXPECT_EQ(scene.taken().size(), 3u);
  EXPECT_EQ(scene.chosen(), (Chosen{{"A", 1}}));
  EXPECT_EQ(scene.look_up("B", {0, 0, 0}).num_tokens, 0u);
  EXPECT_EQ(scene.chosen().size(), 1u);
}

TYPED_TEST_P(MultiConnectorConformance, PutsALookupOffAtTheChildThatAsksForIt) {
  Scene<TypeParam> scene;
  EXPECT_EQ(scene.look_up("A", {8, std::nullopt, 16}).num_tokens, std::nullopt);
  EXPECT_EQ(scene.taken(),
            (Requests{"get_num_new_matched_tokens 0", "get_num_new_matched_tokens 1"}));
  EXPECT_EQ(scene.chosen(), (Chosen{{"A", 0}}));
  scene.look_up("A", {0, 0, 4});
  EXPECT_EQ(scene.chosen(), (Chosen{{"A", 2}}));
  scene.look_up("A", {0, 0, 0});
  EXPECT_EQ(scene.chosen(), (Chosen{{"A", 2}}));
}

TYPED_TEST_P(MultiConnectorConformance, GivesBlocksToTheChosenChildAlone) {
  Scene<TypeParam> scene;
  scene.look_up("A", {0, 8, 0});
  scene.calls->clear();
  scene.scheduler.update_state_after_alloc("A", {{1, 2}, {3}}, 8);
  const ChildCalls calls = *scene.calls;
  ASSERT_EQ(calls.size(), 3u);
  for (const multi_connector::ChildCall& call : calls) {
    const bool loads = call.child == 1;
    EXPECT_EQ(call.num_tokens, loads ? 8u : 0u);
    EXPECT_EQ(call.blocks, loads ? (BlocksByGroup{{1, 2}, {3}}) : (BlocksByGroup{{}, {}}));
  }
  scene.calls->clear();
  scene.scheduler.update_state_after_alloc("B", {{4}}, 0);
  for (const multi_connector::ChildCall& call : *scene.calls) {
    EXPECT_EQ(call.blocks, BlocksByGroup{{}});
  }
}

TYPED_TEST_P(MultiConnectorConformance, HoldsBlocksForAnyChildAndCountsTheOthers) {
  Scene<TypeParam> scene;
  scene.look_up("A", {8, 0, 0});
  EXPECT_FALSE(scene.finish("A", {false, false, false}).hold_blocks);
  EXPECT_EQ(scene.chosen(), Chosen{});
  EXPECT_TRUE(scene.finish("B", {true, false, false}).hold_blocks);
  EXPECT_TRUE(scene.finish("C", {true, false, true}).hold_blocks);
  Extras extras;
  scene.scheduler.extra_async_saves(extras);
  EXPECT_EQ(extras, (Extras{{"C", 1}}));
  Metadata metadata;
  scene.scheduler.build_connector_meta(metadata);
  EXPECT_EQ(metadata.metadata.size(), 3u);
  EXPECT_EQ(metadata.extra_async_saves, (Extras{{"C", 1}}));
  scene.scheduler.build_connector_meta(metadata);
  EXPECT_EQ(metadata.extra_async_saves, Extras{});
}

TYPED_TEST_P(MultiConnectorConformance, HandsOnTheParametersOfOneChildAndRefusesThoseOfTwo) {
  Scene<TypeParam> scene;
  scene.look_up("A", {8, 0, 0});
  scene.scheduler.children()[1].answers().finish = {true, "p"};
  FinishedAnswer answer;
  ASSERT_EQ(scene.scheduler.request_finished("B", {{1}}, answer), ErrorCode::kNone);
  EXPECT_EQ(answer, (FinishedAnswer{true, "p"}));
  scene.scheduler.children()[0].answers().finish = {true, "q"};
  scene.calls->clear();
  EXPECT_EQ(scene.scheduler.request_finished("A", {{1}}, answer), ErrorCode::kSeveralParams);
  EXPECT_EQ(scene.taken().size(), 2u);
  EXPECT_EQ(scene.chosen(), (Chosen{{"A", 0}}));
  Extras extras;
  scene.scheduler.extra_async_saves(extras);
  EXPECT_EQ(extras, Extras{});
}

TYPED_TEST_P(MultiConnectorConformance, HandsOnAllGroupsIfEveryChildTakesThem) {
  FinishedAnswer answer;
  Scene<TypeParam> all;
  ASSERT_EQ(all.scheduler.request_finished("A", {{1}, {2}}, answer), ErrorCode::kNone);
  EXPECT_EQ(all.calls->front().method, "request_finished_all_groups");
  EXPECT_EQ(all.calls->front().blocks, (BlocksByGroup{{1}, {2}}));
  Scene<TypeParam> some(Profile::kV023, {true, false, true});
  Scene<TypeParam> before(Profile::kV019);
  for (Scene<TypeParam>* scene : {&some, &before}) {
    ASSERT_EQ(scene->scheduler.request_finished("A", {{1}}, answer), ErrorCode::kNone);
    EXPECT_EQ(scene->calls->front().method, "request_finished");
    EXPECT_EQ(scene->calls->front().blocks, BlocksByGroup{{1}});
  }
}

TYPED_TEST_P(MultiConnectorConformance, GivesEachChildItsOwnWorkerMetadata) {
  Scene<TypeParam> scene;
  AggregatedOutput output;
  output.finished_sending = {"A"};
  MultiConnectorWorkerMetadata<ScriptedNumbers> metadata;
  metadata.metadata = {std::nullopt, ScriptedNumbers{{7}}, std::nullopt};
  scene.scheduler.update_connector_output(output, &metadata);
  scene.scheduler.update_connector_output(output, nullptr);
  const ChildCalls& calls = *scene.calls;
  ASSERT_EQ(calls.size(), 6u);
  for (std::size_t at = 0; at < calls.size(); ++at) {
    EXPECT_EQ(calls[at].sending, Requests{"A"});
    EXPECT_EQ(calls[at].meta, at == 1 ? std::optional(Numbers{7}) : std::nullopt);
  }
}

TYPED_TEST_P(MultiConnectorConformance, HandsOutEventsAndResetsOfAll) {
  Scene<TypeParam> scene;
  scene.scheduler.children()[0].answers().events = {1, 2};
  scene.scheduler.children()[2].answers().events = {3};
  Numbers events = {0};
  scene.scheduler.take_events(events);
  EXPECT_EQ(events, (Numbers{0, 1, 2, 3}));
  scene.scheduler.children()[1].answers().reset_done = true;
  EXPECT_TRUE(scene.scheduler.reset_cache());
  scene.scheduler.children()[0].answers().reset_done = false;
  scene.calls->clear();
  EXPECT_FALSE(scene.scheduler.reset_cache());
  EXPECT_EQ(scene.taken().size(), 3u);
}

TYPED_TEST_P(MultiConnectorConformance, ReportsARequestWithTheLastNotice) {
  Scene<TypeParam> scene;
  scene.finish("A", {true, true, true});
  scene.begin_step();
  EXPECT_EQ(scene.extra_of_worker(), (Extras{{"A", 2}}));
  EXPECT_EQ(scene.report({{"A"}}).sending, Requests{});
  EXPECT_EQ(scene.report({{}, {"A"}}).sending, Requests{});
  EXPECT_EQ(scene.extra_of_worker(), Extras{});
  EXPECT_EQ(scene.report({{}, {}, {"A"}}).sending, Requests{"A"});
}

TYPED_TEST_P(MultiConnectorConformance, CountsWithinOneStepAndNamesEachOnce) {
  Scene<TypeParam> scene;
  scene.finish("A", {true, true, false});
  scene.begin_step();
  EXPECT_EQ(scene.report({{"A"}, {"A"}}).sending, Requests{"A"});
  EXPECT_EQ(scene.report({{"B"}, {"B"}}).sending, Requests{"B"});
}

TYPED_TEST_P(MultiConnectorConformance, PassesOnWhatIsReceivedAndLeavesTheCount) {
  Scene<TypeParam> scene;
  scene.finish("A", {true, true, false});
  scene.begin_step();
  EXPECT_EQ(scene.report({}, {{"A"}, {"A"}}).recving, Requests{"A"});
  EXPECT_EQ(scene.extra_of_worker(), (Extras{{"A", 1}}));
}

TYPED_TEST_P(MultiConnectorConformance, KeepsTheCountsOfEarlierSteps) {
  Scene<TypeParam> scene;
  scene.finish("A", {true, true, true});
  scene.begin_step();
  scene.finish("B", {true, true, false});
  scene.begin_step();
  EXPECT_EQ(scene.extra_of_worker(), (Extras{{"A", 2}, {"B", 1}}));
  scene.finish("A", {true, true, false});
  scene.begin_step();
  EXPECT_EQ(scene.extra_of_worker(), (Extras{{"A", 1}, {"B", 1}}));
}

TYPED_TEST_P(MultiConnectorConformance, CallsEveryChildInAStep) {
  Scene<TypeParam> scene;
  Metadata metadata;
  metadata.metadata = {"x", "y", "z"};
  scene.worker.handle_preemptions(metadata);
  scene.worker.bind_connector_metadata(metadata);
  ASSERT_EQ(scene.calls->size(), 6u);
  for (std::size_t at = 0; at < 6; ++at) {
    EXPECT_EQ((*scene.calls)[at].metadata, metadata.metadata[at % 3]);
  }
  scene.calls->clear();
  scene.worker.start_load_kv();
  scene.worker.wait_for_layer_load("l0");
  scene.worker.save_kv_layer("l0");
  scene.worker.wait_for_save();
  scene.worker.clear_connector_metadata();
  EXPECT_EQ((*scene.calls)[3].layer, "l0");
  EXPECT_EQ(scene.taken(),
            (Requests{"start_load_kv 0", "start_load_kv 1", "start_load_kv 2",
                      "wait_for_layer_load 0", "wait_for_layer_load 1", "wait_for_layer_load 2",
                      "save_kv_layer 0", "save_kv_layer 1", "save_kv_layer 2", "wait_for_save 0",
                      "wait_for_save 1", "wait_for_save 2", "clear_connector_metadata 0",
                      "clear_connector_metadata 1", "clear_connector_metadata 2"}));
}

TYPED_TEST_P(MultiConnectorConformance, UnitesLoadErrorsAndStatistics) {
  Scene<TypeParam> scene;
  scene.worker.children()[0].answers().invalid = {3, 1};
  scene.worker.children()[2].answers().invalid = {1, 2};
  std::vector<BlockId> blocks = {9};
  scene.worker.get_block_ids_with_load_errors(blocks);
  EXPECT_EQ(blocks, (std::vector<BlockId>{1, 2, 3}));

  std::vector<StatsOfClass<ScriptedNumbers>> stats;
  EXPECT_FALSE(scene.worker.get_kv_connector_stats(stats));
  scene.worker.children()[0].answers().stats = Numbers{1};
  scene.worker.children()[1].answers().stats = Numbers{2};
  scene.worker.children()[2].answers().stats = Numbers{3};
  ASSERT_TRUE(scene.worker.get_kv_connector_stats(stats));
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].connector_class, "a");
  EXPECT_EQ(stats[0].stats.numbers, (Numbers{1, 3}));
  EXPECT_EQ(stats[1].stats.numbers, Numbers{2});
  std::vector<StatsOfClass<ScriptedNumbers>> all = {{"b", ScriptedNumbers{{0}}}};
  scene.worker.aggregate(all, stats);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].stats.numbers, (Numbers{0, 2}));
  EXPECT_EQ(all[1].connector_class, "a");
}

TYPED_TEST_P(MultiConnectorConformance, KeepsWorkerMetadataAtThePlaceOfTheirChild) {
  Scene<TypeParam> scene;
  MultiConnectorWorkerMetadata<ScriptedNumbers> metadata;
  EXPECT_FALSE(scene.worker.build_connector_worker_meta(metadata));
  scene.worker.children()[1].answers().meta = Numbers{1};
  ASSERT_TRUE(scene.worker.build_connector_worker_meta(metadata));
  ASSERT_EQ(metadata.metadata.size(), 3u);
  EXPECT_FALSE(metadata.metadata[0].has_value());
  EXPECT_EQ(metadata.metadata[1]->numbers, Numbers{1});
  MultiConnectorWorkerMetadata<ScriptedNumbers> of_another_rank;
  of_another_rank.metadata = {ScriptedNumbers{{5}}, ScriptedNumbers{{6}}, std::nullopt};
  scene.worker.aggregate(metadata, of_another_rank);
  EXPECT_EQ(metadata.metadata[0]->numbers, Numbers{5});
  EXPECT_EQ(metadata.metadata[1]->numbers, (Numbers{1, 6}));
  EXPECT_FALSE(metadata.metadata[2].has_value());
}

TYPED_TEST_P(MultiConnectorConformance, IsAValue) {
  Scene<TypeParam> scene;
  scene.look_up("A", {8, 0, 0});
  auto copy = scene.scheduler;
  scene.finish("A", {false, false, false});
  EXPECT_EQ(scene.chosen(), Chosen{});
  Chosen of_copy;
  copy.chosen(of_copy);
  EXPECT_EQ(of_copy, (Chosen{{"A", 0}}));
}

REGISTER_TYPED_TEST_SUITE_P(MultiConnectorConformance, TellsEveryChildOfANewRequestWhereThatIsKnown,
                            AnswersWithTheFirstHitAndAsksEverybody,
                            PutsALookupOffAtTheChildThatAsksForIt, GivesBlocksToTheChosenChildAlone,
                            HoldsBlocksForAnyChildAndCountsTheOthers,
                            HandsOnTheParametersOfOneChildAndRefusesThoseOfTwo,
                            HandsOnAllGroupsIfEveryChildTakesThem,
                            GivesEachChildItsOwnWorkerMetadata, HandsOutEventsAndResetsOfAll,
                            ReportsARequestWithTheLastNotice, CountsWithinOneStepAndNamesEachOnce,
                            PassesOnWhatIsReceivedAndLeavesTheCount, KeepsTheCountsOfEarlierSteps,
                            CallsEveryChildInAStep, UnitesLoadErrorsAndStatistics,
                            KeepsWorkerMetadataAtThePlaceOfTheirChild, IsAValue);

}  // namespace kvfence::multi_connector_conformance
