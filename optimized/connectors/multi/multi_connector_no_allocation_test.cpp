// Goal: once they have seen their most requests and their longest lists, both halves allocate only
// a step's metadata, which the workers own.
// Method: this program counts every call of operator new, over children that allocate nothing
// themselves; names fit into a string's own storage.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/core/cloned.h"
#include "contract/scheduler/scheduler.h"
#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/multi/multi_connector.h"

namespace kvfence::optimized {
namespace {

/// Has a hit at every other lookup, and holds every request.
class SteadyChild final : public Cloning<SteadyChild, KVConnector> {
 public:
  MatchedTokens get_num_new_matched_tokens(const ConnectorRequest&, std::uint32_t) override {
    return {++num_lookups_ % 2 * 8, true};
  }
  void update_state_after_alloc(ConnectorHost&, const ConnectorRequest&, const BlocksByGroup&,
                                std::uint32_t) override {}
  std::shared_ptr<const KVConnectorMetadata> build_connector_meta(ConnectorHost&,
                                                                  const SchedulerOutput&) override {
    return metadata_;
  }
  bool request_finished(ConnectorHost&, const ConnectorRequest&, const BlocksByGroup&) override {
    return true;
  }

 private:
  std::shared_ptr<const KVConnectorMetadata> metadata_ = std::make_shared<KVConnectorMetadata>();
  std::uint32_t num_lookups_ = 0;
};

/// Reports every finished request as sent.
class SteadyWorker final : public Cloning<SteadyWorker, KVConnectorWorker> {
 public:
  void start_load_kv() override {}
  void get_finished(std::span<const std::string> finished, KVConnectorWorkerOutput& out) override {
    out.finished_sending.assign(finished.begin(), finished.end());
    out.finished_recving.assign(finished.begin(), finished.end());
    out.invalid_block_ids.assign(1, 1);
    out.completed_jobs.resize(1);
  }
};

struct NoHost final : ConnectorHost {
  ConnectorRequest request(RequestIndex) const override { throw std::logic_error("not used"); }
  bool is_cached(BlockId) const override { return false; }
};

TEST(NoAllocation, AMultiConnectorInItsSteadyState) {
  std::vector<KVConnectorHandle> children;
  std::vector<MultiConnectorChildWorker> workers;
  for (int child = 0; child < 3; ++child) {
    children.emplace_back(std::make_unique<SteadyChild>());
    workers.push_back({"steady", KVConnectorWorkerHandle(std::make_unique<SteadyWorker>())});
  }
  const auto scheduler = make_multi_connector_scheduler(rules_of(Profile::kV023), children);
  const auto worker = make_multi_connector_worker(workers);
  const std::array<std::string, 16> names = {"a", "b", "c", "d", "e", "f", "g", "h",
                                             "i", "j", "k", "l", "m", "n", "o", "p"};
  const BlocksByGroup blocks = {{1, 2}, {3}};
  const Request tokens(RequestSpec{{1}, {}, {}, {}}, HashConfig{});
  const KVTransferParams params;
  NoHost host;
  const SchedulerOutput step;
  KVConnectorWorkerOutput report;
  KVConnectorOutput output;
  std::vector<KVCacheEvent> events;
  std::size_t num_sent = 0;
  std::size_t num_for_metadata = 0;
  const auto run_steps = [&](std::size_t num_steps) {
    for (std::size_t at = 0; at < num_steps; ++at) {
      const auto some = std::span(names).subspan(at * 5 % 12, 4);
      output.finished_recving.clear();
      for (const std::string& name : some) {
        const ConnectorRequest request{.index = static_cast<RequestIndex>(&name - names.data()),
                                       .id = name,
                                       .request = tokens,
                                       .params = params};
        scheduler->on_new_request(request);
        const MatchedTokens matched = scheduler->get_num_new_matched_tokens(request, 0);
        scheduler->update_state_after_alloc(host, request, blocks, *matched.num_tokens);
        ASSERT_TRUE(scheduler->request_finished(host, request, blocks));
        output.finished_recving.push_back(request.index);
      }
      const std::size_t num_before = num_allocations();
      const auto metadata = scheduler->build_connector_meta(host, step);
      num_for_metadata += num_allocations() - num_before;
      worker->handle_preemptions(*metadata);
      worker->bind_connector_metadata(*metadata);
      worker->start_load_kv();
      worker->get_finished(some, report);
      num_sent += report.finished_sending.size();
      worker->clear_connector_metadata();
      output.completed_jobs.clear();
      for (const TransferResult& result : report.completed_jobs) {
        output.completed_jobs.push_back({result.job, 1, 0});
      }
      scheduler->update_connector_output(host, output);
      scheduler->take_events(events);
      ASSERT_TRUE(scheduler->reset_cache());
    }
  };
  run_steps(100);
  const std::size_t num_before = num_allocations();
  num_sent = 0;
  num_for_metadata = 0;
  run_steps(1'000);
  EXPECT_EQ(num_allocations() - num_before, num_for_metadata);
  EXPECT_LE(num_for_metadata, 1'000u * 8)
      << "the metadata, and two lists that grow to four entries";
  EXPECT_EQ(num_sent, 4'000u);
}

}  // namespace
}  // namespace kvfence::optimized
