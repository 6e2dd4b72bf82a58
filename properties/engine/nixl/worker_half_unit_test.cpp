// Tests the workers' halves of a pair on both sides: single ranks with a scripted transport, step
// by step.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_transport.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence {
namespace {

using Names = std::vector<std::string>;

DisaggregatedSpec spec_of(std::uint32_t producers, std::uint32_t consumers) {
  DisaggregatedSpec spec;
  spec.producer_world_size = producers;
  spec.consumer_world_size = consumers;
  spec.deadline = 30;
  return spec;
}

KVConnectorWorkerOutput run(KVConnectorWorker& worker, const KVConnectorMetadata& metadata) {
  worker.bind_connector_metadata(metadata);
  worker.start_load_kv();
  KVConnectorWorkerOutput out;
  out.finished_sending = {"left over"};
  out.invalid_block_ids = {9};
  worker.get_finished({}, out);
  std::sort(out.invalid_block_ids.begin(), out.invalid_block_ids.end());
  return out;
}

/// Makes the workers of both engines of a side.
struct Makers {
  using Make = std::unique_ptr<KVConnectorWorker> (*)(const DisaggregatedSpec&, std::uint32_t,
                                                      Transport&);
  Make producer;
  Make consumer;
};
using Maker = BySide<Makers>;

constexpr Maker kSides[] = {
    {"reference",
     {reference::make_disaggregated_producer_worker,
      reference::make_disaggregated_consumer_worker}},
    {"optimized",
     {optimized::make_disaggregated_producer_worker,
      optimized::make_disaggregated_consumer_worker}},
};

// ---- Producer ----

class ProducerRank {
 public:
  ProducerRank(Makers::Make make, const DisaggregatedSpec& spec, std::uint32_t rank)
      : worker_(make(spec, rank, transport_)) {}

  /// The requests that a step reports, sorted: their order has no meaning.
  Names step(const ProducerMetadata& metadata = {}) {
    const KVConnectorWorkerOutput out = run(*worker_, metadata);
    EXPECT_TRUE(out.finished_recving.empty());
    EXPECT_TRUE(out.invalid_block_ids.empty());
    Names sent = out.finished_sending;
    std::sort(sent.begin(), sent.end());
    return sent;
  }

  Names expect(const Names& requests) {
    ProducerMetadata metadata;
    metadata.reqs_in_batch = requests;
    return step(metadata);
  }

  Names send(const std::string& request, std::optional<Seconds> expires) {
    ProducerMetadata metadata;
    metadata.reqs_in_batch = {request};
    metadata.reqs_to_send = {{request, expires}};
    return step(metadata);
  }

  void notice(const std::string& request, std::uint32_t rank = 0) {
    deliver({rank, 0, false, {request}});
  }
  void heartbeat(const Names& requests) { deliver({0, 0, true, requests}); }
  void deliver(const Notice& notice) {
    transport_.send_notice(notice);
    EXPECT_TRUE(transport_.deliver(num_notices_++));
  }

  ScriptedTransport& transport() { return transport_; }

 private:
  ScriptedTransport transport_;
  std::unique_ptr<KVConnectorWorker> worker_;
  NoticeId num_notices_ = 0;
};

class ProducerWorkerRules : public ::testing::TestWithParam<Maker> {
 protected:
  static ProducerRank rank_of(const DisaggregatedSpec& spec, std::uint32_t rank = 0) {
    return ProducerRank(GetParam().make.producer, spec, rank);
  }
};
INSTANTIATE_TEST_SUITE_P(Nixl, ProducerWorkerRules, ::testing::ValuesIn(kSides), SideNames());

TEST_P(ProducerWorkerRules, ANoticeEndsAnExpectedRequest) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  EXPECT_TRUE(rank.send("A", 30).empty());
  EXPECT_TRUE(rank.expect({"B"}).empty());
  rank.notice("B");
  rank.notice("A");
  rank.notice("C");
  EXPECT_EQ(rank.step(), (Names{"A", "B"}));
  rank.notice("A");
  rank.transport().advance_clock(40);
  EXPECT_TRUE(rank.step().empty());
}

TEST_P(ProducerWorkerRules, AllItsReadersHaveToSendANotice) {
  ProducerRank rank = rank_of(spec_of(2, 6), 1);
  rank.expect({"A"});
  for (const std::uint32_t reader : {3U, 5U, 3U, 0U}) rank.deliver({reader, 1, false, {"A"}});
  EXPECT_TRUE(rank.step().empty());
  rank.deliver({4, 1, false, {"A"}});
  EXPECT_EQ(rank.step(), Names{"A"});
  // A reused slot has got no notice.
  rank.expect({"B"});
  rank.deliver({4, 1, false, {"B"}});
  EXPECT_TRUE(rank.step().empty());
}

TEST_P(ProducerWorkerRules, KnowsMoreReadersThanAWordHasBits) {
  ProducerRank rank = rank_of(spec_of(1, 130));
  rank.expect({"A", "B"});
  for (std::uint32_t reader = 0; reader < 129; ++reader) rank.notice("A", reader);
  EXPECT_TRUE(rank.step().empty());
  rank.notice("A", 129);
  EXPECT_EQ(rank.step(), Names{"A"});
}

TEST_P(ProducerWorkerRules, WhatWillNotBeReadIsForgotten) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.expect({"A"});
  ProducerMetadata metadata;
  metadata.reqs_not_processed = {"A", "B"};
  rank.step(metadata);
  rank.notice("A");
  EXPECT_TRUE(rank.step().empty());
}

TEST_P(ProducerWorkerRules, WhatExpiresIsOverWhereverItStands) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.send("A", 40);
  rank.send("B", 20);
  rank.send("C", 30);
  rank.send("D", std::nullopt);
  rank.transport().advance_clock(19);
  EXPECT_TRUE(rank.step().empty());
  rank.transport().advance_clock(1);
  EXPECT_EQ(rank.step(), Names{"B"});
  rank.transport().advance_clock(100);
  EXPECT_EQ(rank.step(), (Names{"A", "C"}));
  rank.notice("D");
  EXPECT_EQ(rank.step(), Names{"D"});
}

TEST_P(ProducerWorkerRules, WhatIsOverIsClosed) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.send("A", 10);
  rank.send("B", 40);
  rank.transport().listen(0);
  rank.transport().advance_clock(10);
  for (const char* const request : {"A", "B"}) {
    rank.transport().read({0, 0, "R", request, {1}, {2}});
  }
  EXPECT_EQ(rank.step(), Names{"A"});
  EXPECT_EQ(rank.transport().reads().at(0).progress, TransferProgress::kFailed);
  EXPECT_EQ(rank.transport().reads().at(1).progress, TransferProgress::kSubmitted);
  rank.notice("B");
  EXPECT_EQ(rank.step(), Names{"B"});
  EXPECT_EQ(rank.transport().reads().at(1).progress, TransferProgress::kFailed);
}

TEST_P(ProducerWorkerRules, ANoticeAtTheDeadlineFinishesOnce) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.send("A", 30);
  rank.notice("A");
  rank.transport().advance_clock(30);
  EXPECT_EQ(rank.step(), Names{"A"});
  EXPECT_TRUE(rank.step().empty());
}

TEST_P(ProducerWorkerRules, ReadersMayBeFasterThanTheProducer) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.expect({"A"});
  rank.notice("A");
  EXPECT_EQ(rank.step(), Names{"A"});
  ProducerMetadata metadata;
  metadata.reqs_to_send = {{"A", 30}};
  rank.step(metadata);
  rank.transport().advance_clock(60);
  EXPECT_TRUE(rank.step().empty());
}

TEST_P(ProducerWorkerRules, AHeartbeatProlongsALease) {
  ProducerRank rank = rank_of(spec_of(1, 1));  // by 20 seconds
  rank.send("A", 30);
  rank.send("B", 31);
  rank.send("C", 30);
  rank.expect({"D"});
  rank.transport().advance_clock(5);
  rank.heartbeat({"A"});  // 25 is not later
  EXPECT_TRUE(rank.step().empty());
  rank.transport().advance_clock(25);
  rank.heartbeat({"A", "D", "E"});  // before the deadlines are checked
  EXPECT_EQ(rank.step(), Names{"C"});
  rank.transport().advance_clock(19);
  EXPECT_EQ(rank.step(), Names{"B"});
  rank.transport().advance_clock(1);
  EXPECT_EQ(rank.step(), Names{"A"});
}

TEST_P(ProducerWorkerRules, AHeartbeatGivesNoDeadline) {
  ProducerRank rank = rank_of(spec_of(1, 1));
  rank.expect({"A"});
  rank.heartbeat({"A"});
  rank.step();
  rank.transport().advance_clock(100);
  EXPECT_TRUE(rank.step().empty());
}

// ---- Consumer ----

class ConsumerRank {
 public:
  ConsumerRank(Makers::Make make, const DisaggregatedSpec& spec, std::uint32_t rank)
      : worker_(make(spec, rank, transport_)) {
    for (std::uint32_t source = 0; source < 4; ++source) transport_.listen(source);
  }

  KVConnectorWorkerOutput step(const ConsumerMetadata& metadata = {}) {
    const KVConnectorWorkerOutput out = run(*worker_, metadata);
    EXPECT_TRUE(out.finished_sending.empty());
    return out;
  }

  KVConnectorWorkerOutput receive(std::vector<ConsumerMetadata::Receive> list) {
    ConsumerMetadata metadata;
    metadata.reqs_to_recv = std::move(list);
    return step(metadata);
  }

  void end(ReadId read, bool success = true) {
    EXPECT_TRUE(transport_.advance(
        read, success ? TransferProgress::kFinished : TransferProgress::kFailed));
  }

  ScriptedTransport& transport() { return transport_; }

 private:
  ScriptedTransport transport_;
  std::unique_ptr<KVConnectorWorker> worker_;
};

class ConsumerWorkerRules : public ::testing::TestWithParam<Maker> {
 protected:
  static ConsumerRank rank_of(const DisaggregatedSpec& spec, std::uint32_t rank = 0) {
    return ConsumerRank(GetParam().make.consumer, spec, rank);
  }
};
INSTANTIATE_TEST_SUITE_P(Nixl, ConsumerWorkerRules, ::testing::ValuesIn(kSides), SideNames());

TEST_P(ConsumerWorkerRules, ReadsFromItsShareOfTheProducer) {
  using Ranks = std::vector<std::uint32_t>;
  const auto remote_ranks = [](std::uint32_t producers, std::uint32_t consumers,
                               std::uint32_t number) {
    ConsumerRank rank = rank_of(spec_of(producers, consumers), number);
    rank.receive({{"B", "A", {1}, {2}}});
    Ranks ranks;
    for (const ReadState& read : rank.transport().reads()) ranks.push_back(read.remote_rank);
    return ranks;
  };
  EXPECT_EQ(remote_ranks(2, 2, 1), Ranks{1});
  EXPECT_EQ(remote_ranks(1, 4, 3), Ranks{0});
  EXPECT_EQ(remote_ranks(2, 4, 1), Ranks{0});
  EXPECT_EQ(remote_ranks(2, 4, 2), Ranks{1});
  EXPECT_EQ(remote_ranks(4, 2, 1), (Ranks{2, 3}));
  EXPECT_EQ(remote_ranks(3, 1, 0), (Ranks{0, 1, 2}));
}

TEST_P(ConsumerWorkerRules, ReadsFromEachOfItsProducersRanks) {
  ConsumerRank rank = rank_of(spec_of(4, 2), 1);
  rank.receive({{"B", "A", {1, 2}, {11, 12}}});
  ASSERT_EQ(rank.transport().reads().size(), 2U);
  EXPECT_EQ(ReadSpec(rank.transport().reads()[0]), (ReadSpec{1, 2, "B", "A", {1, 2}, {11, 12}}));
  EXPECT_EQ(ReadSpec(rank.transport().reads()[1]), (ReadSpec{1, 3, "B", "A", {1, 2}, {11, 12}}));
  rank.end(1);
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput());
  rank.end(0);
  EXPECT_EQ(rank.step().finished_recving, Names{"B"});
  EXPECT_EQ(rank.step(), KVConnectorWorkerOutput());
}

TEST_P(ConsumerWorkerRules, WithoutBlocksItNotifiesEachOfItsProducersRanks) {
  ConsumerRank rank = rank_of(spec_of(4, 2), 1);
  EXPECT_EQ(rank.receive({{"B", "A", {}, {}}}), KVConnectorWorkerOutput());
  EXPECT_TRUE(rank.transport().reads().empty());
  ASSERT_EQ(rank.transport().notices().size(), 2U);
  EXPECT_EQ(Notice(rank.transport().notices()[0]), (Notice{1, 2, false, {"A"}}));
  EXPECT_EQ(Notice(rank.transport().notices()[1]), (Notice{1, 3, false, {"A"}}));
}

TEST_P(ConsumerWorkerRules, HeartbeatsComeAfterWhatIsReceived) {
  ConsumerRank rank = rank_of(spec_of(2, 1));
  ConsumerMetadata metadata;
  metadata.reqs_to_recv = {{"B", "A", {}, {}}};
  metadata.heartbeats = {"X", "Y"};
  rank.step(metadata);
  ASSERT_EQ(rank.transport().notices().size(), 4U);
  EXPECT_EQ(Notice(rank.transport().notices()[2]), (Notice{0, 0, true, {"X", "Y"}}));
  EXPECT_EQ(Notice(rank.transport().notices()[3]), (Notice{0, 1, true, {"X", "Y"}}));
  rank.receive({{"C", "A", {}, {}}});
  EXPECT_EQ(Notice(rank.transport().notices().at(4)), (Notice{0, 0, false, {"A"}}));
}

TEST_P(ConsumerWorkerRules, AFailedReadMakesBlocksInvalidAndTheLastOneEndsTheRequest) {
  ConsumerRank rank = rank_of(spec_of(2, 1));
  rank.receive({{"B", "A", {4, 3}, {11, 12}}, {"C", "A", {5}, {11}}});
  rank.end(0, /*success=*/false);
  KVConnectorWorkerOutput out = rank.step();
  EXPECT_TRUE(out.finished_recving.empty());
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{3, 4}));
  rank.end(2, /*success=*/false);
  rank.end(3, /*success=*/false);
  rank.end(1);
  out = rank.step();
  EXPECT_EQ(out.finished_recving, (Names{"C", "B"}));
  EXPECT_EQ(out.invalid_block_ids, std::vector<BlockId>{5});  // once
  // A reused slot has not failed.
  rank.receive({{"D", "A", {6}, {11}}});
  rank.end(4);
  rank.end(5);
  out = rank.step();
  EXPECT_EQ(out.finished_recving, Names{"D"});
  EXPECT_TRUE(out.invalid_block_ids.empty());
}

TEST_P(ConsumerWorkerRules, AReadThatFailsAtItsStartEndsInTheSameStep) {
  ConsumerRank rank = rank_of(spec_of(1, 1));
  rank.transport().close(0, "A");
  const KVConnectorWorkerOutput out = rank.receive({{"B", "A", {1}, {11}}});
  EXPECT_EQ(out.finished_recving, Names{"B"});
  EXPECT_EQ(out.invalid_block_ids, std::vector<BlockId>{1});
}

}  // namespace
}  // namespace kvfence
