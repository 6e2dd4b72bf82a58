// Goal: neither half allocates anything once it has seen its most requests and its longest lists.
// Method: this program counts every call of operator new, over children that allocate nothing
// themselves; names fit into a string's own storage.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "optimized/base/counted_allocations.h"
#include "optimized/connectors/multi/multi_connector.h"
#include "optimized/connectors/multi/multi_connector_worker.h"

namespace kvfence::optimized {
namespace {

/// A number that says nothing.
struct Sum {
  std::uint64_t total = 0;
  void aggregate(const Sum& other) { total += other.total; }
};

/// Has something at every other lookup, and holds every request.
class SteadyChild {
 public:
  using Metadata = int;
  using WorkerMetadata = Sum;
  using Event = int;
  using Handshake = int;
  bool supports_hma() const { return true; }
  void set_xfer_handshake_metadata(const std::vector<int>&) {}
  void on_new_request(std::string_view) {}
  MatchedTokens get_num_new_matched_tokens(std::string_view, std::uint32_t) {
    return {++num_lookups_ % 2 * 8, false};
  }
  void update_state_after_alloc(std::string_view, const BlocksByGroup&, std::uint32_t) {}
  int build_connector_meta() { return 1; }
  void update_connector_output(const AggregatedOutput&, const Sum*) {}
  FinishedAnswer request_finished(std::string_view, std::span<const BlockId>) { return {true, {}}; }
  FinishedAnswer request_finished_all_groups(std::string_view, const BlocksByGroup&) {
    return {true, {}};
  }
  void take_events(std::vector<int>& out) { out.push_back(1); }
  std::optional<bool> reset_cache() { return true; }
  bool shutdown() { return true; }

 private:
  std::uint32_t num_lookups_ = 0;
};

/// Has sent whatever it is told is finished.
class SteadyWorkerChild {
 public:
  using Metadata = int;
  using WorkerMetadata = Sum;
  using Stats = Sum;
  using Handshake = int;
  std::string_view connector_class() const { return "steady"; }
  bool prefer_cross_layer_blocks() const { return true; }
  void register_kv_caches() {}
  void register_cross_layers_kv_cache() {}
  int get_handshake_metadata() { return 1; }
  void handle_preemptions(int) {}
  void bind_connector_metadata(int) {}
  void start_load_kv() {}
  void wait_for_layer_load(std::string_view) {}
  void save_kv_layer(std::string_view) {}
  void wait_for_save() {}
  void get_finished(std::span<const std::string> finished, FinishedTransfers& out) {
    out.sending.assign(finished.begin(), finished.end());
    out.recving.assign(finished.begin(), finished.end());
  }
  void get_block_ids_with_load_errors(std::vector<BlockId>& out) { out.push_back(1); }
  std::optional<Sum> get_kv_connector_stats() { return Sum{1}; }
  std::optional<Sum> build_connector_worker_meta() { return Sum{1}; }
  void clear_connector_metadata() {}
  bool shutdown() { return true; }
};

TEST(NoAllocation, AMultiConnectorInItsSteadyState) {
  MultiConnector<SteadyChild> scheduler(rules_of(Profile::kV023), std::vector<SteadyChild>(3));
  MultiConnectorWorker<SteadyWorkerChild> worker(std::vector<SteadyWorkerChild>(3));
  const std::array<std::string, 16> names = {"a", "b", "c", "d", "e", "f", "g", "h",
                                             "i", "j", "k", "l", "m", "n", "o", "p"};
  const BlocksByGroup blocks = {{1, 2}, {3}};
  MultiConnectorMetadata<int> metadata;
  FinishedAnswer answer;
  FinishedTransfers finished;
  AggregatedOutput output;
  MultiConnectorWorkerMetadata<Sum> worker_metadata;
  std::vector<StatsOfClass<Sum>> stats;
  std::vector<BlockId> errors;
  std::vector<int> events;
  std::size_t num_sent = 0;
  const auto run_steps = [&](std::size_t num_steps) {
    for (std::size_t step = 0; step < num_steps; ++step) {
      const auto some = std::span(names).subspan(step * 5 % 12, 4);
      for (const std::string& name : some) {
        scheduler.on_new_request(name);
        const MatchedTokens matched = scheduler.get_num_new_matched_tokens(name, 0);
        scheduler.update_state_after_alloc(name, blocks, *matched.num_tokens);
        ASSERT_EQ(scheduler.request_finished(name, blocks, answer), ErrorCode::kNone);
      }
      scheduler.build_connector_meta(metadata);
      worker.handle_preemptions(metadata);
      worker.bind_connector_metadata(metadata);
      worker.start_load_kv();
      worker.get_finished(some, finished);
      num_sent += finished.sending.size();
      worker.get_block_ids_with_load_errors(errors);
      ASSERT_TRUE(worker.get_kv_connector_stats(stats));
      ASSERT_TRUE(worker.build_connector_worker_meta(worker_metadata));
      worker.clear_connector_metadata();
      scheduler.update_connector_output(output, &worker_metadata);
      events.clear();
      scheduler.take_events(events);
      ASSERT_TRUE(scheduler.reset_cache());
    }
  };
  run_steps(100);
  const std::size_t num_before = num_allocations();
  num_sent = 0;
  run_steps(1'000);
  EXPECT_EQ(num_allocations(), num_before);
  EXPECT_EQ(num_sent, 4'000u);
}

}  // namespace
}  // namespace kvfence::optimized
