// The workers' halves by themselves, over a scripted transport.
#include "reference/connectors/disaggregated/disaggregated_worker.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scripted/scripted_transport.h"

namespace kvfence::reference {
namespace {

using Names = std::vector<std::string>;

DisaggregatedSpec spec_of(std::uint32_t producers, std::uint32_t consumers) {
  DisaggregatedSpec spec;
  spec.producer_world_size = producers;
  spec.consumer_world_size = consumers;
  spec.deadline = 30;
  return spec;
}

KVConnectorWorkerOutput finished(DisaggregatedWorker& worker, Transport& transport) {
  KVConnectorWorkerOutput out;
  worker.get_finished(transport, out);
  return out;
}

/// All ranks of the producer can be read from.
ScriptedTransport listening() {
  ScriptedTransport transport;
  for (std::uint32_t rank = 0; rank < 4; ++rank) transport.listen(rank);
  return transport;
}

/// From a consumer's rank to rank 0 of the producer.
void tell(ScriptedTransport& transport, std::uint32_t rank, const Names& requests,
          bool is_heartbeat = false) {
  transport.send_notice({rank, 0, is_heartbeat, requests});
  EXPECT_TRUE(transport.deliver(transport.notices().back().number));
}

ProducerMetadata sends(const std::vector<ProducerMetadata::Send>& all) {
  ProducerMetadata metadata;
  for (const ProducerMetadata::Send& send : all) metadata.reqs_in_batch.push_back(send.request);
  metadata.reqs_to_send = all;
  return metadata;
}

TEST(DisaggregatedProducerWorker, WaitsForEachRankThatReads) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(1, 2), 0);
  worker.start_load_kv(sends({{"A", 30}}), transport);
  tell(transport, 1, {"A"});
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
  tell(transport, 1, {"A"});
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
  tell(transport, 0, {"A"});
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"A"});
  tell(transport, 0, {"A"});
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
}

TEST(DisaggregatedProducerWorker, OneReaderIsEnoughWithFewerConsumers) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(4, 2), 0);
  worker.start_load_kv(sends({{"A", 30}}), transport);
  tell(transport, 0, {"A"});
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"A"});
}

TEST(DisaggregatedProducerWorker, GivesBackWhatExpiredWhereverItStands) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(1, 1), 0);
  worker.start_load_kv(sends({{"A", 40}, {"B", 30}, {"C", std::nullopt}}), transport);
  transport.advance_clock(29);
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
  transport.advance_clock(1);
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"B"});
  transport.advance_clock(100);
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"A"});
}

TEST(DisaggregatedProducerWorker, AHeartbeatExtendsALeaseAndNeverShortensIt) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(1, 1), 0);
  worker.start_load_kv(sends({{"A", 30}, {"B", std::nullopt}}), transport);
  tell(transport, 0, {"A", "B", "unknown"}, /*is_heartbeat=*/true);
  finished(worker, transport);
  transport.advance_clock(20);
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
  tell(transport, 0, {"A"}, /*is_heartbeat=*/true);
  finished(worker, transport);
  transport.advance_clock(19);
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
  transport.advance_clock(1);
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"A"});
}

TEST(DisaggregatedProducerWorker, ForgetsWhatIsNotProcessed) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(1, 1), 0);
  ProducerMetadata metadata;
  metadata.reqs_in_batch = {"A"};
  worker.start_load_kv(metadata, transport);
  metadata = {};
  metadata.reqs_not_processed = {"A"};
  worker.start_load_kv(metadata, transport);
  tell(transport, 0, {"A"});
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
}

TEST(DisaggregatedProducerWorker, ANoticeMayComeBeforeTheDeadlineIsTold) {
  ScriptedTransport transport = listening();
  DisaggregatedProducerWorker worker(spec_of(1, 1), 0);
  ProducerMetadata metadata;
  metadata.reqs_in_batch = {"A"};
  worker.start_load_kv(metadata, transport);
  tell(transport, 0, {"A"});
  EXPECT_EQ(finished(worker, transport).finished_sending, Names{"A"});
  metadata = {};
  metadata.reqs_to_send = {{"A", 30}};
  worker.start_load_kv(metadata, transport);
  transport.advance_clock(60);
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
}

ConsumerMetadata receives(std::vector<BlockId> local, std::vector<BlockId> remote) {
  ConsumerMetadata metadata;
  metadata.reqs_to_recv.push_back({"B", "A", std::move(local), std::move(remote)});
  return metadata;
}

/// Whom a rank reads from.
std::vector<std::uint32_t> remote_ranks(std::uint32_t producers, std::uint32_t consumers,
                                        std::uint32_t rank) {
  ScriptedTransport transport = listening();
  DisaggregatedConsumerWorker worker(spec_of(producers, consumers), rank);
  worker.start_load_kv(receives({1}, {2}), transport);
  std::vector<std::uint32_t> ranks;
  for (const ScriptedTransport::Read& read : transport.reads()) {
    EXPECT_EQ(read.spec.rank, rank);
    ranks.push_back(read.spec.remote_rank);
  }
  return ranks;
}

TEST(DisaggregatedConsumerWorker, ReadsFromItsShareOfTheProducer) {
  using Ranks = std::vector<std::uint32_t>;
  EXPECT_EQ(remote_ranks(2, 2, 1), Ranks{1});
  EXPECT_EQ(remote_ranks(1, 4, 3), Ranks{0});
  EXPECT_EQ(remote_ranks(2, 4, 1), Ranks{0});
  EXPECT_EQ(remote_ranks(2, 4, 2), Ranks{1});
  EXPECT_EQ(remote_ranks(4, 2, 1), (Ranks{2, 3}));
  EXPECT_EQ(remote_ranks(3, 1, 0), (Ranks{0, 1, 2}));
}

TEST(DisaggregatedConsumerWorker, OnlyTellsWhereThereIsNothingToRead) {
  ScriptedTransport transport = listening();
  DisaggregatedConsumerWorker worker(spec_of(2, 1), 0);
  worker.start_load_kv(receives({}, {}), transport);
  EXPECT_TRUE(transport.reads().empty());
  ASSERT_EQ(transport.notices().size(), 2u);
  EXPECT_EQ(transport.notices()[0].notice, (Notice{0, 0, false, {"A"}}));
  EXPECT_EQ(transport.notices()[1].notice, (Notice{0, 1, false, {"A"}}));
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
}

TEST(DisaggregatedConsumerWorker, ReportsARequestWhenItsLastReadEnded) {
  ScriptedTransport transport = listening();
  DisaggregatedConsumerWorker worker(spec_of(2, 1), 0);
  worker.start_load_kv(receives({1, 2}, {5, 6}), transport);
  transport.advance(0, TransferProgress::kFailed);
  KVConnectorWorkerOutput out = finished(worker, transport);
  EXPECT_TRUE(out.finished_recving.empty());
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{1, 2}));
  transport.advance(1, TransferProgress::kFinished);
  out = finished(worker, transport);
  EXPECT_EQ(out.finished_recving, Names{"B"});
  EXPECT_TRUE(out.invalid_block_ids.empty());
  EXPECT_EQ(finished(worker, transport), KVConnectorWorkerOutput());
}

TEST(DisaggregatedConsumerWorker, ListsABlockOnce) {
  ScriptedTransport transport = listening();
  DisaggregatedConsumerWorker worker(spec_of(2, 1), 0);
  worker.start_load_kv(receives({1, 2}, {5, 6}), transport);
  for (const ReadId read : {0u, 1u}) transport.advance(read, TransferProgress::kFailed);
  const KVConnectorWorkerOutput out = finished(worker, transport);
  EXPECT_EQ(out.invalid_block_ids, (std::vector<BlockId>{1, 2}));
  EXPECT_EQ(out.finished_recving, Names{"B"});
}

TEST(DisaggregatedConsumerWorker, PassesHeartbeatsOn) {
  ScriptedTransport transport = listening();
  DisaggregatedConsumerWorker worker(spec_of(2, 1), 0);
  ConsumerMetadata metadata;
  metadata.heartbeats = {"A", "C"};
  worker.start_load_kv(metadata, transport);
  ASSERT_EQ(transport.notices().size(), 2u);
  EXPECT_EQ(transport.notices()[1].notice, (Notice{0, 1, true, {"A", "C"}}));
}

}  // namespace
}  // namespace kvfence::reference
