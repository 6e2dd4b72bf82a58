#include "optimized/connectors/simple/simple_cpu_offload_worker.h"

#include "contract/core/check.h"

namespace kvfence::optimized {
namespace {

const SimpleCPUOffloadMetadata& of_simple_offload(const KVConnectorMetadata& metadata) {
  return static_cast<const SimpleCPUOffloadMetadata&>(metadata);
}

}  // namespace

void SimpleCPUOffloadWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  if (!of_simple_offload(metadata).need_flush) return;
  under_way_.clear();
  for (const bool is_store : {false, true}) {
    const EventQueue& events = directions_[is_store ? kStores : kLoads].events;
    for (std::size_t k = 0; k < events.size(); ++k) {
      under_way_.push_back(transfer_number(events[k].event, is_store));
    }
  }
  if (!under_way_.empty()) copies().wait(under_way_);
}

/// The lists by group stay empty: block k goes to slot k.
void SimpleCPUOffloadWorker::submit(JobId event, bool is_store,
                                    const std::vector<BlockId>& gpu_blocks,
                                    const std::vector<BlockId>& cpu_blocks) {
  job_.job = transfer_number(event, is_store);
  job_.spec.is_store = is_store;
  job_.spec.gpu_blocks = gpu_blocks;
  job_.spec.slots = cpu_blocks;
  copies().transfer_async(job_);
}

void SimpleCPUOffloadWorker::take_ended() {
  copies().get_finished(results_);
  for (const TransferResult& result : results_) {
    const bool is_store = is_store_transfer(result.job);
    std::optional<JobId>& mark = directions_[is_store ? kStores : kLoads].mark;
    mark = std::max(mark.value_or(0), event_of(result.job));
  }
}

void SimpleCPUOffloadWorker::get_finished(std::span<const std::string>,
                                          KVConnectorWorkerOutput& out) {
  out.finished_sending.clear();
  out.finished_recving.clear();
  out.invalid_block_ids.clear();
  out.completed_jobs.clear();

  Direction& loads = directions_[kLoads];
  Direction& stores = directions_[kStores];
  const SimpleCPUOffloadMetadata& step = of_simple_offload(bound_metadata());
  if (step.load_event) {
    submit(*step.load_event, /*is_store=*/false, step.load_gpu_blocks, step.load_cpu_blocks);
    EventQueue::Event& load = loads.events.push();
    load.event = *step.load_event;
    load.requests = step.load_requests;
  }
  if (step.store_event) {
    submit(*step.store_event, /*is_store=*/true, step.store_gpu_blocks, step.store_cpu_blocks);
    stores.events.push().event = *step.store_event;
  }

  take_ended();
  for (; has_ended(loads); loads.events.pop()) {
    const std::vector<std::string>& requests = loads.events[0].requests;
    out.finished_recving.insert(out.finished_recving.end(), requests.begin(), requests.end());
  }
  for (; has_ended(stores); stores.events.pop()) {
    out.completed_jobs.push_back({stores.events[0].event, true});
  }
}

std::unique_ptr<KVConnectorWorker> make_simple_cpu_offload_worker(
    const SimpleCPUOffloadSpec& spec) {
  KVFENCE_CHECK(!check_spec(spec), "no connector can be built from the spec");
  return std::make_unique<SimpleCPUOffloadWorker>();
}

}  // namespace kvfence::optimized
