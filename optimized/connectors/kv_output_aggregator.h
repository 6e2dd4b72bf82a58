#pragma once

/// KVOutputAggregator: makes one report of the reports of all ranks. The rules are in
/// contract/connectors/kv_output_aggregator.h.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/kv_output_aggregator.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "optimized/base/slots.h"
#include "optimized/connectors/kv_connector_stats.h"

namespace kvfence::optimized {

class KVOutputAggregator final : public kvfence::KVOutputAggregator {
 public:
  /// Requires: num_workers > 0.
  explicit KVOutputAggregator(std::uint32_t num_workers) : num_workers_(num_workers) {}

  /// Cost: O(what is reported), and sorting invalid blocks and jobs.
  void aggregate(std::span<const KVConnectorWorkerOutput> outputs, AggregatedOutput& out) override {
    out.finished_sending.clear();
    out.finished_recving.clear();
    out.invalid_block_ids.clear();
    out.completed_jobs.clear();
    stats_.reset();
    for (const KVConnectorWorkerOutput& output : outputs) {
      count(output.finished_sending, sending_, out.finished_sending);
      count(output.finished_recving, recving_, out.finished_recving);
      out.invalid_block_ids.insert(out.invalid_block_ids.end(), output.invalid_block_ids.begin(),
                                   output.invalid_block_ids.end());
      for (const TransferResult& result : output.completed_jobs) {
        out.completed_jobs.push_back({result.job, 1, result.success ? 0U : 1U});
      }
      stats_.aggregate(output.stats);
      for (const TransferOperationsOfClass& child : output.stats_of_children) {
        stats_of_children_.aggregate(child.connector_class, child.stats);
      }
    }
    keep_each_once(out.invalid_block_ids);
    add_up(out.completed_jobs);
    stats_.move_to(out.stats);
    stats_of_children_.move_to(out.stats_of_children);
  }

  void add_to(StateHash& hash) const override { hash.add_all(sending_, recving_); }

 private:
  /// A request that some ranks have reported.
  struct Reported {
    std::string id;
    std::uint32_t num_missing = 0;  ///< ranks
  };

  void count(const std::vector<std::string>& ids, NamedSlots<Reported>& reported,
             std::vector<std::string>& finished) {
    for (const std::string& id : ids) {
      const std::optional<std::uint32_t> slot = reported.find(id);
      if (!slot && num_workers_ > 1) {
        reported[reported.insert(id)].num_missing = num_workers_ - 1;
        continue;
      }
      if (slot) {
        if (--reported[*slot].num_missing > 0) continue;
        reported.erase(*slot);
      }
      finished.push_back(id);
    }
  }

  /// One entry per job, ascending.
  static void add_up(std::vector<CompletedJob>& jobs) {
    std::ranges::sort(jobs, {}, &CompletedJob::job);
    std::size_t size = 0;
    for (const CompletedJob& job : jobs) {
      if (size == 0 || jobs[size - 1].job != job.job) {
        jobs[size++] = job;
        continue;
      }
      jobs[size - 1].num_failed += job.num_failed;
      jobs[size - 1].num_workers += job.num_workers;
    }
    jobs.resize(size);
  }

  std::uint32_t num_workers_;
  NamedSlots<Reported> sending_;
  NamedSlots<Reported> recving_;
  OffloadingConnectorStats stats_;
  StatsByClass stats_of_children_;  ///< of MultiConnectors only
};

}  // namespace kvfence::optimized
