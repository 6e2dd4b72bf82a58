#include "reference/connectors/offloading/offloading_connector_worker.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

const OffloadingConnectorMetadata& of_offloading(const KVConnectorMetadata& metadata) {
  const auto* const offloading = dynamic_cast<const OffloadingConnectorMetadata*>(&metadata);
  KVFENCE_CHECK(offloading != nullptr, "metadata of another connector");
  return *offloading;
}

}  // namespace

// What both share.

// Queued stores are submitted already, unless nobody called handle_preemptions.
// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py start_kv_transfers
void OffloadingConnectorWorkerBase::start_load_kv() {
  submit_queued_stores();
  for (const TransferJob& told : of_offloading(bound_metadata()).loads) {
    TransferJob load = told;
    load.job = number_of(told);
    copies().transfer_async(load);
    under_way_.emplace(load.job, load);
  }
}

// Stores wait for the next step, so that what sampling copies goes first.
// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py prepare_store_kv
void OffloadingConnectorWorkerBase::queue_stores() {
  for (const TransferJob& told : of_offloading(bound_metadata()).stores) {
    TransferJob store = told;
    store.job = number_of(told);
    queued_stores_.push_back(store.job);
    under_way_.emplace(store.job, store);
  }
}

void OffloadingConnectorWorkerBase::submit_queued_stores() {
  for (const JobId store : queued_stores_) copies().transfer_async(under_way_.at(store));
  queued_stores_.clear();
}

// A result that was reported before is passed over.
// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_finished; repeated results: ours
std::vector<OffloadingConnectorWorkerBase::Ended> OffloadingConnectorWorkerBase::take_ended() {
  std::vector<TransferResult> results;
  copies().get_finished(results);
  std::vector<Ended> ended;
  for (const TransferResult& result : results) {
    const auto transfer = under_way_.find(result.job);
    if (transfer == under_way_.end()) continue;
    if (result.success && result.seconds != 0) {
      stats_.record_transfer(
          result.num_bytes, result.seconds,
          transfer->second.spec.is_store ? TransferType{"GPU", "CPU"} : TransferType{"CPU", "GPU"});
    }
    ended.push_back({std::move(transfer->second), result.success});
    under_way_.erase(transfer);
  }
  return ended;
}

// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_kv_connector_stats
void OffloadingConnectorWorkerBase::report_stats(KVConnectorWorkerOutput& out) {
  out.stats.assign(stats_.data().begin(), stats_.data().end());
  stats_.reset();
}

// Source: vLLM v0.19.0 and v0.23.0 v1/.../offloading/worker.py get_finished; failures: ours
void OffloadingConnectorWorkerBase::report_load(const Ended& load, KVConnectorWorkerOutput& out) {
  out.finished_recving.push_back(load.job.request);
  if (load.success) return;
  for (const BlockId block : load.job.spec.gpu_blocks) {
    const auto listed =
        std::find(out.invalid_block_ids.begin(), out.invalid_block_ids.end(), block);
    if (listed == out.invalid_block_ids.end()) out.invalid_block_ids.push_back(block);
  }
}

// Hold.

std::unique_ptr<KVConnectorWorker> HoldingOffloadingConnectorWorker::clone() const {
  return std::make_unique<HoldingOffloadingConnectorWorker>(*this);
}

// Source: vLLM v0.19.0 v1/.../offloading/worker.py _generate_job_id
JobId HoldingOffloadingConnectorWorker::number_of(const TransferJob& /*job*/) {
  return num_jobs_++;
}

std::vector<JobId> HoldingOffloadingConnectorWorker::stores_of(const std::string& request) const {
  std::vector<JobId> stores;
  for (const auto& [number, job] : under_way_) {
    if (job.spec.is_store && job.request == request) stores.push_back(number);
  }
  return stores;
}

// Source: vLLM v0.19.0 v1/.../offloading/worker.py handle_preemptions
void HoldingOffloadingConnectorWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  submit_queued_stores();
  for (const std::string& request : of_offloading(metadata).requests_to_flush) {
    const std::vector<JobId> stores = stores_of(request);
    if (!stores.empty()) copies().wait(stores);
  }
}

// Its stores ended when a request was preempted: from now on its load alone holds its blocks.
// Source: vLLM v0.19.0 v1/.../offloading/worker.py start_kv_transfers; forgetting: ours
void HoldingOffloadingConnectorWorker::start_load_kv() {
  OffloadingConnectorWorkerBase::start_load_kv();
  for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
    storing_requests_.erase(load.request);
  }
}

// Source: vLLM v0.19.0 v1/offloading_connector.py wait_for_save
void HoldingOffloadingConnectorWorker::wait_for_save() {
  queue_stores();
  for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
    storing_requests_.insert(store.request);
  }
}

// Source: vLLM v0.19.0 v1/.../offloading/worker.py get_finished
void HoldingOffloadingConnectorWorker::get_finished(std::span<const std::string> finished_requests,
                                                    KVConnectorWorkerOutput& out) {
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

// Fence.

std::unique_ptr<KVConnectorWorker> FencingOffloadingConnectorWorker::clone() const {
  return std::make_unique<FencingOffloadingConnectorWorker>(*this);
}

JobId FencingOffloadingConnectorWorker::number_of(const TransferJob& job) { return job.job; }

// Source: vLLM v0.23.0 v1/.../offloading/worker.py handle_preemptions
void FencingOffloadingConnectorWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  submit_queued_stores();
  const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
  if (!jobs_to_flush.empty()) copies().wait(jobs_to_flush);
}

void FencingOffloadingConnectorWorker::wait_for_save() {}

// Source: vLLM v0.23.0 v1/offloading_connector.py get_finished; v1/.../offloading/worker.py
// get_finished, build_connector_worker_meta
void FencingOffloadingConnectorWorker::get_finished(
    std::span<const std::string> /*finished_requests*/, KVConnectorWorkerOutput& out) {
  out = {};
  queue_stores();
  for (const Ended& ended : take_ended()) {
    out.completed_jobs.push_back({ended.job.job, ended.success});
    if (!ended.job.spec.is_store) report_load(ended, out);
  }
  report_stats(out);
}

}  // namespace kvfence::reference
