#pragma once

/// The worker's halves of an offloading connector. The rules stand in
/// contract/connectors/offloading/offloading_connector.h. A step costs its transfers, those that
/// ended, the requests to flush and the finished ones.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/connectors/kv_connector_worker.h"
#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "optimized/base/request_ids.h"
#include "optimized/connectors/kv_connector_stats.h"
#include "optimized/connectors/offloading/transfers_under_way.h"

namespace kvfence::optimized {

/// The statistics of a step.
class MeasuredTransfers {
 public:
  /// A transfer ended. One that failed, or took nobody knows how long, does not count.
  void add(const TransferResult& result, bool is_store) {
    if (!result.success || result.seconds == 0) return;
    stats_.record_transfer(result.num_bytes, result.seconds,
                           is_store ? TransferType{"GPU", "CPU"} : TransferType{"CPU", "GPU"});
  }

  void report(KVConnectorWorkerOutput& out) { stats_.move_to(out.stats); }
  void add_to(StateHash& hash) const { hash.add(stats_.data()); }

 private:
  OffloadingConnectorStats stats_;
};

/// Without Rules::offload_fences_reuse: numbers its transfers itself.
class HoldingConnectorWorker final : public KVConnectorWorker {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<HoldingConnectorWorker>(*this);
  }
  bool prefer_cross_layer_blocks() const override { return true; }
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void start_load_kv() override;
  void wait_for_save() override;
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;

  void add_to(StateHash& hash) const override {
    hash.add_all(measured_, next_job_, queue_, transfers_, storing_, free_storing_);
  }

 private:
  static constexpr std::uint32_t kNone = TransfersUnderWay::kNone;

  /// A request that stored something since it was last reported as sent.
  struct Storing {
    std::string id;
    std::uint32_t first_store = kNone;  ///< of those under way, the newest
    bool is_finished = false;           ///< it waits for the end of its stores
    void add_to(StateHash& hash) const { hash.add_all(id, first_store, is_finished); }
  };

  std::optional<std::uint32_t> find_storing(std::string_view id) const;
  std::uint32_t find_or_add_storing(const std::string& id);
  void erase_storing(std::uint32_t at);
  void forget_stores(std::string_view id);
  void disown(std::uint32_t at);
  void flush(const OffloadingConnectorMetadata& metadata);
  void end_store(std::uint32_t slot, KVConnectorWorkerOutput& out);

  MeasuredTransfers measured_;
  JobId next_job_ = 0;
  TransferQueue queue_;
  TransfersUnderWay transfers_;
  std::vector<Storing> storing_;
  std::vector<std::uint32_t> free_storing_;
  RequestIds storing_of_id_;

  // Storage of single calls, kept for the next one.
  TransferJob numbered_;
  std::vector<JobId> to_flush_;
  std::vector<TransferResult> results_;
};

/// With it: transfers have the scheduler's numbers.
class FencingConnectorWorker final : public KVConnectorWorker {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override {
    return std::make_unique<FencingConnectorWorker>(*this);
  }
  bool prefer_cross_layer_blocks() const override { return true; }
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void start_load_kv() override;
  void wait_for_save() override {}
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;

  void add_to(StateHash& hash) const override { hash.add_all(measured_, queue_, transfers_); }

 private:
  void queue_stores(const OffloadingConnectorMetadata& metadata);

  MeasuredTransfers measured_;
  TransferQueue queue_;
  TransfersUnderWay transfers_;
  std::vector<TransferResult> results_;  ///< of the call that runs
};

}  // namespace kvfence::optimized
