// Goal: once they have seen their largest load, the halves of a pair allocate only metadata that
// are not empty, and the parameters for a router. Method: this program counts every call of
// operator new. Request ids fit into the string itself.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/scheduler/scheduler.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/disaggregated/disaggregated_connector.h"
#include "optimized/connectors/kv_output_aggregator.h"

namespace kvfence::optimized {
namespace {

constexpr RequestIndex kNumRequests = 8;

/// Each read has ended when its rank polls, and each notice arrives at once.
class BriskTransport final : public Transport {
 public:
  void listen(std::uint32_t) override {}
  Seconds now() const override { return now_; }
  ReadId read(const ReadSpec& spec) override {
    ended_.push_back({next_read_, next_read_ % 4 != 0});
    if (ended_.back().success) notify(/*is_heartbeat=*/false, spec.remote_request);
    return next_read_++;
  }
  void get_finished_reads(std::uint32_t, std::vector<ReadResult>& out) override {
    out.clear();
    out.swap(ended_);
  }
  void send_notice(const Notice& notice) override {
    for (const std::string& request : notice.requests) notify(notice.is_heartbeat, request);
  }
  void get_new_notices(std::uint32_t, std::vector<Notice>& out) override {
    const std::size_t before = num_allocations();
    out = notices_;
    notices_.clear();
    num_allocated += num_allocations() - before;
  }
  void close(std::uint32_t, const std::string&) override { ++num_closed; }

  void advance_clock() { ++now_; }

  std::size_t num_closed = 0;
  std::size_t num_allocated = 0;  ///< by this transport

 private:
  void notify(bool is_heartbeat, const std::string& request) {
    const std::size_t before = num_allocations();
    notices_.push_back({0, 0, is_heartbeat, {request}});
    num_allocated += num_allocations() - before;
  }

  Seconds now_ = 0;
  ReadId next_read_ = 0;
  std::vector<ReadResult> ended_;
  std::vector<Notice> notices_;
};

/// The number of allocations, by kind of call.
struct Cost {
  std::size_t of_metadata = 0;    ///< metadata that are not empty, and parameters for a router
  std::size_t of_idle_steps = 0;  ///< of steps with empty metadata
  std::size_t of_the_rest = 0;    ///< of the schedulers' halves
  std::size_t of_workers = 0;     ///< and of the aggregators
};

/// Repeats the life of the same requests, with all calls that concern them.
class World final : private ConnectorHost {
 public:
  explicit World(const DisaggregatedSpec& spec)
      : producer_(make_disaggregated_producer(spec)),
        consumer_(make_disaggregated_consumer(spec)),
        workers_{make_disaggregated_producer_worker(spec, 0, transport_),
                 make_disaggregated_consumer_worker(spec, 0, transport_)} {
    report_.finished_recving.resize(1);
  }

  /// Each request is computed, offered, read or given up, decoded and gone.
  Cost life() {
    Cost cost;
    for (RequestIndex index = 0; index < kNumRequests; ++index) {
      id_ = static_cast<char>('A' + index);
      add([&] { producer_->update_state_after_alloc(*this, prefill(index), blocks_, 0); },
          cost.of_metadata);
      step(*producer_, 0, /*has_metadata=*/true, cost);
      status_ = RequestStatus::kFinishedLengthCapped;
      add([&] { is_held_ = producer_->request_finished(*this, prefill(index), blocks_); },
          cost.of_metadata);
      EXPECT_TRUE(is_held_);
      prefills_.clear();
      add([&] { producer_->take_remote_prefills(prefills_); }, cost.of_metadata);
      step(*producer_, 0, /*has_metadata=*/true, cost);
      step(*producer_, 0, /*has_metadata=*/false, cost);
      read(index, cost);
      transport_.advance_clock();
      step(*producer_, 0, /*has_metadata=*/false, cost);
    }
    return cost;
  }

  BriskTransport& transport() { return transport_; }

 private:
  template <class Operation>
  static void add(Operation operation, std::size_t& cost) {
    const std::size_t before = num_allocations();
    operation();
    cost += num_allocations() - before;
  }

  void read(RequestIndex index, Cost& cost) {
    const ConnectorRequest reader = view(index, prefills_.back().params);
    add([&] { consumer_->on_new_request(reader); }, cost.of_the_rest);
    step(*consumer_, 1, /*has_metadata=*/true, cost);
    add([&] { matched_ = consumer_->get_num_new_matched_tokens(reader, 0); }, cost.of_the_rest);
    EXPECT_TRUE(matched_.load_async);
    if (index % 3 != 0) {
      add([&] { consumer_->update_state_after_alloc(*this, reader, blocks_, 8); },
          cost.of_metadata);
    }
    step(*consumer_, 1, /*has_metadata=*/true, cost);
    report_.finished_recving.front() = index;
    add([&] { consumer_->update_connector_output(*this, report_); }, cost.of_the_rest);
    add([&] { consumer_->request_finished(*this, reader, blocks_); },
        index % 3 != 0 ? cost.of_the_rest : cost.of_metadata);
    step(*consumer_, 1, /*has_metadata=*/index % 3 == 0, cost);
    step(*consumer_, 1, /*has_metadata=*/false, cost);
  }

  void step(KVConnector& half, std::size_t role, bool has_metadata, Cost& cost) {
    add([&] { metadata_ = half.build_connector_meta(*this, nothing_planned_); },
        has_metadata ? cost.of_metadata : cost.of_idle_steps);
    transport_.num_allocated = 0;
    add(
        [&] {
          workers_[role]->bind_connector_metadata(*metadata_);
          workers_[role]->start_load_kv();
          workers_[role]->get_finished({}, reports_[role]);
          aggregators_[role].aggregate(std::span(&reports_[role], 1), aggregated_);
        },
        cost.of_workers);
    cost.of_workers -= transport_.num_allocated;
  }

  ConnectorRequest prefill(RequestIndex index) const { return view(index, prefill_params_); }
  ConnectorRequest view(RequestIndex index, const KVTransferParams& params) const {
    return {index, id_, request_, 8, 0, params, status_};
  }
  ConnectorRequest request(RequestIndex index) const override { return prefill(index); }
  bool is_cached(BlockId) const override { return false; }

  std::unique_ptr<DisaggregatedProducer> producer_;
  std::unique_ptr<DisaggregatedConsumer> consumer_;
  BriskTransport transport_;
  std::array<std::unique_ptr<KVConnectorWorker>, 2> workers_;
  std::array<KVOutputAggregator, 2> aggregators_{KVOutputAggregator(1), KVOutputAggregator(1)};
  Request request_{RequestSpec{}, HashConfig{}};
  KVTransferParams prefill_params_{std::nullopt, /*do_remote_decode=*/true};
  BlocksByGroup blocks_ = {{1, 2}};
  std::string id_;
  RequestStatus status_{};
  bool is_held_ = false;
  MatchedTokens matched_;
  SchedulerOutput nothing_planned_;
  std::vector<RemotePrefill> prefills_;
  std::shared_ptr<const KVConnectorMetadata> metadata_;
  std::array<KVConnectorWorkerOutput, 2> reports_;
  AggregatedOutput aggregated_;
  KVConnectorOutput report_;
};

class DisaggregatedNoAllocation : public testing::TestWithParam<Profile> {};

TEST_P(DisaggregatedNoAllocation, ButMetadataAndParameters) {
  DisaggregatedSpec spec;
  spec.rules = rules_of(GetParam());
  spec.deadline = 5;
  World world(spec);
  const std::size_t before = num_allocations();
  for (int i = 0; i < 10; ++i) world.life();
  ASSERT_GT(num_allocations(), before);  // the counter counts
  const std::size_t num_closed = world.transport().num_closed;
  for (int i = 0; i < 100; ++i) {
    const Cost cost = world.life();
    EXPECT_EQ(cost.of_idle_steps, 0U);
    EXPECT_EQ(cost.of_the_rest, 0U);
    EXPECT_EQ(cost.of_workers, 0U);
    EXPECT_GT(cost.of_metadata, 0U);
    // Metadata, their lists, lists of blocks, and parameters for a router.
    EXPECT_LE(cost.of_metadata, kNumRequests * 20U);
  }
  // By a notice or by the deadline, each was given back.
  EXPECT_EQ(world.transport().num_closed, num_closed + 100 * kNumRequests);
}

INSTANTIATE_TEST_SUITE_P(Profiles, DisaggregatedNoAllocation, testing::ValuesIn(kProfiles),
                         [](const auto& param) {
                           return param.param == Profile::kV019 ? "v019" : "v023";
                         });

}  // namespace
}  // namespace kvfence::optimized
