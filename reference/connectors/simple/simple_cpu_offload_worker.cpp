#include "reference/connectors/simple/simple_cpu_offload.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "contract/connectors/simple/simple_cpu_offload.h"
#include "contract/core/check.h"
#include "contract/core/state_digest.h"

namespace kvfence::reference {
namespace {

TransferJob transfer_of(JobId event, bool is_store, const std::vector<BlockId>& gpu_blocks,
                        const std::vector<BlockId>& cpu_blocks) {
  TransferJob transfer;
  transfer.job = transfer_number(event, is_store);
  transfer.spec.is_store = is_store;
  transfer.spec.gpu_blocks = gpu_blocks;
  transfer.spec.slots = cpu_blocks;
  return transfer;
}

/// Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py SimpleCPUOffloadWorker.
class SimpleCPUOffloadWorker final : public Cloning<SimpleCPUOffloadWorker, KVConnectorWorker> {
 public:
  // Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py handle_preemptions, _flush_and_sync_all;
  // what the copying thread has not started yet: ours
  void handle_preemptions(const KVConnectorMetadata& metadata) override {
    if (!metadata_of<SimpleCPUOffloadMetadata>(metadata).need_flush) return;
    std::vector<JobId> under_way;
    for (const auto& [event, requests] : loads_) {
      under_way.push_back(transfer_number(event, /*is_store=*/false));
    }
    for (const JobId event : stores_)
      under_way.push_back(transfer_number(event, /*is_store=*/true));
    if (!under_way.empty()) copies().wait(under_way);
  }

  void start_load_kv() override {}

  // Source: vLLM v0.19.0 v1/simple_kv_offload/worker.py bind_connector_metadata, get_finished,
  // _poll_stream_events, build_connector_worker_meta
  void get_finished(std::span<const std::string> /*finished_requests*/,
                    KVConnectorWorkerOutput& out) override {
    out = {};
    const SimpleCPUOffloadMetadata& metadata =
        metadata_of<SimpleCPUOffloadMetadata>(bound_metadata());
    if (metadata.load_event) {
      copies().transfer_async(transfer_of(*metadata.load_event, /*is_store=*/false,
                                          metadata.load_gpu_blocks, metadata.load_cpu_blocks));
      loads_.emplace(*metadata.load_event, metadata.load_requests);
    }
    if (metadata.store_event) {
      copies().transfer_async(transfer_of(*metadata.store_event, /*is_store=*/true,
                                          metadata.store_gpu_blocks, metadata.store_cpu_blocks));
      stores_.insert(*metadata.store_event);
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

  void add_to(StateHash& hash) const override {
    hash.add_all(loads_, stores_, load_mark_, store_mark_);
  }

 private:
  std::map<JobId, std::vector<std::string>> loads_;  ///< by event, not reported: waiting requests
  std::set<JobId> stores_;                           ///< events, not reported
  std::optional<JobId> load_mark_;                   ///< greatest event that ended
  std::optional<JobId> store_mark_;
};

}  // namespace

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(
    const SimpleCPUOffloadSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from this spec");
  return std::make_unique<SimpleCPUOffloadWorker>();
}

}  // namespace kvfence::reference
