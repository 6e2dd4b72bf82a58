// Goal: each situation is counted where it happens and nowhere else. Method: short histories of
// commands with observations written by hand, and the exact list of what the last one adds.

#include "properties/engine/scheduler/goals.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"
#include "properties/core/typed_test_support.h"

namespace kvfence::engine::scheduler {
namespace {

using Situations = std::vector<Reached>;

/// A command and what was seen behind it.
struct Moment {
  Command command;
  Observation shown;
};

Config plain() {
  Config config;
  config.num_gpu_blocks = 9;
  config.hash_block_size = 2;
  config.groups = {KVCacheSpec{.block_size = 2}};
  config.max_model_len = 16;
  config.max_num_batched_tokens = 16;
  return config;
}

Config with_connector(std::string_view failure_policy = "fail") {
  Config config = plain();
  config.connectors = {ScriptedRecord()};
  config.kv_load_failure_policy = failure_policy;
  return config;
}

/// A request of four prompt tokens.
Moment added(std::string id, std::uint32_t max_tokens = 8) {
  AddRequest command;
  command.id = std::move(id);
  command.tokens = {1, 2, 3, 4};
  command.max_tokens = max_tokens;
  command.eos_token = 7;
  command.stop_tokens = {8};
  return {command, {}};
}

RequestState state_of(std::string id, RequestStatus status, std::uint32_t num_tokens,
                      std::uint32_t num_computed_tokens) {
  RequestState state;
  state.id = std::move(id);
  state.status = status;
  state.num_tokens = num_tokens;
  state.num_computed_tokens = num_computed_tokens;
  return state;
}

RequestState running(std::string id, std::uint32_t num_tokens, std::uint32_t num_computed) {
  return state_of(std::move(id), RequestStatus::kRunning, num_tokens, num_computed);
}
RequestState waiting(std::string id) {
  return state_of(std::move(id), RequestStatus::kWaiting, 4, 0);
}
RequestState preempted(std::string id, std::uint32_t num_tokens) {
  RequestState state = state_of(std::move(id), RequestStatus::kPreempted, num_tokens, 0);
  state.num_preemptions = 1;
  return state;
}
RequestState loading(std::string id, std::uint32_t num_computed) {
  return state_of(std::move(id), RequestStatus::kWaitingForRemoteKVs, 4, num_computed);
}
RequestState ended(std::string id) {
  return state_of(std::move(id), RequestStatus::kFinishedAborted, 5, 4);
}

/// An observation of these requests, each in the place of its status; eight blocks are free.
Observation state(std::vector<RequestState> requests) {
  Observation shown;
  for (const RequestState& request : requests) {
    const bool is_blocked = request.status == RequestStatus::kWaitingForGrammar ||
                            request.status == RequestStatus::kWaitingForRemoteKVs;
    if (is_finished(request.status)) continue;
    auto& place = request.status == RequestStatus::kRunning ? shown.running
                  : is_blocked                              ? shown.skipped_waiting
                                                            : shown.waiting;
    place.emplace().push_back(request.id);
  }
  shown.num_running = static_cast<std::uint32_t>(shown.running.emplace().size());
  shown.num_waiting = static_cast<std::uint32_t>(shown.waiting.emplace().size());
  shown.num_skipped_waiting = static_cast<std::uint32_t>(shown.skipped_waiting.emplace().size());
  shown.requests.emplace() = std::move(requests);
  shown.keys.emplace().assign(9, {});
  shown.tables.emplace();
  shown.num_empty_blocks = 8;
  return shown;
}

/// Behind a schedule: who ran.
Observation planned(Observation shown, std::vector<ScheduledRequest> scheduled = {}) {
  shown.scheduled.emplace() = std::move(scheduled);
  shown.new_reqs.emplace();
  shown.cached_reqs.emplace();
  shown.common_prefix.emplace() = {0};
  shown.preempted.emplace();
  return shown;
}

Observation with_victims(Observation shown, std::vector<std::string> names) {
  shown.preempted.emplace() = std::move(names);
  return shown;
}

Observation with_new(Observation shown, std::string id, std::uint32_t num_computed_tokens) {
  shown.new_reqs.emplace().push_back({std::move(id), num_computed_tokens, {}});
  return shown;
}

Observation with_cached(Observation shown, ScheduledCached cached) {
  shown.cached_reqs.emplace().push_back(std::move(cached));
  return shown;
}

Observation with_call(Observation shown, ConnectorCallRecord call) {
  shown.connector_calls.emplace().push_back(std::move(call));
  return shown;
}

Observation with_blocks(Observation shown, std::string id, std::vector<BlockId> blocks) {
  shown.tables.emplace().push_back({std::move(id), {std::move(blocks)}});
  return shown;
}

Observation with_key(Observation shown, BlockId block) {
  shown.keys.emplace()[block] = "key";
  return shown;
}

/// Behind an update: what the clients were told.
Observation told(Observation shown, std::vector<RequestOutput> outputs = {}) {
  shown.outputs.emplace() = std::move(outputs);
  return shown;
}

/// What the last moment adds.
Situations reached_by(const Config& config, const std::vector<Moment>& history) {
  Reach reach;
  reach.start(config);
  World world = fresh_world<EngineTarget>(config);
  Observation before;
  Reach before_last;
  for (const Moment& moment : history) {
    before_last = reach;
    world.apply(moment.command);
    reach.count(moment.command, before, moment.shown, world);
    before = moment.shown;
  }
  return counted_between(before_last, reach);
}

/// A step of A and B, both with five tokens of which the last is planned.
std::vector<Moment> two_running(std::uint32_t num_spec_tokens = 0) {
  const std::vector<TokenId> drafts(num_spec_tokens, 5);
  return {
      added("A"), added("B"),
      Moment{Schedule{}, planned(state({running("A", 5, 5 + num_spec_tokens), running("B", 5, 5)}),
                                 {{"A", 1 + num_spec_tokens, true, drafts}, {"B", 1, true, {}}})}};
}

std::vector<Moment> operator+(std::vector<Moment> history, Moment moment) {
  history.push_back(std::move(moment));
  return history;
}

TEST(SchedulerReach, CountsRefusalsByCode) {
  Observation refused;
  for (const auto& [code, goal] :
       {std::pair{ErrorCode::kStepsInFlight, Reached::kErrorStepsInFlight},
        {ErrorCode::kListedTwice, Reached::kErrorListedTwice},
        {ErrorCode::kUnknownBlock, Reached::kErrorUnknownBlock}}) {
    refused.error = code;
    EXPECT_EQ(reached_by(plain(), {{Schedule{}, refused}}), Situations{goal});
  }
}

TEST(SchedulerReach, CountsPartsOfPrompts) {
  Config config = plain();
  config.max_num_batched_tokens = 3;
  const Observation shown = planned(state({running("A", 4, 3)}), {{"A", 3, false, {}}});
  EXPECT_EQ(reached_by(config, {added("A"), {Schedule{}, shown}}), Situations{Reached::kChunk});
  config.long_prefill_token_threshold = 3;
  EXPECT_EQ(reached_by(config, {added("A"), {Schedule{}, shown}}),
            (Situations{Reached::kChunk, Reached::kThresholdCut}));
}

TEST(SchedulerReach, CountsStepsInFlight) {
  const auto history = two_running();
  EXPECT_EQ(reached_by(plain(), history), Situations{});
  EXPECT_EQ(reached_by(plain(), history + history.back()), Situations{Reached::kTwoStepsInFlight});
}

TEST(SchedulerReach, CountsWhoIsPassedOver) {
  auto history = two_running();
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{}, planned(history.back().shown)}),
            (Situations{Reached::kTwoStepsInFlight, Reached::kNothingToCompute,
                        Reached::kNothingToCompute}));
  RequestState planned_out = running("A", 5, 6);
  planned_out.num_output_placeholders = 2;
  history = {added("A", 2), {Schedule{}, planned(state({planned_out}))}};
  EXPECT_EQ(reached_by(plain(), history + history.back()),
            (Situations{Reached::kTwoStepsInFlight, Reached::kOutputsPlanned}));
}

TEST(SchedulerReach, CountsCutsOfDrafts) {
  RequestState drafting = running("A", 14, 13);
  drafting.spec_tokens = {5, 5};
  const Observation before = planned(state({drafting}));
  Observation after = planned(state({running("A", 14, 15)}), {{"A", 2, true, {5}}});
  EXPECT_EQ(reached_by(plain(), {added("A"), {SetPauseState{}, before}, {Schedule{}, after}}),
            (Situations{Reached::kModelLengthCut, Reached::kDraftsSent, Reached::kDraftsCut}));
}

TEST(SchedulerReach, CountsVictims) {
  const std::vector<Moment> history{
      added("A"), added("B"), {SetPauseState{}, state({running("A", 5, 4), running("B", 5, 4)})}};
  const Observation after =
      with_cached(planned(state({running("A", 5, 5), preempted("B", 5)}), {{"A", 1, true, {}}}),
                  {"A", false, false, 4, 1, {}});
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{}, with_victims(after, {"B"})}),
            Situations{Reached::kPreemptedFCFS});
  const Observation alone = planned(state({preempted("A", 5), preempted("B", 5)}));
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{}, with_victims(alone, {"B", "A"})}),
            (Situations{Reached::kPreemptedFCFS, Reached::kSelfVictim}));
  EXPECT_EQ(
      reached_by(
          plain(),
          two_running() +
              Moment{Schedule{},
                     with_victims(planned(state({running("A", 5, 5), preempted("B", 5)})), {"B"})}),
      (Situations{Reached::kTwoStepsInFlight, Reached::kNothingToCompute, Reached::kPreemptedFCFS,
                  Reached::kPreemptedInFlight}));
}

TEST(SchedulerReach, CountsVictimsThatStoodBefore) {
  Config config = plain();
  config.policy = "priority";
  const auto reached = [&](std::uint32_t num_computed) {
    const Observation before = state({running("A", 5, num_computed), running("B", 5, 4)});
    const Observation after =
        with_cached(planned(state({preempted("A", 5), running("B", 5, 5)}), {{"B", 1, true, {}}}),
                    {"B", false, false, 4, 1, {}});
    return reached_by(config, {added("A"),
                               added("B"),
                               {SetPauseState{}, before},
                               {Schedule{}, with_victims(after, {"A"})}});
  };
  EXPECT_EQ(reached(4), (Situations{Reached::kPreemptedPriority, Reached::kVictimScheduled}));
  EXPECT_EQ(reached(5), (Situations{Reached::kPreemptedPriority, Reached::kVictimShiftsLoop}));
}

TEST(SchedulerReach, CountsWhoComesBack) {
  const std::vector<Moment> history{added("A"), {SetPauseState{}, state({preempted("A", 5)})}};
  const Observation after = planned(state({running("A", 5, 5)}), {{"A", 5, true, {}}});
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{},
                                                 with_cached(after, {"A", true, true, 0, 1, {}})}),
            Situations{Reached::kResumed});
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{},
                                                 with_cached(after, {"A", true, true, 2, 1, {}})}),
            (Situations{Reached::kResumed, Reached::kHitAtResume}));
  EXPECT_EQ(reached_by(plain(), {added("A"),
                                 {SetPauseState{}, state({running("A", 5, 4)})},
                                 {Schedule{}, with_cached(after, {"A", false, true, 4, 1, {}})}}),
            Situations{Reached::kAllTokenIds});
}

TEST(SchedulerReach, CountsAdmissions) {
  const std::vector<Moment> history{
      added("A"), added("B"), {SetPauseState{}, state({waiting("A"), waiting("B")})}};
  Observation after = with_new(planned(state({running("A", 4, 4), running("B", 4, 4)}),
                                       {{"A", 4, true, {}}, {"B", 2, true, {}}}),
                               "B", 2);
  after.common_prefix.emplace() = {1};
  EXPECT_EQ(reached_by(plain(), history + Moment{Schedule{}, after}),
            (Situations{Reached::kCommonPrefix, Reached::kHitAtAdmission}));

  Config config = plain();
  config.policy = "priority";
  config.max_num_seqs = 1;
  after =
      with_new(planned(state({waiting("A"), running("B", 4, 4)}), {{"B", 4, true, {}}}), "B", 0);
  EXPECT_EQ(reached_by(config, history + Moment{Schedule{}, after}),
            (Situations{Reached::kPriorityOvertakes, Reached::kNoRoomToRun}));
}

TEST(SchedulerReach, TellsWhyAdmissionEnded) {
  Observation after = planned(state({waiting("A")}));
  const auto reached = [&](const Config& config) {
    return reached_by(config, {added("A"), {Schedule{}, after}});
  };
  Config config = plain();
  config.enable_chunked_prefill = false;
  config.max_num_batched_tokens = 3;
  EXPECT_EQ(reached(config), Situations{Reached::kBudgetStopsAdmission});
  after.num_empty_blocks = 0;
  EXPECT_EQ(reached(plain()), Situations{Reached::kBlocksStopAdmission});
  config = plain();
  config.long_prefill_token_threshold = 1;
  after.num_empty_blocks = 1;
  EXPECT_EQ(reached(config), Situations{Reached::kGateStopsAdmission});
  config.scheduler_reserve_full_isl = false;
  EXPECT_EQ(reached(config), Situations{Reached::kBlocksStopAdmission});
  after = with_call(planned(state({waiting("A")})),
                    {"get_num_new_matched_tokens", "A", 0, "4 async", {}});
  config = with_connector();
  config.profile = "v0.23";
  EXPECT_EQ(reached(config), Situations{Reached::kReserveStopsAdmission});
  after = planned(state({}));
  after.never_fits.emplace() = "A";
  EXPECT_EQ(reached(plain()), Situations{Reached::kNeverFits});
}

TEST(SchedulerReach, CountsPauses) {
  const auto reached = [](PauseState pause_state, std::vector<RequestState> requests) {
    return reached_by(plain(), {added("A"),
                                {SetPauseState{pause_state}, {}},
                                {Schedule{}, planned(state(std::move(requests)))}});
  };
  EXPECT_EQ(reached(PauseState::kPausedNew, {waiting("A")}), Situations{Reached::kPausedNew});
  EXPECT_EQ(reached(PauseState::kPausedAll, {running("A", 5, 4)}), Situations{Reached::kPausedAll});
  EXPECT_EQ(reached(PauseState::kPausedAll, {waiting("A")}), Situations{});
}

TEST(SchedulerReach, CountsGrammars) {
  const RequestState blocked = state_of("A", RequestStatus::kWaitingForGrammar, 4, 0);
  const std::vector<Moment> history{
      added("A"), added("B"), {SetPauseState{}, state({blocked, running("B", 5, 4)})}};
  const std::vector<ScheduledRequest> scheduled{{"B", 1, true, {}}};
  EXPECT_EQ(
      reached_by(plain(), history + Moment{Schedule{}, planned(state({blocked, running("B", 5, 5)}),
                                                               scheduled)}),
      Situations{Reached::kGrammarSkipped});
  EXPECT_EQ(
      reached_by(plain(), history + Moment{Schedule{},
                                           planned(state({running("A", 4, 4), running("B", 5, 5)}),
                                                   scheduled)}),
      Situations{Reached::kGrammarPromoted});
}

TEST(SchedulerReach, CountsLoads) {
  const Config config = with_connector();
  const std::vector<Moment> history{added("A"), {SetPauseState{}, state({waiting("A")})}};
  EXPECT_EQ(
      reached_by(config,
                 history + Moment{Schedule{},
                                  with_call(planned(state({waiting("A")})),
                                            {"get_num_new_matched_tokens", "A", 0, "again", {}})}),
      (Situations{Reached::kAskAgain}));
  const Observation after =
      with_new(planned(state({running("A", 4, 4)}), {{"A", 2, true, {}}}), "A", 2);
  EXPECT_EQ(
      reached_by(config,
                 history + Moment{Schedule{},
                                  with_call(after, {"update_state_after_alloc", "A", 2, "", {}})}),
      Situations{Reached::kSyncLoad});
  EXPECT_EQ(reached_by(config, history + Moment{Schedule{}, planned(state({loading("A", 4)}))}),
            Situations{Reached::kAsyncLoad});
  RequestState again = loading("A", 4);
  EXPECT_EQ(reached_by(config, {added("A"),
                                {SetPauseState{}, state({again})},
                                {Schedule{}, planned(state({running("A", 4, 4)}))}}),
            (Situations{Reached::kLoadPromoted, Reached::kLastTokenRecomputed}));
  again.num_preemptions = 1;
  again.num_computed_tokens = 2;
  EXPECT_EQ(reached_by(config, {added("A"),
                                {SetPauseState{}, state({again})},
                                {Schedule{}, planned(state({running("A", 4, 4)}))}}),
            (Situations{Reached::kLoadPromoted, Reached::kLoadOfPreempted}));
}

TEST(SchedulerReach, CountsWhatBecomesOfDrafts) {
  const auto reached = [](std::uint32_t num_accepted) {
    Update command;
    command.token = 1;
    command.accepted = num_accepted;
    std::vector<TokenId> tokens(1 + num_accepted, 1);
    return reached_by(
        plain(),
        two_running(2) + Moment{command, told({}, {{"A", tokens, RequestStatus::kRunning, {}}})});
  };
  EXPECT_EQ(reached(0), Situations{Reached::kDraftsRejected});
  EXPECT_EQ(reached(1), Situations{Reached::kDraftsSomeAccepted});
  EXPECT_EQ(reached(2), Situations{Reached::kDraftsAllAccepted});
}

TEST(SchedulerReach, CountsStops) {
  const auto reached = [](std::vector<TokenId> tokens, RequestStatus status,
                          std::optional<TokenId> stop_reason, std::uint32_t num_tokens = 5) {
    Update command;
    command.samples = {{"A", {1, 1}}};
    std::vector<Moment> history{
        added("A"),
        {Schedule{}, planned(state({running("A", num_tokens, num_tokens)}), {{"A", 1, true, {}}})}};
    command.samples.front().tokens.resize(tokens.size());
    const Observation after = state({});
    return reached_by(plain(),
                      history + Moment{command, told(after, {{"A", tokens, status, stop_reason}})});
  };
  EXPECT_EQ(reached({7}, RequestStatus::kFinishedStopped, {}), Situations{Reached::kStoppedByEos});
  EXPECT_EQ(reached({8}, RequestStatus::kFinishedStopped, 8), Situations{Reached::kStoppedByToken});
  EXPECT_EQ(reached({7}, RequestStatus::kRunning, {}), Situations{Reached::kKeptGoing});
  EXPECT_EQ(reached({1}, RequestStatus::kFinishedLengthCapped, {}, 11),
            Situations{Reached::kStoppedByMaxTokens});
  EXPECT_EQ(reached({1}, RequestStatus::kFinishedLengthCapped, {}, 6),
            Situations{Reached::kStoppedByModelLength});
}

TEST(SchedulerReach, CountsStopsWithinDrafts) {
  Update command;
  command.samples = {{"A", {7, 1}}};
  EXPECT_EQ(
      reached_by(plain(),
                 two_running(1) +
                     Moment{command, told({}, {{"A", {7}, RequestStatus::kFinishedStopped, {}}})}),
      (Situations{Reached::kDraftsAllAccepted, Reached::kStopWithinDrafts,
                  Reached::kStoppedByEos}));
}

TEST(SchedulerReach, CountsLateOutputs) {
  const auto reached = [](std::vector<RequestState> before, std::vector<RequestOutput> outputs) {
    const Observation shown = state(std::move(before));
    std::vector<Moment> history = two_running();
    history.push_back({SetPauseState{}, shown});
    outputs.push_back({"B", {1}, RequestStatus::kRunning, {}});
    return reached_by(plain(), history + Moment{Update{}, told(shown, std::move(outputs))});
  };
  const RequestState other = running("B", 5, 5);
  EXPECT_EQ(reached({running("A", 5, 5), other}, {{"A", {1}, RequestStatus::kRunning, {}}}),
            Situations{});
  EXPECT_EQ(reached({running("A", 5, 5), other}, {}), Situations{Reached::kStaleOutput});
  EXPECT_EQ(reached({preempted("A", 5), other}, {{"A", {1}, RequestStatus::kPreempted, {}}}),
            Situations{Reached::kOutputWhilePreempted});
  EXPECT_EQ(reached({preempted("A", 5), other}, {{"A", {8}, RequestStatus::kFinishedStopped, 8}}),
            (Situations{Reached::kStoppedByToken, Reached::kStoppedWhilePreempted}));
  EXPECT_EQ(reached({other}, {}), Situations{Reached::kOutputOfFinished});
  EXPECT_EQ(reached({ended("A"), other}, {}), Situations{Reached::kOutputOfFinished});
}

TEST(SchedulerReach, CountsFailedLoads) {
  Update command;
  command.invalid_blocks = {2};
  const auto reached = [&](std::string_view policy, const Observation& before,
                           const Observation& after) {
    return reached_by(with_connector(policy),
                      {added("A"), added("B"), {Schedule{}, planned(before)}, {command, after}});
  };
  const Observation before = with_blocks(state({loading("A", 4)}), "A", {1, 2});
  EXPECT_EQ(reached("recompute", before, told(with_blocks(state({loading("A", 2)}), "A", {1, 2}))),
            Situations{Reached::kLoadFailedPartly});
  EXPECT_EQ(reached("recompute", before, told(with_blocks(state({loading("A", 0)}), "A", {1, 2}))),
            Situations{Reached::kLoadFailedWholly});
  EXPECT_EQ(reached("fail", before,
                    told(state({ended("A")}), {{"A", {}, RequestStatus::kFinishedError, {}}})),
            Situations{Reached::kLoadFailedForGood});

  const Observation ran = with_key(with_blocks(state({running("A", 5, 4)}), "A", {1, 2}), 2);
  EXPECT_EQ(reached("recompute", ran, told(with_blocks(state({running("A", 5, 2)}), "A", {1, 2}))),
            (Situations{Reached::kRunningCutBack, Reached::kInvalidBlocksEvicted}));
  EXPECT_EQ(reached("fail", ran, told(state({}), {{"A", {}, RequestStatus::kFinishedError, {}}})),
            (Situations{Reached::kRunningFailedForGood, Reached::kInvalidBlocksEvicted}));
  const Observation both = with_blocks(
      with_blocks(state({running("A", 5, 4), running("B", 5, 4)}), "A", {1, 2}), "B", {1, 2});
  EXPECT_EQ(reached("recompute", both, told(state({running("A", 5, 2), running("B", 5, 4)}))),
            (Situations{Reached::kRunningCutBack, Reached::kSharedBlockKept}));
}

TEST(SchedulerReach, CountsHeldRequests) {
  const auto reached = [](const RequestState& before, std::vector<RequestState> after,
                          const Command& command) {
    return reached_by(with_connector(), {added("A"),
                                         {Schedule{}, planned(state({before}))},
                                         {command, told(state(std::move(after)))}});
  };
  Update sent;
  sent.finished_sending = {"A"};
  Update received;
  received.finished_recving = {"A"};
  EXPECT_EQ(reached(running("A", 5, 4), {ended("A")}, FinishRequests{{"A"}}),
            Situations{Reached::kHeld});
  EXPECT_EQ(reached(ended("A"), {}, sent), Situations{Reached::kHeldFreed});
  EXPECT_EQ(reached(ended("A"), {}, received), Situations{Reached::kAbortedLoadFreed});
  EXPECT_EQ(reached(ended("A"), {ended("A")}, FinishAllRequests{}),
            Situations{Reached::kAbortedWhileHeld});
}

TEST(SchedulerReach, CountsAborts) {
  const auto reached = [](std::vector<Moment> history, std::vector<RequestState> after) {
    return reached_by(with_connector(),
                      std::move(history) + Moment{FinishRequests{{"A"}}, state(std::move(after))});
  };
  EXPECT_EQ(reached({added("A"), {SetPauseState{}, state({waiting("A")})}}, {}),
            Situations{Reached::kAbortedWaiting});
  EXPECT_EQ(reached({added("A"), {SetPauseState{}, state({running("A", 5, 4)})}}, {}),
            Situations{});
  EXPECT_EQ(reached(two_running(), {running("B", 5, 5)}), Situations{Reached::kAbortedInFlight});
  EXPECT_EQ(reached(two_running() + Moment{SetPauseState{}, state({preempted("A", 5)})}, {}),
            Situations{Reached::kAbortedPreemptedInFlight});
  std::vector<Moment> history{added("A"), {Schedule{}, planned(state({loading("A", 4)}))}};
  EXPECT_EQ(reached(history, {ended("A")}), Situations{Reached::kAbortedWhileLoading});
  Update received;
  received.finished_recving = {"A"};
  history.push_back({received, told(state({loading("A", 4)}))});
  EXPECT_EQ(reached(history, {}), Situations{Reached::kAbortedAfterLoad});
}

TEST(SchedulerReach, CountsDraftsThatComeIn) {
  RequestState drafting = running("A", 5, 4);
  const auto reached = [&] {
    return reached_by(plain(), {added("A"), {UpdateDraftTokenIds{"A", {5}}, state({drafting})}});
  };
  EXPECT_EQ(reached(), Situations{Reached::kDraftsIgnored});
  drafting.spec_tokens = {5};
  EXPECT_EQ(reached(), Situations{Reached::kDraftsTaken});
}

TEST(SchedulerReach, CountsResets) {
  const auto reached = [](std::vector<Moment> history, ResetPrefixCache command,
                          std::string_view answer, bool success) {
    Observation after = state({preempted("A", 5)});
    after.success.emplace() = success;
    if (!answer.empty()) {
      after = with_call(after, {"reset_cache", "", 0, std::string(answer), {}});
    }
    return reached_by(with_connector(), std::move(history) + Moment{command, after});
  };
  const std::vector<Moment> idle{added("A"), {SetPauseState{}, with_key(state({waiting("A")}), 1)}};
  EXPECT_EQ(reached(idle, {}, "", true), Situations{Reached::kResetDone});
  EXPECT_EQ(reached(idle, {false, true, false}, "done", true),
            (Situations{Reached::kResetDone, Reached::kConnectorReset}));
  const std::vector<Moment> bare{added("A")};
  EXPECT_EQ(reached(bare, {false, true, true}, "failed", false),
            (Situations{Reached::kResetRefused, Reached::kConnectorResetFailed}));
  EXPECT_EQ(reached(two_running(), {true, false, false}, "", true),
            (Situations{Reached::kRunningReset, Reached::kResetInFlight}));
}

}  // namespace
}  // namespace kvfence::engine::scheduler
