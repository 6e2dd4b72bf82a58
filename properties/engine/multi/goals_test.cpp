// Goal: each reachability goal of what scripted children answer and report is counted in its
// situation and in no other. Method: commands between observations that are made by hand.

#include "properties/engine/multi/goals.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::engine::multi {
namespace {

using Calls = std::vector<ConnectorCallRecord>;
using Situations = std::vector<Reached>;

Config config_of(ConnectorList children) {
  Config config;
  make_assembly(Assembly::kMulti, config);
  config.edit_connector<MultiRecord>().children = std::move(children);
  return config;
}

ConnectorCallRecord call(std::uint32_t child, const std::string& method,
                         const std::string& request = {}, const std::string& answer = {}) {
  ConnectorCallRecord made;
  made.method = method;
  made.child = child;
  made.request = request;
  made.answer = answer;
  return made;
}

Observation shown(Calls calls = {}) {
  Observation observation;
  observation.chosen.emplace();
  observation.extra_saves.emplace();
  observation.finished_sending.emplace();
  if (!calls.empty()) observation.connector_calls.emplace() = std::move(calls);
  return observation;
}

/// What a command between two observations counts, beside what the configuration does.
Situations counted(const Command& command, const Observation& before, const Observation& after) {
  Reach reach;
  reach.start(config_of({ScriptedRecord(), ScriptedRecord()}));
  const Reach started = reach;
  reach.count(command, before, after, World());
  return reached_between(started, reach);
}

Situations counted(const Command& command, const Observation& after) {
  return counted(command, shown(), after);
}

TEST(MultiGoals, OfWhoTheChildrenAre) {
  Reach alone;
  alone.start(config_of({ScriptedRecord(), ScriptedRecord()}));
  EXPECT_EQ(alone.count_of(Reached::kScriptedAlone), 1U);
  EXPECT_EQ(alone.count_of(Reached::kScriptedBesideReal), 0U);
  Reach beside;
  beside.start(config_of({ScriptedRecord(), simple::Record()}));
  EXPECT_EQ(beside.count_of(Reached::kScriptedAlone), 0U);
  EXPECT_EQ(beside.count_of(Reached::kScriptedBesideReal), 1U);
}

TEST(MultiGoals, OfLookups) {
  const auto lookup = [](const std::string& first, const std::string& second) {
    return counted(Schedule{}, shown({call(0, "get_num_new_matched_tokens", "A", first),
                                      call(1, "get_num_new_matched_tokens", "A", second)}));
  };
  EXPECT_EQ(lookup("0", "4"), Situations{});
  EXPECT_EQ(lookup("4", "0"), Situations{});
  EXPECT_EQ(lookup("4", "8 async"), Situations{Reached::kLosingHit});
  EXPECT_EQ(lookup("4", "again"), Situations{Reached::kAskedAgainAfterHit});
  EXPECT_EQ(lookup("0", "again"), Situations{});
}

TEST(MultiGoals, OfWhoLoads) {
  Calls calls = {call(0, "update_state_after_alloc", "A"),
                 call(1, "update_state_after_alloc", "A")};
  EXPECT_EQ(counted(Schedule{}, shown(calls)), Situations{});
  calls.back().num_tokens = 4;
  EXPECT_EQ(counted(Schedule{}, shown(calls)), Situations{Reached::kScriptedLoads});

  Observation before = shown();
  before.chosen.emplace() = {{"A", 0}, {"B", 1}};
  Observation after = shown();
  after.chosen.emplace() = {{"A", 0}};
  EXPECT_EQ(counted(Schedule{}, before, after), Situations{});
  after.chosen.emplace() = {{"A", 1}};
  EXPECT_EQ(counted(Schedule{}, before, after), Situations{Reached::kChoiceChanged});
}

TEST(MultiGoals, OfTheEndOfARequest) {
  const auto end = [](const std::string& first, const std::string& second) {
    return Calls{call(0, "request_finished", "A", first), call(1, "request_finished", "A", second)};
  };
  EXPECT_EQ(counted(Schedule{}, shown(end("hold", "free"))), Situations{});
  EXPECT_EQ(counted(Schedule{}, shown(end("hold", "hold p"))), Situations{Reached::kHeldBySeveral});
  Calls groups = end("free", "free");
  groups.front().blocks.resize(2);
  EXPECT_EQ(counted(Schedule{}, shown(groups)), Situations{Reached::kSeveralGroupsTold});

  Observation told = shown();
  told.client_params.emplace() = {{"A", "p"}};
  EXPECT_EQ(counted(Schedule{}, told), Situations{Reached::kClientParams});
}

TEST(MultiGoals, OfNotices) {
  Observation before = shown();
  before.extra_saves.emplace() = {{0, "A", 2}};
  Observation after = before;
  EXPECT_EQ(counted(Update{}, before, after), Situations{});
  Update receives;
  receives.reports.emplace_back().recving = {"A"};
  EXPECT_EQ(counted(receives, before, after), Situations{Reached::kReceivedWhileHeld});
  after.extra_saves.emplace() = {{0, "A", 1}};
  EXPECT_EQ(counted(Update{}, before, after), Situations{Reached::kNoticeSwallowed});
  after.extra_saves.emplace() = {{0, "A", 2}, {1, "A", 1}};
  EXPECT_EQ(counted(Update{}, before, after), Situations{Reached::kRanksApart});
}

TEST(MultiGoals, OfRequestsThatSeveralHeld) {
  Reach reach;
  reach.start(config_of({ScriptedRecord(), ScriptedRecord()}));
  Observation sent = shown();
  sent.finished_sending.emplace() = {"A"};
  reach.count(Update{}, shown(), sent, World());
  EXPECT_EQ(reach.count_of(Reached::kSentInTheEnd), 0U);
  reach.count(
      Schedule{}, shown(),
      shown({call(0, "request_finished", "A", "hold"), call(1, "request_finished", "A", "hold")}),
      World());
  reach.count(Update{}, shown(), sent, World());
  EXPECT_EQ(reach.count_of(Reached::kSentInTheEnd), 1U);
}

TEST(MultiGoals, OfReports) {
  Update update;
  for (std::uint32_t child = 0; child < 2; ++child) {
    ChildReport& report = update.reports.emplace_back();
    report.child = child;
    report.rank = child;
    report.invalid = {1 + child};
    report.stats = {child};
  }
  EXPECT_EQ(counted(update, shown()), Situations{});
  update.reports.back().rank = 0;
  EXPECT_EQ(counted(update, shown()),
            (Situations{Reached::kLoadErrorsOfTwo, Reached::kStatsOfOneClass}));

  Calls calls = {call(0, "update_connector_output")};
  calls.front().jobs = {1, 2};
  EXPECT_EQ(counted(Update{}, shown(calls)), Situations{});
  calls.front().jobs = {1, 1};
  EXPECT_EQ(counted(Update{}, shown(calls)), Situations{Reached::kJobsOfTwoRanks});
}

TEST(MultiGoals, OfEnds) {
  Observation ended = shown();
  ended.engine_ended.emplace() = "several_params";
  EXPECT_EQ(counted(Update{}, ended), Situations{Reached::kEndedByParams});
  ended.engine_ended.emplace() = "not_loading";
  EXPECT_EQ(counted(Update{}, ended), Situations{Reached::kEndedByReport});
  ended.connector_calls.emplace() = {call(0, "shutdown", {}, "done")};
  EXPECT_EQ(counted(Update{}, ended), Situations{Reached::kEndedByReport});
  ended.connector_calls.emplace() = {call(0, "shutdown", {}, "failed")};
  EXPECT_EQ(counted(Update{}, ended),
            (Situations{Reached::kEndedByReport, Reached::kShutdownFailed}));
}

TEST(MultiGoals, OfStarts) {
  const auto start = [](const ConnectorCallRecord& first) {
    return counted(AddRequest{}, shown({first}));
  };
  EXPECT_EQ(start(call(1, "register_kv_caches")), Situations{});
  EXPECT_EQ(start(call(1, "register_cross_layers_kv_cache")), Situations{Reached::kCrossLayers});
  EXPECT_EQ(start(call(0, "get_handshake_metadata", {}, "0.0")), Situations{});
  EXPECT_EQ(start(call(1, "get_handshake_metadata")), Situations{});
  EXPECT_EQ(start(call(1, "get_handshake_metadata", {}, "1.0")),
            Situations{Reached::kLaterHandshake});
}

TEST(MultiGoals, OfResets) {
  ResetPrefixCache reset;
  reset.failing_children = {0};
  EXPECT_EQ(counted(reset, shown()), Situations{});
  reset.reset_connector = true;
  EXPECT_EQ(counted(reset, shown()), (Situations{Reached::kResetAll, Reached::kResetFailed}));
  reset.failing_children.clear();
  reset.silent_children = {1};
  EXPECT_EQ(counted(reset, shown()), (Situations{Reached::kResetAll, Reached::kResetUnsaid}));
}

}  // namespace
}  // namespace kvfence::engine::multi
