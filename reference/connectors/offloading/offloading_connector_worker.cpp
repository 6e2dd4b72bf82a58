#include "reference/connectors/offloading/offloading_connector.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/offloading/offloading_connector.h"
#include "contract/core/check.h"
#include "contract/core/lists.h"
#include "contract/core/state_digest.h"
#include "reference/connectors/kv_connector_stats.h"

namespace kvfence::reference {
namespace {

// The worker's half of the offloading connector, one class for each scheduler's half. The rules of
// each function are in contract/connectors/offloading/offloading_connector.h.

constexpr auto& of_offloading = metadata_of<OffloadingConnectorMetadata>;

/// What both forms share: which transfers are under way, and which wait to be submitted.
class OffloadingConnectorWorkerBase : public KVConnectorWorker {
 public:
  bool prefer_cross_layer_blocks() const override { return true; }

  // Queued stores are submitted already, unless handle_preemptions was not called.
  // Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py start_kv_transfers
  void start_load_kv() override {
    submit_queued_stores();
    for (const TransferJob& planned : of_offloading(bound_metadata()).loads) {
      TransferJob load = planned;
      load.job = number_of(planned);
      copies().transfer_async(load);
      under_way_.emplace(load.job, load);
    }
  }

  void add_to(StateHash& hash) const override {
    hash.add_all(under_way_, queued_stores_, stats_.data());
  }

 protected:
  /// The number under which this worker runs a job of the metadata.
  virtual JobId number_of(const TransferJob& job) = 0;

  // Stores wait for the next step, so that what sampling copies goes first.
  // Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py prepare_store_kv
  void queue_stores() {
    for (const TransferJob& planned : of_offloading(bound_metadata()).stores) {
      TransferJob store = planned;
      store.job = number_of(planned);
      queued_stores_.push_back(store.job);
      under_way_.emplace(store.job, store);
    }
  }

  void submit_queued_stores() {
    for (const JobId store : queued_stores_) copies().transfer_async(under_way_.at(store));
    queued_stores_.clear();
  }

  /// A transfer that ended, and is no longer under way.
  struct Ended {
    TransferJob job;
    bool success = true;
  };

  // A result that was reported before is passed over.
  // Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_finished; repeated results:
  // ours
  std::vector<Ended> take_ended() {
    std::vector<TransferResult> results;
    copies().get_finished(results);
    std::vector<Ended> ended;
    for (const TransferResult& result : results) {
      const auto transfer = under_way_.find(result.job);
      if (transfer == under_way_.end()) continue;
      if (result.success && result.seconds != 0) {
        stats_.record_transfer(result.num_bytes, result.seconds,
                               transfer->second.spec.is_store ? TransferType{"GPU", "CPU"}
                                                              : TransferType{"CPU", "GPU"});
      }
      ended.push_back({std::move(transfer->second), result.success});
      under_way_.erase(transfer);
    }
    return ended;
  }

  /// A load that ended, well or badly.
  // Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_finished; failures: ours
  static void report_load(const Ended& load, KVConnectorWorkerOutput& out) {
    out.finished_recving.push_back(load.job.request);
    if (load.success) return;
    for (const BlockId block : load.job.spec.gpu_blocks) {
      if (!contains(out.invalid_block_ids, block)) out.invalid_block_ids.push_back(block);
    }
  }

  /// What was measured since the last report.
  // Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_kv_connector_stats
  void report_stats(KVConnectorWorkerOutput& out) {
    out.stats.assign(stats_.data().begin(), stats_.data().end());
    stats_.reset();
  }

  std::map<JobId, TransferJob> under_way_;  ///< started or queued, by this worker's number

 private:
  std::vector<JobId> queued_stores_;  ///< in order
  OffloadingConnectorStats stats_;
};

/// Reports finished_sending once all stores of a finished request are done.
/// Source: vLLM v0.19.0 distributed/kv_transfer/kv_connector/v1/offloading/worker.py
/// OffloadingConnectorWorker.
class HoldingOffloadingConnectorWorker final
    : public Cloning<HoldingOffloadingConnectorWorker, OffloadingConnectorWorkerBase> {
 public:
  // Source: vLLM v0.19.0 v1/.../offloading/worker.py handle_preemptions
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    submit_queued_stores();
    for (const std::string& request : of_offloading(metadata).requests_to_flush) {
      const std::vector<JobId> stores = stores_of(request);
      if (!stores.empty()) copies().wait(stores);
    }
  }

  // The stores of a request ended when it was preempted: from now on its load alone holds its
  // blocks.
  // Source: vLLM v0.19.0 v1/.../offloading/worker.py start_kv_transfers; forgetting: ours
  void start_load_kv() override {
    OffloadingConnectorWorkerBase::start_load_kv();
    for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
      storing_requests_.erase(load.request);
    }
  }

  // Source: vLLM v0.19.0 v1/offloading_connector.py wait_for_save
  void wait_for_save() override {
    queue_stores();
    for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
      storing_requests_.insert(store.request);
    }
  }

  // Source: vLLM v0.19.0 v1/.../offloading/worker.py get_finished
  void get_finished(std::span<const std::string> finished_requests,
                    KVConnectorWorkerOutput& out) override {
    out = {};
    for (const Ended& ended : take_ended()) {
      const std::string& request = ended.job.request;
      if (!ended.job.spec.is_store) {
        report_load(ended, out);
        continue;
      }
      KVFENCE_CHECK(ended.success, "stores do not fail in this profile");
      if (stores_of(request).empty() && waiting_finished_requests_.erase(request) > 0) {
        out.finished_sending.push_back(request);
        storing_requests_.erase(request);
      }
    }
    for (const std::string& request : finished_requests) {
      if (!stores_of(request).empty()) {
        waiting_finished_requests_.insert(request);
      } else if (storing_requests_.erase(request) > 0) {
        out.finished_sending.push_back(request);
      }
    }
    report_stats(out);
  }

  void add_to(StateHash& hash) const override {
    OffloadingConnectorWorkerBase::add_to(hash);
    hash.add_all(num_jobs_, storing_requests_, waiting_finished_requests_);
  }

 protected:
  // Source: vLLM v0.19.0 v1/.../offloading/worker.py _generate_job_id
  JobId number_of(const TransferJob& /*job*/) override { return num_jobs_++; }

 private:
  std::vector<JobId> stores_of(const std::string& request) const {
    std::vector<JobId> stores;
    for (const auto& [number, job] : under_way_) {
      if (job.spec.is_store && job.request == request) stores.push_back(number);
    }
    return stores;
  }

  JobId num_jobs_ = 0;                               ///< numbered so far
  std::set<std::string> storing_requests_;           ///< had a store, and were not reported as sent
  std::set<std::string> waiting_finished_requests_;  ///< to be reported when their stores are done
};

/// Reports every job.
/// Source: vLLM v0.23.0 distributed/kv_transfer/kv_connector/v1/offloading/worker.py
/// OffloadingConnectorWorker; when stores are queued: v1/offloading_connector.py get_finished.
class FencingOffloadingConnectorWorker final
    : public Cloning<FencingOffloadingConnectorWorker, OffloadingConnectorWorkerBase> {
 public:
  // Source: vLLM v0.23.0 v1/.../offloading/worker.py handle_preemptions
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    submit_queued_stores();
    const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
    if (!jobs_to_flush.empty()) copies().wait(jobs_to_flush);
  }

  // Source: vLLM v0.23.0 v1/offloading_connector.py get_finished; v1/.../offloading/worker.py
  // get_finished, build_connector_worker_meta
  void get_finished(std::span<const std::string> /*finished_requests*/,
                    KVConnectorWorkerOutput& out) override {
    out = {};
    queue_stores();
    for (const Ended& ended : take_ended()) {
      out.completed_jobs.push_back({ended.job.job, ended.success});
      if (!ended.job.spec.is_store) report_load(ended, out);
    }
    report_stats(out);
  }

 protected:
  JobId number_of(const TransferJob& job) override { return job.job; }
};

}  // namespace

std::unique_ptr<KVConnectorWorker> make_offloading_connector_worker(const OffloadingSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  if (spec.manager.rules.offload_fences_reuse) {
    return std::make_unique<FencingOffloadingConnectorWorker>();
  }
  return std::make_unique<HoldingOffloadingConnectorWorker>();
}

}  // namespace kvfence::reference
