#pragma once

/// Aggregates the reports of all ranks into one. The rules are in
/// contract/connectors/kv_output_aggregator.h.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/utils.py KVOutputAggregator; completed
/// jobs: v0.23.0 v1/.../offloading/common.py OffloadingWorkerMetadata.aggregate.

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence::reference {

class KVOutputAggregator final : public kvfence::KVOutputAggregator {
 public:
  explicit KVOutputAggregator(std::uint32_t num_workers) : num_workers_(num_workers) {}

  void aggregate(std::span<const KVConnectorWorkerOutput> outputs, AggregatedOutput& out) override {
    KVFENCE_CHECK(outputs.size() == num_workers_, "each rank reports");
    out = {};
    std::set<BlockId> invalid_blocks;
    std::map<JobId, CompletedJob> completed_jobs;
    OffloadingConnectorStats stats;
    StatsByClass stats_of_children;
    for (const KVConnectorWorkerOutput& output : outputs) {
      count(output.finished_sending, num_sent_, out.finished_sending);
      count(output.finished_recving, num_received_, out.finished_recving);
      invalid_blocks.insert(output.invalid_block_ids.begin(), output.invalid_block_ids.end());
      for (const TransferResult& result : output.completed_jobs) {
        CompletedJob& completed = completed_jobs[result.job];
        completed.job = result.job;
        ++completed.num_workers;
        if (!result.success) ++completed.num_failed;
      }
      stats.aggregate(output.stats);
      for (const TransferOperationsOfClass& child : output.stats_of_children) {
        stats_of_children.aggregate(child.connector_class, child.stats);
      }
    }
    out.invalid_block_ids.assign(invalid_blocks.begin(), invalid_blocks.end());
    for (const auto& [job, completed] : completed_jobs) out.completed_jobs.push_back(completed);
    out.stats.assign(stats.data().begin(), stats.data().end());
    out.stats_of_children = stats_of_children.data();
  }

  void add_to(StateHash& hash) const override { hash.add_all(num_sent_, num_received_); }

 private:
  using Counts =
      std::map<std::string, std::uint32_t>;  ///< ranks that reported a request, if not all

  void count(std::span<const std::string> requests, Counts& counts,
             std::vector<std::string>& finished) const {
    for (const std::string& request : requests) {
      if (++counts[request] < num_workers_) continue;
      counts.erase(request);
      finished.push_back(request);
    }
  }

  std::uint32_t num_workers_;
  Counts num_sent_;
  Counts num_received_;
};

}  // namespace kvfence::reference
