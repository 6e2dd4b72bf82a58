// Tests the schedulers' halves of a pair on both sides: each half alone, call by call.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scheduler/scheduler.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "properties/core/both_sides_test_support.h"
#include "reference/connectors/disaggregated/disaggregated_connector.h"

namespace kvfence {
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

/// A reader of the prompt of A, which is in blocks 11, 12, 13.
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

  void add(const Client& client) {
    clients_[client.index] = client;
    half_->on_new_request(view(client));
  }
  std::pair<std::uint32_t, bool> match(const Client& client, std::uint32_t num_local_tokens) {
    const MatchedTokens matched = half_->get_num_new_matched_tokens(view(client), num_local_tokens);
    return {matched.num_tokens.value(), matched.load_async};
  }
  void allocate(const Client& client, const std::vector<BlockId>& blocks,
                std::uint32_t num_external_tokens = 0) {
    allocate_groups(client, {blocks}, num_external_tokens);
  }
  void allocate_groups(const Client& client, const BlocksByGroup& blocks,
                       std::uint32_t num_external_tokens) {
    half_->update_state_after_alloc(*this, view(client), blocks, num_external_tokens);
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
  ConnectorRequest request(RequestIndex index) const override { return view(clients_.at(index)); }
  bool is_cached(BlockId block) const override { return block == 7; }

  std::unique_ptr<Half> half_;
  Request request_{RequestSpec{}, HashConfig{}};
  std::map<RequestIndex, Client> clients_;
};

using Producer = Caller<DisaggregatedProducer, ProducerMetadata>;
using Consumer = Caller<DisaggregatedConsumer, ConsumerMetadata>;

/// Makes both halves of a side.
struct Makers {
  std::unique_ptr<DisaggregatedProducer> (*producer)(const DisaggregatedSpec&);
  std::unique_ptr<DisaggregatedConsumer> (*consumer)(const DisaggregatedSpec&);
};
using Maker = BySide<Makers>;

constexpr Maker kSides[] = {
    {"reference", {reference::make_disaggregated_producer, reference::make_disaggregated_consumer}},
    {"optimized", {optimized::make_disaggregated_producer, optimized::make_disaggregated_consumer}},
};

class ProducerRules : public ::testing::TestWithParam<Maker> {
 protected:
  static Producer producer_of(const DisaggregatedSpec& spec) {
    return Producer(GetParam().make.producer(spec));
  }
};
class ConsumerRules : public ::testing::TestWithParam<Maker> {
 protected:
  static Consumer consumer_of(const DisaggregatedSpec& spec) {
    return Consumer(GetParam().make.consumer(spec));
  }
};
INSTANTIATE_TEST_SUITE_P(Nixl, ProducerRules, ::testing::ValuesIn(kSides), SideNames());
INSTANTIATE_TEST_SUITE_P(Nixl, ConsumerRules, ::testing::ValuesIn(kSides), SideNames());

// ---- Producer ----

TEST_P(ProducerRules, ListsEachRequestThatGotBlocksOnce) {
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

TEST_P(ProducerRules, SeparatesRequestsOfOneIndex) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.allocate(prefill_of("A", 0), {1});
  producer.abort(prefill_of("A", 0));
  producer.allocate(prefill_of("B", 0), {1});
  const ProducerMetadata metadata = producer.build();
  EXPECT_EQ(metadata.reqs_in_batch, (Names{"A", "B"}));
  EXPECT_EQ(metadata.reqs_not_processed, Names{"A"});
}

TEST_P(ProducerRules, HoldsWhatAConsumerWillRead) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.half().set_time(5);
  EXPECT_TRUE(producer.finish(prefill_of("A", 0), RequestStatus::kFinishedLengthCapped, {4, 3}));
  const ProducerMetadata metadata = producer.build();
  EXPECT_EQ(metadata.reqs_to_send, (std::vector<ProducerMetadata::Send>{{"A", 35}}));
  EXPECT_TRUE(metadata.reqs_not_processed.empty());
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

TEST_P(ProducerRules, ClientsGetParamsOnceAndOfTheLastFinishedRequest) {
  Producer producer = producer_of(spec_of(Profile::kV019));
  producer.finish(prefill_of("A", 0), RequestStatus::kFinishedLengthCapped, {1});
  EXPECT_EQ(producer.half().take_client_params(), "A");
  EXPECT_EQ(producer.half().take_client_params(), std::nullopt);
  producer.finish(prefill_of("B", 0), RequestStatus::kFinishedLengthCapped, {1});
  Client local = prefill_of("C", 1);
  local.params = {};
  producer.finish(local, RequestStatus::kFinishedLengthCapped, {2});
  EXPECT_EQ(producer.half().take_client_params(), std::nullopt);
  producer.finish(prefill_of("D", 1), RequestStatus::kFinishedLengthCapped, {2});
  std::vector<RemotePrefill> prefills;
  producer.half().take_remote_prefills(prefills);
  EXPECT_EQ(producer.half().take_client_params(), std::nullopt);
}

TEST_P(ProducerRules, HoldsForEverWithoutADeadline) {
  DisaggregatedSpec spec = spec_of(Profile::kV019);
  spec.deadline.reset();
  Producer producer = producer_of(spec);
  EXPECT_TRUE(producer.finish(prefill_of("A", 0), RequestStatus::kFinishedLengthCapped, {1}));
  EXPECT_EQ(producer.build().reqs_to_send,
            (std::vector<ProducerMetadata::Send>{{"A", std::nullopt}}));
}

TEST_P(ProducerRules, DoesNotHoldWhatWillNotBeRead) {
  Producer producer = producer_of(spec_of(Profile::kV023));
  EXPECT_FALSE(producer.abort(prefill_of("A", 0)));
  EXPECT_FALSE(producer.finish(prefill_of("B", 1), RequestStatus::kFinishedError, {1}));
  EXPECT_FALSE(producer.finish(prefill_of("C", 2), RequestStatus::kFinishedLengthCapped, {}));
  Client local = prefill_of("D", 3);
  local.params.do_remote_decode = false;
  EXPECT_FALSE(producer.finish(local, RequestStatus::kFinishedLengthCapped, {1}));
  const ProducerMetadata metadata = producer.build();
  EXPECT_EQ(metadata.reqs_not_processed, (Names{"A", "B", "C"}));
  EXPECT_TRUE(metadata.reqs_to_send.empty());
}

// ---- Consumer ----

TEST_P(ConsumerRules, WantsTheWholePromptAsynchronously) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  const Client reader = reader_of("B", 0);
  EXPECT_EQ(consumer.match(reader, 0), std::pair(8U, true));
  EXPECT_EQ(consumer.match(reader, 4), std::pair(4U, true));
  EXPECT_EQ(consumer.match(reader, 8), std::pair(0U, false));
}

TEST_P(ConsumerRules, APromptOfOneTokenIsNotLoaded) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  Client reader = reader_of("B", 0);
  reader.num_prompt_tokens = 1;
  EXPECT_EQ(consumer.match(reader, 0), std::pair(0U, false));
  consumer.allocate(reader, {1});
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {}, {}}}));
}

TEST_P(ConsumerRules, IncompleteParamsWantNothing) {
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

TEST_P(ConsumerRules, ReadsWhatIsNotCachedFromTheSamePlaces) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  consumer.allocate(reader_of("B", 0), {7, 5}, 4);
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {5}, {12}}}));
  EXPECT_TRUE(consumer.build().reqs_to_recv.empty());
}

TEST_P(ConsumerRules, ReadsEachGroupAndNothingBeforeAWindow) {
  Consumer consumer = consumer_of(spec_of(Profile::kV023));
  Client reader = reader_of("B", 0);
  reader.params.remote_block_ids = {{11, 12, 13}, {0, 14, 15}};
  consumer.allocate_groups(reader, {{1, 2}, {0, 3}}, 8);
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {1, 2, 3}, {11, 12, 14}}}));
}

TEST_P(ConsumerRules, TransfersARequestOnce) {
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

TEST_P(ConsumerRules, NotifiesTheProducerOfRequestsNeverAdmitted) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  EXPECT_FALSE(consumer.abort(reader_of("B", 0)));
  EXPECT_EQ(consumer.build().reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"B", "A", {}, {}}}));
}

TEST_P(ConsumerRules, RenewsLeasesAtIntervals) {
  Consumer consumer = consumer_of(spec_of(Profile::kV023));
  EXPECT_TRUE(consumer.build().heartbeats.empty());
  consumer.half().set_time(2);
  consumer.add(reader_of("B", 0, "X"));
  consumer.add(reader_of("C", 1, "A"));
  consumer.add(reader_of("D", 2, "X"));
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));
  consumer.half().set_time(6);
  EXPECT_TRUE(consumer.build().heartbeats.empty());
  consumer.half().set_time(7);
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));
}

TEST_P(ConsumerRules, RenewsUntilARequestIsReceivedOrFinished) {
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

TEST_P(ConsumerRules, ALeaseOfTwoReadersIsRenewedUntilBothAreDone) {
  DisaggregatedSpec spec = spec_of(Profile::kV023);
  spec.deadline = 5;
  Consumer consumer = consumer_of(spec);
  consumer.add(reader_of("B", 0));
  consumer.add(reader_of("D", 2, "X"));
  consumer.add(reader_of("C", 1));
  EXPECT_EQ(consumer.build().heartbeats, (Names{"A", "X"}));
  consumer.received(0);
  consumer.abort(reader_of("B", 0));                          // counts once
  EXPECT_EQ(consumer.build().heartbeats, (Names{"X", "A"}));  // C came after D
  consumer.received(1);
  consumer.received(2);
  EXPECT_TRUE(consumer.build().heartbeats.empty());
}

TEST_P(ConsumerRules, RenewsNothingWithoutTheRuleOrADeadline) {
  for (const Profile profile : kProfiles) {
    DisaggregatedSpec spec = spec_of(profile);
    if (profile == Profile::kV023) spec.deadline.reset();
    Consumer consumer = consumer_of(spec);
    consumer.add(reader_of("B", 0));
    EXPECT_TRUE(consumer.build().heartbeats.empty());
  }
}

TEST_P(ConsumerRules, TheRemoteRequestHasABlockAtEachPlace) {
  Consumer consumer = consumer_of(spec_of(Profile::kV019));
  EXPECT_DEATH(consumer.allocate(reader_of("B", 0), {1, 2, 3, 4}, 16),
               "block at (each|this) place");
  Client reader = reader_of("B", 0);
  reader.params.remote_block_ids = {{0, 12}};
  EXPECT_DEATH(consumer.allocate(reader, {1, 2}, 8), "block at (each|this) place");
}

TEST(DisaggregatedSpec, OneWorldSizeDividesTheOther) {
  DisaggregatedSpec spec;
  EXPECT_FALSE(check_spec(spec));
  spec.producer_world_size = 4;
  spec.consumer_world_size = 2;
  EXPECT_FALSE(check_spec(spec));
  spec.consumer_world_size = 3;
  EXPECT_TRUE(check_spec(spec));
  spec.consumer_world_size = 0;
  EXPECT_TRUE(check_spec(spec));
  spec.consumer_world_size = 8;
  spec.deadline = 0;
  EXPECT_TRUE(check_spec(spec));
  spec.deadline = kSecondsMax;
  EXPECT_FALSE(check_spec(spec));
}

}  // namespace
}  // namespace kvfence
