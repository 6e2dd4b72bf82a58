// Goal: the schedulers' halves of a pair answer and tell what
// contract/connectors/disaggregated/disaggregated_connector.h says. Method: each half alone, call
// by call.

#include "optimized/connectors/disaggregated/disaggregated_connector.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/scheduler/scheduler.h"

namespace kvfence::optimized {
namespace {

using Names = std::vector<std::string>;

DisaggregatedSpec spec_of(Profile profile) {
  DisaggregatedSpec spec;
  spec.rules = rules_of(profile);
  spec.deadline = 30;
  return spec;
}

/// A request as a half sees it.
struct Client {
  RequestIndex index = 0;
  std::string id;
  std::uint32_t num_prompt_tokens = 8;
  KVTransferParams params{};
  RequestStatus status = RequestStatus::kWaiting;
};

Client prefill_of(std::string id, RequestIndex index) {
  Client client;
  client.index = index;
  client.id = std::move(id);
  client.params.do_remote_decode = true;
  return client;
}

/// Wants the prompt of A, in the blocks 11, 12, 13.
Client reader_of(std::string id, RequestIndex index, std::string remote = "A") {
  Client client;
  client.index = index;
  client.id = std::move(id);
  client.params.do_remote_prefill = true;
  client.params.remote_request_id = std::move(remote);
  client.params.remote_block_ids = {{11, 12, 13}};
  return client;
}

/// Calls a half. Block 7 is cached.
template <class Half, class Metadata>
class Caller final : private ConnectorHost {
 public:
  explicit Caller(std::unique_ptr<Half> half) : half_(std::move(half)) {}

  Half& half() { return *half_; }

  void add(const Client& client) { half_->on_new_request(view(client)); }
  std::pair<std::uint32_t, bool> match(const Client& client, std::uint32_t num_local_tokens) {
    const MatchedTokens matched = half_->get_num_new_matched_tokens(view(client), num_local_tokens);
    return {matched.num_tokens.value(), matched.load_async};
  }
  void allocate(const Client& client, const std::vector<BlockId>& blocks,
                std::uint32_t num_external_tokens = 0) {
    half_->update_state_after_alloc(*this, view(client), {blocks}, num_external_tokens);
  }
  Metadata build() {
    return static_cast<const Metadata&>(*half_->build_connector_meta(*this, SchedulerOutput()));
  }
  void received(RequestIndex request) {
    KVConnectorOutput output;
    output.finished_recving = {request};
    half_->update_connector_output(*this, output);
  }
  bool finish(Client client, RequestStatus status, const std::vector<BlockId>& blocks) {
    client.status = status;
    return half_->request_finished(*this, view(client), {blocks});
  }
  bool abort(const Client& client) { return finish(client, RequestStatus::kFinishedAborted, {}); }

 private:
  ConnectorRequest view(const Client& client) const {
    return {client.index,  client.id,    request_, client.num_prompt_tokens, 0,
            client.params, client.status};
  }
  ConnectorRequest request(RequestIndex) const override { return view(nobody_); }
  bool is_cached(BlockId block) const override { return block == 7; }

  std::unique_ptr<Half> half_;
  Request request_{RequestSpec{}, HashConfig{}};
  Client nobody_;
};

using Producer = Caller<DisaggregatedProducer, ProducerMetadata>;
using Consumer = Caller<DisaggregatedConsumer, ConsumerMetadata>;

Producer producer_of(const DisaggregatedSpec& spec) {
  return Producer(make_disaggregated_producer(spec));
}
Consumer consumer_of(const DisaggregatedSpec& spec) {
  return Consumer(make_disaggregated_consumer(spec));
}

// ---- Producer ----

TEST(DisaggregatedProducer, NamesWhatGotBlocksOnceAList) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.allocate(prefill_of("A", 0), {1});
  producer.allocate(prefill_of("B", 1), {2});
  producer.allocate(prefill_of("A", 0), {1});
  Client local = prefill_of("C", 2);
  local.params.do_remote_decode = false;
  producer.allocate(local, {3});
  EXPECT_EQ(producer.build().reqs_in_batch, (Names{"A", "B"}));
  EXPECT_TRUE(producer.build().reqs_in_batch.empty());
  producer.allocate(prefill_of("A", 0), {1});  // it was preempted
  EXPECT_EQ(producer.build().reqs_in_batch, Names{"A"});
  EXPECT_EQ(producer.match(prefill_of("A", 0), 0), std::pair(0U, false));
}

TEST(DisaggregatedProducer, TellsARequestOfAnIndexFromTheOneBefore) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.allocate(prefill_of("A", 0), {1});
  producer.abort(prefill_of("A", 0));
  producer.allocate(prefill_of("B", 0), {1});
  const ProducerMetadata told = producer.build();
  EXPECT_EQ(told.reqs_in_batch, (Names{"A", "B"}));
  EXPECT_EQ(told.reqs_not_processed, Names{"A"});
}

TEST(DisaggregatedProducer, HoldsWhatAConsumerWillRead) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.half().tell_time(5);
  EXPECT_TRUE(producer.finish(prefill_of("A", 0), RequestStatus::kFinishedLengthCapped, {4, 3}));
  const ProducerMetadata told = producer.build();
  EXPECT_EQ(told.reqs_to_send, (std::vector<ProducerMetadata::Send>{{"A", 35}}));
  EXPECT_TRUE(told.reqs_not_processed.empty());
  std::vector<RemotePrefill> prefills(1);
  producer.half().take_remote_prefills(prefills);
  ASSERT_EQ(prefills.size(), 2U);  // appended
  RemotePrefill expected;
  expected.request = "A";
  expected.params.do_remote_prefill = true;
  expected.params.remote_engine_id = "producer";
  expected.params.remote_request_id = "A";
  expected.params.remote_block_ids = {{4, 3}};
  EXPECT_EQ(prefills.back(), expected);
  producer.half().take_remote_prefills(prefills);
  EXPECT_EQ(prefills.size(), 2U);
  EXPECT_TRUE(producer.build().reqs_to_send.empty());
}

TEST(DisaggregatedProducer, HoldsForEverWithoutADeadline) {
  DisaggregatedSpec spec = spec_of(Profile::kV019);
  spec.deadline.reset();
  Producer producer = producer_of(spec);
  EXPECT_TRUE(producer.finish(prefill_of("A", 0), RequestStatus::kFinishedLengthCapped, {1}));
  EXPECT_EQ(producer.build().reqs_to_send,
            (std::vector<ProducerMetadata::Send>{{"A", std::nullopt}}));
}

TEST(DisaggregatedProducer, DoesNotHoldWhatNobodyWillRead) {
  Producer producer = producer_of(spec_of(Profile::kV023));
  EXPECT_FALSE(producer.abort(prefill_of("A", 0)));
  EXPECT_FALSE(producer.finish(prefill_of("B", 1), RequestStatus::kFinishedError, {1}));
  EXPECT_FALSE(producer.finish(prefill_of("C", 2), RequestStatus::kFinishedLengthCapped, {}));
  Client local = prefill_of("D", 3);
  local.params.do_remote_decode = false;
  EXPECT_FALSE(producer.finish(local, RequestStatus::kFinishedLengthCapped, {1}));
  const ProducerMetadata told = producer.build();
  EXPECT_EQ(told.reqs_not_processed, (Names{"A", "B", "C"}));
  EXPECT_TRUE(told.reqs_to_send.empty());
}

TEST(DisaggregatedProducer, OnlyTheNewerReleaseSendsWhatStopped) {
  for (const Profile profile : kProfiles) {
    Producer producer = producer_of(spec_of(profile));
    EXPECT_EQ(producer.finish(prefill_of("A", 0), RequestStatus::kFinishedStopped, {1}),
              profile == Profile::kV023);
  }
}

TEST(DisaggregatedProducer, ACloneGoesItsOwnWay) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.allocate(prefill_of("A", 0), {1});
  const std::unique_ptr<KVConnector> copy = producer.half().clone();
  EXPECT_EQ(producer.build().reqs_in_batch, Names{"A"});
  Producer clone(std::unique_ptr<DisaggregatedProducer>(
      static_cast<DisaggregatedProducer*>(copy->clone().release())));
  EXPECT_EQ(clone.build().reqs_in_batch, Names{"A"});
}

// ---- Consumer ----

TEST(DisaggregatedConsumer, WantsTheWholePromptAsynchronously) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  const Client reader = reader_of("B", 0);
  EXPECT_EQ(consumer.match(reader, 0), std::pair(8U, true));
  EXPECT_EQ(consumer.match(reader, 4), std::pair(4U, true));
  EXPECT_EQ(consumer.match(reader, 8), std::pair(0U, false));
}

TEST(DisaggregatedConsumer, APromptOfOneTokenIsNotLoaded) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  Client reader = reader_of("B", 0);
  reader.num_prompt_tokens = 1;
  EXPECT_EQ(consumer.match(reader, 0), std::pair(0U, false));
  consumer.allocate(reader, {1});
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {}, {}}}));
}

TEST(DisaggregatedConsumer, IncompleteParamsWantNothing) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  std::vector<Client> clients(4, reader_of("B", 0));
  clients[0].params.do_remote_prefill = false;
  clients[1].params.remote_request_id.clear();
  clients[2].params.remote_block_ids.clear();
  clients[3].params.remote_block_ids = {{}};
  for (const Client& client : clients) {
    EXPECT_EQ(consumer.match(client, 0), std::pair(0U, false));
    consumer.allocate(client, {1, 2});
    EXPECT_FALSE(consumer.abort(client));
  }
  EXPECT_TRUE(consumer.build().reqs_to_recv.empty());
}

TEST(DisaggregatedConsumer, ReadsWhatIsNotCachedFromTheSamePlaces) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  consumer.allocate(reader_of("B", 0), {7, 5}, 4);
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {5}, {12}}}));
  EXPECT_TRUE(consumer.build().reqs_to_recv.empty());
}

TEST(DisaggregatedConsumerDeathTest, TheRemoteRequestHasABlockAtEachPlace) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  EXPECT_DEATH(consumer.allocate(reader_of("B", 0), {1, 2, 3, 4}, 16), "no block at this place");
}

TEST(DisaggregatedConsumer, TransfersARequestOnce) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  const Client reader = reader_of("B", 0);
  consumer.allocate(reader, {1, 2}, 8);
  consumer.allocate(reader, {1, 2});  // it was loaded, and is scheduled
  EXPECT_EQ(consumer.build().reqs_to_recv.size(), 1U);
  EXPECT_EQ(consumer.match(reader, 0), std::pair(0U, false));  // it was preempted
  consumer.allocate(reader, {1, 2});
  EXPECT_FALSE(consumer.abort(reader));
  EXPECT_TRUE(consumer.build().reqs_to_recv.empty());
  // Another request of the same index.
  EXPECT_EQ(consumer.match(reader_of("C", 0), 0), std::pair(8U, true));
}

TEST(DisaggregatedConsumer, TellsTheProducerOfWhatWasNeverAdmitted) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  EXPECT_FALSE(consumer.abort(reader_of("B", 0)));
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {}, {}}}));
}

TEST(DisaggregatedConsumer, RenewsLeasesAtIntervals) {
  Consumer consumer = consumer_of(spec_of(Profile::kV023));
  EXPECT_TRUE(consumer.build().heartbeats.empty());
  consumer.half().tell_time(2);
  consumer.add(reader_of("B", 0, "X"));
  consumer.add(reader_of("C", 1, "A"));
  consumer.add(reader_of("D", 2, "X"));
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));
  consumer.half().tell_time(6);
  EXPECT_TRUE(consumer.build().heartbeats.empty());
  consumer.half().tell_time(7);
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));
}

TEST(DisaggregatedConsumer, RenewsUntilARequestIsReceivedOrFinished) {
  DisaggregatedSpec spec = spec_of(Profile::kV023);
  spec.deadline = 5;  // at each step
  Consumer consumer = consumer_of(spec);
  for (RequestIndex index = 0; index < 3; ++index) {
    consumer.add(reader_of("B" + std::to_string(index), index, "A" + std::to_string(index)));
  }
  consumer.received(1);
  EXPECT_EQ(consumer.build().heartbeats, (Names{"A0", "A2"}));
  consumer.abort(reader_of("B0", 0, "A0"));
  EXPECT_EQ(consumer.build().heartbeats, Names{"A2"});
  consumer.abort(reader_of("B2", 2, "A2"));
  EXPECT_TRUE(consumer.build().heartbeats.empty());
  consumer.add(reader_of("B3", 0, "A0"));
  EXPECT_EQ(consumer.build().heartbeats, Names{"A0"});
}

TEST(DisaggregatedConsumer, ALeaseThatTwoAskedForIsRenewedUntilBothAreDone) {
  DisaggregatedSpec spec = spec_of(Profile::kV023);
  spec.deadline = 5;
  Consumer consumer = consumer_of(spec);
  consumer.add(reader_of("B", 0));
  consumer.add(reader_of("D", 2, "X"));
  consumer.add(reader_of("C", 1));
  EXPECT_EQ(consumer.build().heartbeats, (Names{"A", "X"}));
  consumer.received(0);
  consumer.abort(reader_of("B", 0));                          // counts once
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));  // C came behind D
  consumer.received(1);
  consumer.received(2);
  EXPECT_TRUE(consumer.build().heartbeats.empty());
}

TEST(DisaggregatedConsumer, RenewsNothingWithoutTheRuleOrADeadline) {
  for (const Profile profile : kProfiles) {
    DisaggregatedSpec spec = spec_of(profile);
    if (profile == Profile::kV023) spec.deadline.reset();
    Consumer consumer = consumer_of(spec);
    consumer.add(reader_of("B", 0));
    EXPECT_TRUE(consumer.build().heartbeats.empty());
  }
}

}  // namespace
}  // namespace kvfence::optimized
