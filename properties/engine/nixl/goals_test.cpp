#include "properties/engine/nixl/goals.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/goals_test_support.h"

namespace kvfence::engine::nixl {
namespace {

using Situations = std::vector<Reached>;
using Names = std::vector<std::string>;
using Blocks = std::vector<BlockId>;

constexpr EngineRole kProducer = EngineRole::kProducer;
constexpr EngineRole kConsumer = EngineRole::kConsumer;

/// A pair as it is seen behind a command that answers nothing.
Observation shown(std::vector<ReadState> reads = {}, std::vector<NoticeState> notices = {}) {
  Observation observation;
  observation.reads.emplace() = std::move(reads);
  observation.notices.emplace() = std::move(notices);
  for (const EngineRole role : kEngineRoles) {
    observation.of(role).requests.emplace();
    observation.of(role).keys.emplace();
  }
  return observation;
}

/// Behind a step that was planned and tells nothing.
Observation planned(EngineRole role, Observation observation = shown()) {
  SchedulerObservation& own = observation.of(role);
  own.scheduled.emplace();
  own.new_reqs.emplace();
  own.cached_reqs.emplace();
  own.preempted.emplace();
  if (role == kProducer) {
    observation.reqs_in_batch.emplace();
    observation.reqs_not_processed.emplace();
    observation.reqs_to_send.emplace();
  } else {
    observation.reqs_to_recv.emplace();
    observation.heartbeats.emplace();
  }
  return observation;
}

/// Behind a step that came back and reports nothing.
Observation updated(EngineRole role, Observation observation = shown()) {
  observation.of(role).outputs.emplace();
  observation.finished_sending.emplace();
  observation.finished_recving.emplace();
  observation.invalid_blocks.emplace();
  if (role == kProducer) observation.finished_prefills.emplace();
  return observation;
}

Schedule schedule(EngineRole role) { return {.engine = role}; }
Update update(EngineRole role) {
  Update command;
  command.engine = role;
  return command;
}

ReadState read(ReadId number, std::string request, std::string remote_request,
               TransferProgress progress = TransferProgress::kSubmitted) {
  ReadState shown_read;
  shown_read.read = number;
  shown_read.request = std::move(request);
  shown_read.remote_request = std::move(remote_request);
  shown_read.local_blocks = {1};
  shown_read.remote_blocks = {1};
  shown_read.progress = progress;
  return shown_read;
}

NoticeState notice(NoticeId number, std::string request, bool delivered = true) {
  NoticeState shown_notice;
  shown_notice.notice = number;
  shown_notice.requests = {std::move(request)};
  shown_notice.delivered = delivered;
  return shown_notice;
}

Receive receive(std::string request, std::string remote_request, Blocks blocks) {
  return {std::move(request), std::move(remote_request), blocks, blocks};
}

Observation with_requests(EngineRole role, std::vector<RequestState> states,
                          Observation observation = shown()) {
  observation.of(role).requests.emplace() = std::move(states);
  return observation;
}

RequestState state(std::string name, RequestStatus status) {
  RequestState request;
  request.id = std::move(name);
  request.status = status;
  return request;
}

Config pair_config() {
  Config config;
  make_assembly(Assembly::kPrefillDecode, config);
  return config;
}

/// A pair with blocks of 4 tokens; what its commands reach is told command by command.
class Story {
 public:
  explicit Story(Config config = pair_config()) : world_(HashConfig()) {
    config.groups = {{.kind = KVCacheSpecKind::kFullAttention, .block_size = 4}};
    reach_.start(config);
  }

  Situations operator()(const Command& command, Observation after) {
    return (*this)(command, before_, std::move(after));
  }

  Situations operator()(const Command& command, const Observation& before, Observation after) {
    const Reach reach_before = reach_;
    world_.apply(command);
    reach_.count(command, before, after, world_);
    before_ = std::move(after);
    return reached_between(reach_before, reach_);
  }

  /// Request A of 8 tokens is finished and held, and its step is back; the router knows.
  Story& prefill(std::optional<Seconds> expires = 30, std::string name = "A") {
    AddRequest added;
    added.id = name;
    added.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    added.do_remote_decode = true;
    (*this)(added, shown());
    (*this)(schedule(kProducer), planned(kProducer));
    Observation ended = updated(kProducer);
    ended.of(kProducer).outputs.emplace().push_back(
        {name, {1}, RequestStatus::kFinishedLengthCapped, {}});
    ended.finished_prefills.emplace().push_back({name, {1, 2}});
    (*this)(update(kProducer), ended);
    Observation told = planned(kProducer);
    told.reqs_to_send.emplace().push_back({name, expires});
    (*this)(schedule(kProducer), told);
    (*this)(update(kProducer), updated(kProducer));
    return *this;
  }

  Situations hand_over(std::string request, std::string id) {
    HandOver command;
    command.request = std::move(request);
    command.id = std::move(id);
    return (*this)(command, shown());
  }

  /// The consumer plans to read it, and the reads start.
  Situations receives(Receive wanted, Observation after = shown()) {
    after = planned(kConsumer, std::move(after));
    after.reqs_to_recv.emplace().push_back(std::move(wanted));
    Situations reached = (*this)(schedule(kConsumer), after);
    (*this)(update(kConsumer), updated(kConsumer));
    return reached;
  }

  /// The producer's next step, with what it sees of the transport and what it gives back.
  Situations serves(const Observation& before, Names sent, Seconds now = 0) {
    (*this)(schedule(kProducer), planned(kProducer));
    Observation after = updated(kProducer);
    after.finished_sending.emplace() = std::move(sent);
    after.now.emplace() = now;
    return (*this)(update(kProducer), before, after);
  }

  /// The consumer's next step, with what it reports.
  Situations reports(const Observation& before, Names received, Blocks invalid = {}) {
    (*this)(schedule(kConsumer), planned(kConsumer));
    Observation after = updated(kConsumer);
    after.finished_recving.emplace() = std::move(received);
    after.invalid_blocks.emplace() = std::move(invalid);
    return (*this)(update(kConsumer), before, after);
  }

 private:
  Reach reach_;
  World world_;
  Observation before_;
};

TEST(NixlReach, NamesAreUniqueAndEveryGoalIsPositive) { expect_named_once_and_positive(Reach()); }

TEST(NixlReach, CountsReads) {
  Story run;
  run.prefill();
  EXPECT_EQ(run.hand_over("A", "B"), Situations{});
  EXPECT_EQ(run.receives(receive("B", "A", {1, 2})), Situations{Reached::kRead});
  EXPECT_EQ(run.hand_over("A", "C"), Situations{Reached::kHandedOverTwice});
  EXPECT_EQ(run.receives(receive("C", "A", {3}), shown({read(0, "B", "A")})),
            (Situations{Reached::kRead, Reached::kReadBehindHit, Reached::kReadTwiceAtOnce}));
  EXPECT_EQ(run.hand_over("A", "D"), Situations{Reached::kHandedOverTwice});
  EXPECT_EQ(run.receives(receive("D", "A", {})), Situations{Reached::kAbortBeforeRead});
  Observation admitted = planned(kConsumer);
  admitted.of(kConsumer).scheduled.emplace().push_back({"E", 1, true, {}});
  admitted.reqs_to_recv.emplace().push_back(receive("E", "A", {}));
  run.hand_over("A", "E");
  EXPECT_EQ(run(schedule(kConsumer), admitted), Situations{Reached::kEmptyRead});
}

TEST(NixlReach, TellsRanksApart) {
  Config config = pair_config();
  config.consumer_ranks = 2;
  Story several_readers(config);
  several_readers.prefill().hand_over("A", "B");
  EXPECT_EQ(several_readers.receives(receive("B", "A", {1, 2})),
            (Situations{Reached::kRead, Reached::kSeveralReaders}));
  std::swap(config.consumer_ranks, config.ranks);
  Story several_sources(config);
  several_sources.prefill().hand_over("A", "B");
  EXPECT_EQ(several_sources.receives(receive("B", "A", {1, 2})),
            (Situations{Reached::kRead, Reached::kSeveralSources}));
}

TEST(NixlReach, CountsEndsOfReads) {
  Story run;
  run.prefill().hand_over("A", "B");
  run.receives(receive("B", "A", {1, 2}));
  const ReadState other = read(1, "B", "A");
  const ReadState done = read(1, "B", "A", TransferProgress::kFinished);
  EXPECT_EQ(run(AdvanceRead{0, TransferProgress::kPart}, shown({read(0, "B", "A")}), shown()),
            Situations{Reached::kPartOfRead});
  EXPECT_EQ(run(AdvanceRead{0}, shown({read(0, "B", "A"), other}), shown()),
            Situations{Reached::kLateRank});
  EXPECT_EQ(
      run(AdvanceRead{0, TransferProgress::kFailed}, shown({read(0, "B", "A"), done}), shown()),
      (Situations{Reached::kReadFailed, Reached::kReadFailedOnARank}));
  EXPECT_EQ(run(AdvanceRead{0}, shown({read(0, "B", "A"), done}), shown()), Situations{});
}

TEST(NixlReach, CountsWhatIsGivenBack) {
  Story run;
  run.prefill().prefill(30, "X").hand_over("A", "B");
  EXPECT_EQ(run.serves(shown({}, {notice(0, "A")}), {"A"}),
            (Situations{Reached::kSent, Reached::kSentWhileOthersAreHeld}));
  EXPECT_EQ(run.serves(shown({}, {notice(1, "A")}), {}), Situations{Reached::kLateNotice});
  EXPECT_EQ(run.serves(shown(), {"X"}, 30),
            (Situations{Reached::kExpired, Reached::kExpiredUnread}));
}

TEST(NixlReach, CountsDeadlines) {
  const auto at_deadline = [](Observation before) {
    Story run;
    run.prefill().hand_over("A", "B");
    return run.serves(before, {"A"}, 30);
  };
  EXPECT_EQ(at_deadline(shown()), Situations{Reached::kExpired});
  EXPECT_EQ(at_deadline(shown({read(0, "B", "A")})),
            (Situations{Reached::kExpired, Reached::kExpiredUnderRead}));
  EXPECT_EQ(at_deadline(shown({}, {notice(0, "A")})),
            (Situations{Reached::kExpired, Reached::kNoticeAtDeadline}));
  EXPECT_EQ(at_deadline(shown({}, {notice(0, "A", /*delivered=*/false)})),
            Situations{Reached::kExpired});
}

TEST(NixlReach, CountsLeases) {
  Story run;
  run.prefill().prefill(20, "X").hand_over("A", "B");
  Observation beat = planned(kConsumer);
  beat.heartbeats.emplace() = {"A"};
  EXPECT_EQ(run(schedule(kConsumer), beat), Situations{Reached::kHeartbeat});
  run(update(kConsumer), updated(kConsumer));
  EXPECT_EQ(run.serves(shown(), {"X"}, 30),
            (Situations{Reached::kExpired, Reached::kExpiredUnread, Reached::kLeaseRenewed,
                        Reached::kRenewedBesideExpired}));
  EXPECT_EQ(run.serves(shown(), {}, 31), Situations{});
  EXPECT_EQ(run.serves(shown(), {"A"}, 40),
            (Situations{Reached::kExpired, Reached::kRenewedThenExpired}));
  beat.heartbeats.emplace() = {"A", "X"};
  EXPECT_EQ(run(schedule(kConsumer), beat),
            (Situations{Reached::kHeartbeat, Reached::kHeartbeatOfSeveral}));
}

TEST(NixlReach, CountsNoticesThatAreLostOrComeTwice) {
  Story run;
  run.prefill().hand_over("A", "B");
  const Observation sent = shown({}, {notice(0, "A", /*delivered=*/false)});
  EXPECT_EQ(run(LoseNotice{0}, sent, shown()), Situations{Reached::kNoticeLost});
  EXPECT_EQ(run.serves(shown(), {"A"}, 30),
            (Situations{Reached::kExpired, Reached::kLostThenExpired}));
  Config config = pair_config();
  config.edit_connector<Record>().deadline = 0;
  Story for_ever(config);
  for_ever.prefill(std::nullopt).hand_over("A", "B");
  EXPECT_EQ(for_ever(LoseNotice{0}, sent, shown()),
            (Situations{Reached::kNoticeLost, Reached::kLostForEver}));
  Story twice;
  twice.prefill().hand_over("A", "B");
  EXPECT_EQ(twice(RepeatNotice{0}, shown()), Situations{Reached::kNoticeRepeated});
  const Observation both = shown({}, {notice(0, "A"), notice(1, "A")});
  EXPECT_EQ(twice.serves(both, {}), Situations{Reached::kRepeatedWhileHeld});
  EXPECT_EQ(twice.serves(both, {"A"}), (Situations{Reached::kSent, Reached::kRepeatedBehindEnd}));
}

TEST(NixlReach, CountsTheReadersThatAreFaster) {
  Story run;
  AddRequest added;
  added.id = "A";
  added.tokens = {1};
  added.do_remote_decode = true;
  run(added, shown());
  run(schedule(kProducer), planned(kProducer));
  EXPECT_EQ(run(schedule(kProducer), planned(kProducer)), Situations{Reached::kTwoStepsInFlight});
  Observation ended = updated(kProducer);
  ended.finished_prefills.emplace().push_back({"A", {1}});
  run(update(kProducer), ended);
  run.hand_over("A", "B");
  Observation sent = updated(kProducer);
  sent.finished_sending.emplace() = {"A"};
  EXPECT_EQ(run(update(kProducer), shown({}, {notice(0, "A")}), sent),
            (Situations{Reached::kSent, Reached::kReaderBeforeProducer}));
}

TEST(NixlReach, CountsFailures) {
  Story run;
  run.prefill().hand_over("A", "B");
  run.receives(receive("B", "A", {1, 2}));
  EXPECT_EQ(run.reports(shown({read(0, "B", "A", TransferProgress::kFailed)}), {"B"}, {1, 2}),
            Situations{});
  Observation goes_on = planned(kConsumer);
  goes_on.of(kConsumer).new_reqs.emplace().push_back({"B", 0, {}});
  EXPECT_EQ(run(schedule(kConsumer), goes_on), Situations{Reached::kFailedRecomputed});
  run(update(kConsumer), updated(kConsumer));
  run.hand_over("A", "C");
  run.receives(receive("C", "A", {3}));
  EXPECT_EQ(run.reports(shown({read(1, "C", "A", TransferProgress::kFailed)}), {"C"}, {3}),
            Situations{Reached::kFailedBehindHit});
  run.serves(shown(), {"A"}, 30);
  run.hand_over("A", "D");
  run.receives(receive("D", "A", {4, 5}));
  EXPECT_EQ(run.reports(shown(), {"D"}, {4, 5}), Situations{Reached::kReadBehindExpiry});
}

TEST(NixlReach, CountsEndsFromOutside) {
  Story run;
  run.prefill().hand_over("A", "B");
  run.receives(receive("B", "A", {1, 2}));
  const auto ends = [&](EngineRole role, std::string name, RequestStatus status,
                        std::vector<ReadState> reads = {}) {
    FinishRequests command;
    command.engine = role;
    command.requests = {name};
    return run(command, with_requests(role, {state(name, status)}, shown(std::move(reads))),
               shown());
  };
  EXPECT_EQ(ends(kProducer, "A", RequestStatus::kFinishedLengthCapped),
            Situations{Reached::kAbortWhileHeld});
  EXPECT_EQ(ends(kProducer, "A", RequestStatus::kRunning), Situations{Reached::kAbortAtProducer});
  EXPECT_EQ(ends(kProducer, "A", RequestStatus::kWaiting),
            Situations{Reached::kAbortAtProducerWaiting});
  EXPECT_EQ(ends(kConsumer, "B", RequestStatus::kWaitingForRemoteKVs, {read(0, "B", "A")}),
            Situations{Reached::kAbortWhileReading});
  const Observation ended = with_requests(kConsumer, {state("B", RequestStatus::kFinishedAborted)},
                                          shown({read(0, "B", "A", TransferProgress::kFinished)}));
  EXPECT_EQ(run.reports(ended, {"B"}), Situations{Reached::kAbortedReadFreed});
  EXPECT_EQ(ends(kConsumer, "B", RequestStatus::kWaitingForRemoteKVs),
            Situations{Reached::kAbortBehindRead});
}

TEST(NixlReach, CountsHowRequestsOfTheProducerEnd) {
  const auto ends = [](RequestStatus status, bool is_told, std::vector<TokenId> tokens) {
    Story run;
    AddRequest added;
    added.id = "A";
    added.do_remote_decode = true;
    run(added, shown());
    run(schedule(kProducer), planned(kProducer));
    Observation after = updated(kProducer);
    after.of(kProducer).outputs.emplace().push_back({"A", std::move(tokens), status, {}});
    if (is_told) after.finished_prefills.emplace().push_back({"A", {1}});
    return run(update(kProducer), after);
  };
  EXPECT_EQ(ends(RequestStatus::kFinishedStopped, true, {1}), Situations{Reached::kStoppedSent});
  EXPECT_EQ(ends(RequestStatus::kFinishedStopped, false, {1}),
            Situations{Reached::kStoppedNotSent});
  EXPECT_EQ(ends(RequestStatus::kFinishedLengthCapped, true, {1, 2}),
            Situations{Reached::kDecodedAtProducer});
  EXPECT_EQ(ends(RequestStatus::kFinishedLengthCapped, false, {1}),
            Situations{Reached::kFinishedWithoutBlocks});
}

TEST(NixlReach, CountsPreemptionsAndLocalRequests) {
  Story run;
  run.prefill().hand_over("A", "B");
  run.receives(receive("B", "A", {1, 2}));
  Observation after = planned(kConsumer);
  after.of(kConsumer).preempted.emplace() = {"B"};
  EXPECT_EQ(run(schedule(kConsumer), after), Situations{Reached::kPreemptedConsumer});
  run(update(kConsumer), updated(kConsumer));
  after = planned(kConsumer, shown({read(0, "B", "A")}));
  after.of(kConsumer).new_reqs.emplace().push_back({"C", 0, {}});
  EXPECT_EQ(run(schedule(kConsumer), after), Situations{Reached::kLocalBesideRemote});
  after = planned(kProducer);
  after.of(kProducer).preempted.emplace() = {"A"};
  EXPECT_EQ(run(schedule(kProducer), after), Situations{Reached::kPreemptedProducer});
}

TEST(NixlReach, CountsResets) {
  Observation before = shown();
  before.of(kConsumer).keys.emplace().resize(1);
  before.of(kConsumer).keys.emplace().front().assign("key");
  Observation after = shown();
  after.of(kConsumer).success.emplace() = true;
  ResetPrefixCache command;
  command.engine = kConsumer;
  EXPECT_EQ(Story()(command, before, after), Situations{Reached::kResetDone});
  EXPECT_EQ(Story()(command, shown(), after), Situations{});
  after.of(kConsumer).success.emplace() = false;
  EXPECT_EQ(Story()(command, before, after), Situations{Reached::kResetRefused});
}

TEST(NixlReach, CountsRefusalsByTheirCode) {
  for (const auto& [code, goal] :
       {std::pair{ErrorCode::kNotFinished, Reached::kErrorNotFinished},
        std::pair{ErrorCode::kUnknownJob, Reached::kErrorUnknownJob},
        std::pair{ErrorCode::kNotInConfig, Reached::kErrorNotInConfig}}) {
    Observation refused = shown();
    refused.error = code;
    EXPECT_EQ(Story()(AdvanceRead{}, refused), Situations{goal});
  }
}

}  // namespace
}  // namespace kvfence::engine::nixl
