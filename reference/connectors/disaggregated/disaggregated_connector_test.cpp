// The scheduler's halves by themselves. Blocks have 4 tokens.
#include "reference/connectors/disaggregated/disaggregated_connector.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/scheduler/scheduler.h"

namespace kvfence::reference {
namespace {

using Names = std::vector<std::string>;

DisaggregatedSpec spec_of(Profile profile) {
  DisaggregatedSpec spec;
  spec.rules = rules_of(profile);
  spec.deadline = 30;
  return spec;
}

/// One request at a time.
class Host final : public ConnectorHost {
 public:
  explicit Host(std::uint32_t num_prompt_tokens = 8)
      : request_({std::vector<TokenId>(num_prompt_tokens, 1), std::nullopt, std::nullopt, {}}, {}) {
  }

  ConnectorRequest request(RequestIndex index) const override {
    return {.index = index,
            .id = id,
            .request = request_,
            .num_prompt_tokens = static_cast<std::uint32_t>(request_.all_token_ids().size()),
            .num_computed_tokens = 0,
            .params = params,
            .status = status};
  }
  bool is_cached(BlockId block) const override { return cached.count(block) > 0; }

  std::string id = "A";
  KVTransferParams params;
  RequestStatus status = RequestStatus::kRunning;
  std::set<BlockId> cached;

 private:
  Request request_;
};

KVTransferParams remote_prefill() {
  KVTransferParams params;
  params.do_remote_prefill = true;
  params.remote_engine_id = "producer";
  params.remote_request_id = "P";
  params.remote_block_ids = {{7, 8, 9}};
  return params;
}

ProducerMetadata told(DisaggregatedProducer& half, Host& host) {
  return dynamic_cast<const ProducerMetadata&>(*half.build_connector_meta(host, {}));
}
ConsumerMetadata told(DisaggregatedConsumer& half, Host& host) {
  return dynamic_cast<const ConsumerMetadata&>(*half.build_connector_meta(host, {}));
}

bool finish(KVConnector& half, Host& host, RequestStatus status, const BlocksByGroup& blocks) {
  host.status = status;
  return half.request_finished(host, host.request(0), blocks);
}

TEST(DisaggregatedProducer, HoldsWhatReachedItsLength) {
  DisaggregatedProducer half(spec_of(Profile::kV019));
  Host host;
  host.params.do_remote_decode = true;
  half.tell_time(5);
  EXPECT_EQ(half.get_num_new_matched_tokens(host.request(0), 0).num_tokens, 0u);
  half.update_state_after_alloc(host, host.request(0), {{1, 2}}, 0);
  half.update_state_after_alloc(host, host.request(0), {{1, 2}}, 0);
  EXPECT_EQ(told(half, host).reqs_in_batch, Names{"A"});
  EXPECT_TRUE(told(half, host).reqs_in_batch.empty());
  EXPECT_TRUE(finish(half, host, RequestStatus::kFinishedLengthCapped, {{1, 2}}));
  const ProducerMetadata metadata = told(half, host);
  EXPECT_EQ(metadata.reqs_to_send, (std::vector<ProducerMetadata::Send>{{"A", 35}}));
  EXPECT_TRUE(metadata.reqs_not_processed.empty());
  std::vector<RemotePrefill> prefills;
  half.take_remote_prefills(prefills);
  ASSERT_EQ(prefills.size(), 1u);
  EXPECT_TRUE(prefills.front().params.do_remote_prefill);
  EXPECT_EQ(prefills.front().params.remote_engine_id, "producer");
  EXPECT_EQ(prefills.front().params.remote_request_id, "A");
  EXPECT_EQ(prefills.front().params.remote_block_ids, (BlocksByGroup{{1, 2}}));
  half.take_remote_prefills(prefills);
  EXPECT_EQ(prefills.size(), 1u);
}

TEST(DisaggregatedProducer, DoesNotHoldWhatNobodyWillRead) {
  using Status = RequestStatus;
  for (const Profile profile : kProfiles) {
    for (const Status status : {Status::kFinishedAborted, Status::kFinishedError,
                                Status::kFinishedIgnored, Status::kFinishedStopped}) {
      DisaggregatedProducer half(spec_of(profile));
      Host host;
      host.params.do_remote_decode = true;
      const bool holds = profile == Profile::kV023 && status == Status::kFinishedStopped;
      EXPECT_EQ(finish(half, host, status, {{1, 2}}), holds);
      const ProducerMetadata metadata = told(half, host);
      EXPECT_EQ(metadata.reqs_not_processed.size(), holds ? 0u : 1u);
      EXPECT_EQ(metadata.reqs_to_send.size(), holds ? 1u : 0u);
    }
  }
}

TEST(DisaggregatedProducer, KnowsNothingOfOthers) {
  DisaggregatedProducer half(spec_of(Profile::kV023));
  Host host;
  half.update_state_after_alloc(host, host.request(0), {{1, 2}}, 0);
  EXPECT_FALSE(finish(half, host, RequestStatus::kFinishedLengthCapped, {{1, 2}}));
  const ProducerMetadata metadata = told(half, host);
  EXPECT_TRUE(metadata.reqs_in_batch.empty());
  EXPECT_TRUE(metadata.reqs_not_processed.empty());
  EXPECT_TRUE(metadata.reqs_to_send.empty());
}

TEST(DisaggregatedConsumer, ReadsAtTheSamePlaces) {
  DisaggregatedConsumer half(spec_of(Profile::kV019));
  Host host;
  host.params = remote_prefill();
  host.cached = {3};
  const MatchedTokens matched = half.get_num_new_matched_tokens(host.request(0), 4);
  EXPECT_EQ(matched.num_tokens, 4u);
  EXPECT_TRUE(matched.load_async);
  half.update_state_after_alloc(host, host.request(0), {{3, 5}}, 4);
  EXPECT_EQ(told(half, host).reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"A", "P", {5}, {8}}}));
  EXPECT_EQ(half.get_num_new_matched_tokens(host.request(0), 0).num_tokens, 0u);
  half.update_state_after_alloc(host, host.request(0), {{3, 5}}, 0);
  EXPECT_FALSE(finish(half, host, RequestStatus::kFinishedAborted, {{3, 5}}));
  EXPECT_TRUE(told(half, host).reqs_to_recv.empty());
}

TEST(DisaggregatedConsumer, AFullHitNeedsOnlyANotice) {
  DisaggregatedConsumer half(spec_of(Profile::kV019));
  Host host;
  host.params = remote_prefill();
  EXPECT_EQ(half.get_num_new_matched_tokens(host.request(0), 8).num_tokens, 0u);
  half.update_state_after_alloc(host, host.request(0), {{3, 5}}, 0);
  EXPECT_EQ(told(half, host).reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"A", "P", {}, {}}}));
}

TEST(DisaggregatedConsumer, OneTokenIsComputedHere) {
  DisaggregatedConsumer half(spec_of(Profile::kV019));
  Host host(1);
  host.params = remote_prefill();
  EXPECT_EQ(half.get_num_new_matched_tokens(host.request(0), 0).num_tokens, 0u);
}

TEST(DisaggregatedConsumer, IncompleteParamsAskForNothing) {
  for (int missing = 0; missing < 3; ++missing) {
    DisaggregatedConsumer half(spec_of(Profile::kV023));
    Host host;
    host.params = remote_prefill();
    if (missing == 0) host.params.do_remote_prefill = false;
    if (missing == 1) host.params.remote_request_id.clear();
    if (missing == 2) host.params.remote_block_ids.clear();
    half.on_new_request(host.request(0));
    EXPECT_EQ(half.get_num_new_matched_tokens(host.request(0), 0).num_tokens, 0u);
    half.update_state_after_alloc(host, host.request(0), {{3, 5}}, 0);
    EXPECT_FALSE(finish(half, host, RequestStatus::kFinishedAborted, {{3, 5}}));
    const ConsumerMetadata metadata = told(half, host);
    EXPECT_TRUE(metadata.reqs_to_recv.empty());
    EXPECT_TRUE(metadata.heartbeats.empty());
  }
}

TEST(DisaggregatedConsumer, TellsTheProducerOfWhatWasNeverAdmitted) {
  DisaggregatedConsumer half(spec_of(Profile::kV019));
  Host host;
  host.params = remote_prefill();
  EXPECT_FALSE(finish(half, host, RequestStatus::kFinishedAborted, {}));
  EXPECT_EQ(told(half, host).reqs_to_recv,
            (std::vector<ConsumerMetadata::Receive>{{"A", "P", {}, {}}}));
}

TEST(DisaggregatedConsumer, RenewsLeasesUntilTheyAreReadOrGivenUp) {
  DisaggregatedConsumer half(spec_of(Profile::kV023));
  Host host;
  host.params = remote_prefill();
  half.on_new_request(host.request(0));
  EXPECT_EQ(told(half, host).heartbeats, Names{"P"});
  half.tell_time(4);
  EXPECT_TRUE(told(half, host).heartbeats.empty());
  half.tell_time(5);
  EXPECT_EQ(told(half, host).heartbeats, Names{"P"});
  DisaggregatedConsumer aborts = half;
  KVConnectorOutput output;
  output.finished_recving = {0};
  half.update_connector_output(host, output);
  finish(aborts, host, RequestStatus::kFinishedAborted, {});
  for (DisaggregatedConsumer* const each : {&half, &aborts}) {
    each->tell_time(10);
    EXPECT_TRUE(told(*each, host).heartbeats.empty());
  }
}

TEST(DisaggregatedConsumer, RenewsNothingWithoutLeases) {
  DisaggregatedSpec endless = spec_of(Profile::kV023);
  endless.deadline.reset();
  for (const DisaggregatedSpec& spec : {spec_of(Profile::kV019), endless}) {
    DisaggregatedConsumer half(spec);
    Host host;
    host.params = remote_prefill();
    half.on_new_request(host.request(0));
    EXPECT_TRUE(told(half, host).heartbeats.empty());
  }
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
}  // namespace kvfence::reference
