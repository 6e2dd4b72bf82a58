// Goal: a step costs only what it changes, and a deadline O(log n), for any number of other
// requests expected, read or renewed. Method: count the requests looked at and the comparisons of
// the heap, with 10^2 to 10^5 other requests, and check them against bounds. A scan would grow with
// that number.

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "planted/optimized/connectors/disaggregated/disaggregated_connector.h"
#include "properties/planted/switches.h"

namespace kvfence::planted::optimized {
namespace {

/// A transport with only the events that the test puts here.
class StillTransport final : public Transport {
 public:
  void listen(std::uint32_t) override {}
  Seconds now() const override { return now_; }
  ReadId read(const ReadSpec&) override { return next_read_++; }
  void get_finished_reads(std::uint32_t, std::vector<ReadResult>& out) override {
    out.clear();
    out.swap(ended);
  }
  void send_notice(const Notice&) override {}
  void get_new_notices(std::uint32_t, std::vector<Notice>& out) override {
    out.clear();
    out.swap(notices);
  }
  void close(std::uint32_t, const std::string&) override {}

  void set_time(Seconds now) { now_ = now; }

  std::vector<ReadResult> ended;
  std::vector<Notice> notices;

 private:
  Seconds now_ = 0;
  ReadId next_read_ = 0;
};

DisaggregatedSpec spec_of() {
  DisaggregatedSpec spec;
  spec.rules = rules_of(Profile::kV023);
  spec.deadline = 3'000'000;
  return spec;
}

std::string name_of(std::uint32_t index) { return "A" + std::to_string(index); }

class DisaggregatedOperationCount : public testing::TestWithParam<std::uint32_t> {
 protected:
  static std::uint32_t size() { return GetParam(); }

  /// Comparisons of an operation of a heap: two per level, and two more.
  static std::uint64_t log_bound() { return 2 * std::bit_width(size()) + 2; }
};

/// A producer's rank that expects the readers of all these requests.
class Waiting {
 public:
  explicit Waiting(std::uint32_t size)
      : worker_(make_disaggregated_producer_worker(spec_of(), /*rank=*/0, transport_)) {
    ProducerMetadata metadata;
    for (std::uint32_t index = 0; index < size; ++index) {
      metadata.reqs_in_batch.push_back(name_of(index));
      metadata.reqs_to_send.push_back({name_of(index), deadline_of(index, size)});
    }
    step(metadata);
  }

  /// Distinct deadlines, in no order.
  static Seconds deadline_of(std::uint32_t index, std::uint32_t size) {
    return 1'000'000 + static_cast<Seconds>(std::uint64_t{index} * 7'919 % size);
  }

  /// Comparisons and requests of one more step.
  std::uint64_t step(const ProducerMetadata& metadata = {}) {
    const OperationCounts before = operation_counts;
    worker_->bind_connector_metadata(metadata);
    worker_->start_load_kv();
    worker_->get_finished({}, out_);
    return operation_counts.links - before.links + operation_counts.requests - before.requests;
  }

  std::uint64_t notice(const std::string& request, bool is_heartbeat) {
    transport_.notices.push_back({0, 0, is_heartbeat, {request}});
    return step();
  }

  StillTransport& transport() { return transport_; }
  std::size_t num_reported() const { return out_.finished_sending.size(); }

 private:
  StillTransport transport_;
  std::unique_ptr<KVConnectorWorker> worker_;
  KVConnectorWorkerOutput out_;
};

TEST_P(DisaggregatedOperationCount, AProducersStepCostsWhatCame) {
  Waiting waiting(size());
  EXPECT_EQ(waiting.step(), 0U);
  EXPECT_EQ(waiting.num_reported(), 0U);
  ProducerMetadata metadata;
  metadata.reqs_in_batch = {"new"};
  EXPECT_EQ(waiting.step(metadata), 1U);
  metadata = {};
  metadata.reqs_to_send = {{"new", 999'999}};  // before all others
  EXPECT_LE(waiting.step(metadata), 1 + log_bound());
  EXPECT_LE(waiting.notice("new", /*is_heartbeat=*/false), 1 + log_bound());
  EXPECT_EQ(waiting.num_reported(), 1U);
}

TEST_P(DisaggregatedOperationCount, ALeaseIsRenewedInLogarithmicTime) {
  Waiting waiting(size());
  waiting.transport().set_time(999'999);
  for (std::uint32_t index = 0; index < size(); index += size() / 50) {
    // Out of its place, and to the end.
    EXPECT_LE(waiting.notice(name_of(index), /*is_heartbeat=*/true), 1 + 2 * log_bound());
  }
}

TEST_P(DisaggregatedOperationCount, WhatExpiresCostsItselfAlone) {
  Waiting waiting(size());
  for (Seconds second = 0; second < 50; ++second) {
    waiting.transport().set_time(1'000'000 + second);
    EXPECT_LE(waiting.step(), log_bound());
    EXPECT_EQ(waiting.num_reported(), 1U);
  }
}

TEST_P(DisaggregatedOperationCount, AConsumersStepCostsWhatItStartsAndWhatEnded) {
  StillTransport transport;
  const auto worker = make_disaggregated_consumer_worker(spec_of(), /*rank=*/0, transport);
  KVConnectorWorkerOutput out;
  const auto step = [&](const ConsumerMetadata& metadata) {
    const std::uint64_t before = operation_counts.requests;
    worker->bind_connector_metadata(metadata);
    worker->start_load_kv();
    worker->get_finished({}, out);
    return operation_counts.requests - before;
  };
  ConsumerMetadata metadata;
  for (std::uint32_t index = 0; index < size(); ++index) {
    metadata.reqs_to_recv.push_back({name_of(index), "R", {1}, {1}});
  }
  EXPECT_EQ(step(metadata), size());
  metadata.reqs_to_recv.resize(1);
  EXPECT_EQ(step({}), 0U);
  EXPECT_EQ(step(metadata), 1U);
  transport.ended = {{size() - 1, true}, {0, false}};
  EXPECT_EQ(step({}), 2U);
  EXPECT_EQ(out.finished_recving.size(), 2U);
}

/// Calls a consumer's scheduler half.
class Reading final : private ConnectorHost {
 public:
  explicit Reading(std::uint32_t size) : consumer_(make_disaggregated_consumer(spec_of())) {
    params_.do_remote_prefill = true;
    params_.remote_block_ids = {{1, 2}};
    for (RequestIndex index = 0; index < size; ++index) add(index);
    cost_of_step();
  }

  /// Adds a lease.
  std::uint64_t add(RequestIndex index) {
    params_.remote_request_id = name_of(index);
    return cost([&] { consumer_->on_new_request(request(index)); });
  }

  std::uint64_t cost_of_step() {
    return cost([&] { metadata_ = consumer_->build_connector_meta(*this, SchedulerOutput()); });
  }

  std::uint64_t cost_of_report(RequestIndex index) {
    KVConnectorOutput output;
    output.finished_recving = {index};
    return cost([&] { consumer_->update_connector_output(*this, output); });
  }

  std::uint64_t cost_of_finish(RequestIndex index) {
    params_.remote_request_id = name_of(index);
    return cost([&] { consumer_->request_finished(*this, request(index), {}); });
  }

  void set_time(Seconds now) { consumer_->set_time(now); }
  std::size_t num_heartbeats() const {
    return static_cast<const ConsumerMetadata&>(*metadata_).heartbeats.size();
  }

 private:
  template <class Operation>
  std::uint64_t cost(Operation operation) {
    const std::uint64_t before = work();
    operation();
    return work() - before;
  }
  static std::uint64_t work() {
    return operation_counts.links + operation_counts.requests + operation_counts.probes;
  }
  ConnectorRequest request(RequestIndex index) const override {
    return {index, "B", request_, 8, 0, params_};
  }
  bool is_cached(BlockId) const override { return false; }

  std::unique_ptr<kvfence::DisaggregatedConsumer> consumer_;
  Request request_{RequestSpec{}, HashConfig{}};
  KVTransferParams params_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
};

TEST_P(DisaggregatedOperationCount, LeasesCostNothingUntilTheyAreRenewed) {
  Reading reading(size());
  ASSERT_EQ(reading.num_heartbeats(), size());
  EXPECT_EQ(reading.cost_of_step(), 0U);
  EXPECT_EQ(reading.num_heartbeats(), 0U);
  // Probes of the request's id, whose home slot may be taken.
  EXPECT_LE(reading.add(size()), 6U);
  EXPECT_LE(reading.cost_of_report(size() / 2), 3U);
  EXPECT_LE(reading.cost_of_finish(size() / 3), 3U);
  reading.cost_of_step();
  reading.set_time(500'000);
  EXPECT_EQ(reading.cost_of_step(), size() - 1);
  EXPECT_EQ(reading.num_heartbeats(), size() - 1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, DisaggregatedOperationCount,
                         testing::Values(100, 1'000, 10'000, 100'000));

}  // namespace
}  // namespace kvfence::planted::optimized
