#pragma once

/// The worker's half of the offloading connector, one class for each scheduler's half. The rules of
/// each function stand in contract/connectors/offloading/offloading_connector.h.

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/state_digest.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence::reference {

/// What both forms share: which transfers are under way, and which wait to be submitted.
class OffloadingConnectorWorkerBase : public KVConnectorWorker {
 public:
  bool prefer_cross_layer_blocks() const override { return true; }
  void start_load_kv() override;
  void add_to(StateHash& hash) const override {
    hash.add_all(under_way_, queued_stores_, stats_.data());
  }

 protected:
  /// The number under which this worker runs a job that the metadata tells of.
  virtual JobId number_of(const TransferJob& job) = 0;

  void queue_stores();
  void submit_queued_stores();

  /// A transfer that ended, and is not under way any more.
  struct Ended {
    TransferJob job;
    bool success = true;
  };
  std::vector<Ended> take_ended();

  /// A load that ended, well or badly.
  static void report_load(const Ended& load, KVConnectorWorkerOutput& out);

  /// What was measured since the last report.
  void report_stats(KVConnectorWorkerOutput& out);

  std::map<JobId, TransferJob> under_way_;  ///< started or queued, by this worker's number

 private:
  std::vector<JobId> queued_stores_;  ///< in order
  OffloadingConnectorStats stats_;
};

/// Reports finished_sending once all stores of a finished request are done.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/offloading/worker.py
/// OffloadingConnectorWorker.
class HoldingOffloadingConnectorWorker final : public OffloadingConnectorWorkerBase {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override;
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void start_load_kv() override;
  void wait_for_save() override;
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;
  void add_to(StateHash& hash) const override {
    OffloadingConnectorWorkerBase::add_to(hash);
    hash.add_all(num_jobs_, storing_requests_, waiting_finished_requests_);
  }

 protected:
  JobId number_of(const TransferJob& job) override;

 private:
  std::vector<JobId> stores_of(const std::string& request) const;

  JobId num_jobs_ = 0;                               ///< numbered so far
  std::set<std::string> storing_requests_;           ///< had a store, and were not reported as sent
  std::set<std::string> waiting_finished_requests_;  ///< to be reported when their stores are done
};

/// Reports every job.
/// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/offloading/worker.py
/// OffloadingConnectorWorker; when stores are queued: v1/offloading_connector.py get_finished.
class FencingOffloadingConnectorWorker final : public OffloadingConnectorWorkerBase {
 public:
  std::unique_ptr<KVConnectorWorker> clone() const override;
  void handle_preemptions(const KVConnectorMetadata& metadata) override;
  void wait_for_save() override;
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override;

 protected:
  JobId number_of(const TransferJob& job) override;
};

}  // namespace kvfence::reference
