#include "reference/connectors/simple/simple_cpu_offload_worker.h"

#include <algorithm>

#include "contract/core/check.h"

namespace kvfence::reference {
namespace {

const SimpleCPUOffloadMetadata& of_simple_offload(const KVConnectorMetadata& metadata) {
  const auto* const simple = dynamic_cast<const SimpleCPUOffloadMetadata*>(&metadata);
  KVFENCE_CHECK(simple != nullptr, "metadata of another connector");
  return *simple;
}

TransferJob transfer_of(JobId event, bool is_store, const std::vector<BlockId>& gpu_blocks,
                        const std::vector<BlockId>& cpu_blocks) {
  TransferJob transfer;
  transfer.job = transfer_number(event, is_store);
  transfer.spec.is_store = is_store;
  transfer.spec.gpu_blocks = gpu_blocks;
  transfer.spec.slots = cpu_blocks;
  return transfer;
}

}  // namespace

std::unique_ptr<KVConnectorWorker> SimpleCPUOffloadWorker::clone() const {
  return std::make_unique<SimpleCPUOffloadWorker>(*this);
}

// Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py handle_preemptions, _flush_and_sync_all; what
// the copying thread has not started yet: ours
void SimpleCPUOffloadWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  if (!of_simple_offload(metadata).need_flush) return;
  std::vector<JobId> under_way;
  for (const auto& [event, requests] : loads_) {
    under_way.push_back(transfer_number(event, /*is_store=*/false));
  }
  for (const JobId event : stores_) under_way.push_back(transfer_number(event, /*is_store=*/true));
  if (!under_way.empty()) copies().wait(under_way);
}

void SimpleCPUOffloadWorker::start_load_kv() {}

void SimpleCPUOffloadWorker::wait_for_save() {}

// Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py bind_connector_metadata, get_finished,
// _poll_stream_events, build_connector_worker_meta
void SimpleCPUOffloadWorker::get_finished(std::span<const std::string> /*finished_requests*/,
                                          KVConnectorWorkerOutput& out) {
  out = {};
  const SimpleCPUOffloadMetadata& told = of_simple_offload(bound_metadata());
  if (told.load_event) {
    copies().transfer_async(transfer_of(*told.load_event, /*is_store=*/false, told.load_gpu_blocks,
                                        told.load_cpu_blocks));
    loads_.emplace(*told.load_event, told.load_requests);
  }
  if (told.store_event) {
    copies().transfer_async(transfer_of(*told.store_event, /*is_store=*/true, told.store_gpu_blocks,
                                        told.store_cpu_blocks));
    stores_.insert(*told.store_event);
  }

  std::vector<TransferResult> results;
  copies().get_finished(results);
  for (const TransferResult& result : results) {
    KVFENCE_CHECK(result.success, "these copies do not fail");
    std::optional<JobId>& mark = is_store_transfer(result.job) ? store_mark_ : load_mark_;
    mark = std::max(mark.value_or(0), event_of(result.job));
  }

  while (load_mark_ && !loads_.empty() && loads_.begin()->first <= *load_mark_) {
    const std::vector<std::string>& requests = loads_.begin()->second;
    out.finished_recving.insert(out.finished_recving.end(), requests.begin(), requests.end());
    loads_.erase(loads_.begin());
  }
  while (store_mark_ && !stores_.empty() && *stores_.begin() <= *store_mark_) {
    out.completed_jobs.push_back({*stores_.begin(), /*success=*/true});
    stores_.erase(stores_.begin());
  }
}

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(
    const SimpleCPUOffloadSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  return std::make_unique<SimpleCPUOffloadWorker>();
}

}  // namespace kvfence::reference
