#include "optimized/connectors/offloading/offloading_connector_worker.h"

#include <algorithm>

namespace kvfence::optimized {
namespace {

using Bug = PlantedConnectorBug;

const OffloadingConnectorMetadata& of_offloading(const KVConnectorMetadata& metadata) {
  return static_cast<const OffloadingConnectorMetadata&>(metadata);
}

void clear(KVConnectorWorkerOutput& out) {
  out.finished_sending.clear();
  out.finished_recving.clear();
  out.invalid_block_ids.clear();
  out.completed_jobs.clear();
}

/// The load is over, well or badly.
template <class Instrumentation>
void report_load(const TransferUnderWay& load, bool success, const Instrumentation& instrumentation,
                 KVConnectorWorkerOutput& out) {
  if (success || !instrumentation.planted(Bug::kFailedLoadNotFinished)) {
    out.finished_recving.push_back(load.request);
  }
  if (success || instrumentation.planted(Bug::kFailedLoadNotReported)) return;
  std::copy_if(load.gpu_blocks.begin(), load.gpu_blocks.end(),
               std::back_inserter(out.invalid_block_ids),
               [](BlockId block) { return block != kNullBlockId; });
}

}  // namespace

// ---- Hold ----

template <class Instrumentation>
std::optional<std::uint32_t> BasicHoldingConnectorWorker<Instrumentation>::find_storing(
    std::string_view id) const {
  return storing_of_id_.find(
      id, [this](std::uint32_t at) { return std::string_view(storing_[at].id); });
}

template <class Instrumentation>
std::uint32_t BasicHoldingConnectorWorker<Instrumentation>::find_or_add_storing(
    const std::string& id) {
  if (const std::optional<std::uint32_t> found = find_storing(id)) return *found;
  std::uint32_t at = static_cast<std::uint32_t>(storing_.size());
  if (free_storing_.empty()) {
    storing_.emplace_back();
  } else {
    at = free_storing_.back();
    free_storing_.pop_back();
  }
  storing_[at].id = id;
  storing_[at].first_store = kNone;
  storing_[at].is_finished = false;
  storing_of_id_.insert(id, at);
  return at;
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::erase_storing(std::uint32_t at) {
  storing_of_id_.erase(storing_[at].id, at);
  free_storing_.push_back(at);
}

/// Its load alone decides from now on when its blocks are given back.
template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::forget_stores(std::string_view id) {
  const std::optional<std::uint32_t> at = find_storing(id);
  if (!at) return;
  disown(*at);
  erase_storing(*at);
}

/// The request's stores end without a word about it.
template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::disown(std::uint32_t at) {
  for (std::uint32_t slot = storing_[at].first_store; slot != kNone; slot = transfers_[slot].next) {
    transfers_[slot].owner = kNone;
  }
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::flush(
    const OffloadingConnectorMetadata& metadata, TransferEngine& engine) {
  for (const std::string& id : metadata.requests_to_flush) {
    const std::optional<std::uint32_t> at = find_storing(id);
    if (!at || storing_[*at].first_store == kNone) continue;
    to_flush_.clear();
    for (std::uint32_t slot = storing_[*at].first_store; slot != kNone;
         slot = transfers_[slot].next) {
      to_flush_.push_back(transfers_[slot].job);
    }
    std::reverse(to_flush_.begin(), to_flush_.end());
    engine.wait(to_flush_);
  }
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::handle_preemptions(
    const KVConnectorMetadata& metadata, TransferEngine& engine) {
  if (planted(Bug::kFlushBeforeSubmit)) flush(of_offloading(metadata), engine);
  if (!planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
  if (!planted(Bug::kFlushBeforeSubmit)) flush(of_offloading(metadata), engine);
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::start_load_kv(
    const KVConnectorMetadata& metadata, TransferEngine& engine) {
  if (!planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
  for (const TransferJob& load : of_offloading(metadata).loads) {
    numbered_ = load;
    numbered_.job = next_job_++;
    transfers_.insert(numbered_.job, load);
    if (!planted(Bug::kStoresRememberedOverLoad)) forget_stores(load.request);
    engine.transfer_async(numbered_);
  }
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::wait_for_save(
    const KVConnectorMetadata& metadata, TransferEngine& engine) {
  if (planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
  for (const TransferJob& store : of_offloading(metadata).stores) {
    if (planted(Bug::kQueueKeepsLast)) queue_.clear();
    queue_.push(store);
    queue_.back().job = next_job_;
    const std::uint32_t owner = find_or_add_storing(store.request);
    const std::uint32_t slot = transfers_.insert(next_job_++, store);
    std::uint32_t& first = storing_[owner].first_store;
    transfers_[slot].owner = owner;
    transfers_[slot].previous = kNone;
    transfers_[slot].next = first;
    if (first != kNone) transfers_[first].previous = slot;
    first = slot;
  }
  if (planted(Bug::kStoreSubmittedAtOnce)) queue_.submit_all(engine);
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::end_store(std::uint32_t slot,
                                                             KVConnectorWorkerOutput& out) {
  const TransferUnderWay& store = transfers_[slot];
  if (store.owner == kNone) {
    transfers_.erase(slot);
    return;
  }
  Storing& owner = storing_[store.owner];
  (store.previous == kNone ? owner.first_store : transfers_[store.previous].next) = store.next;
  if (store.next != kNone) transfers_[store.next].previous = store.previous;
  transfers_.erase(slot);
  if (!owner.is_finished) return;
  if (owner.first_store != kNone) {
    if (!planted(Bug::kFinishedSendingAtFirstStore)) return;
    disown(store.owner);
  }
  out.finished_sending.push_back(owner.id);
  erase_storing(store.owner);
}

template <class Instrumentation>
void BasicHoldingConnectorWorker<Instrumentation>::get_finished(
    const KVConnectorMetadata&, std::span<const std::string> finished_requests,
    TransferEngine& engine, KVConnectorWorkerOutput& out) {
  clear(out);
  engine.get_finished(results_);
  for (const TransferResult& result : results_) {
    const std::uint32_t slot = transfers_.find(result.job);
    if (slot == kNone) continue;
    measured_.add(result, transfers_[slot].is_store, instrumentation_);
    if (transfers_[slot].is_store) {
      end_store(slot, out);
      continue;
    }
    transfers_.erase(slot);
    report_load(transfers_[slot], result.success, instrumentation_, out);
  }
  for (const std::string& id : finished_requests) {
    const std::optional<std::uint32_t> at = find_storing(id);
    if (!at) continue;
    if (storing_[*at].first_store != kNone) {
      storing_[*at].is_finished = true;
      continue;
    }
    if (!planted(Bug::kFinishedSendingForgotten)) out.finished_sending.push_back(id);
    erase_storing(*at);
  }
  measured_.report(instrumentation_, out);
}

// ---- Fence ----

template <class Instrumentation>
void BasicFencingConnectorWorker<Instrumentation>::handle_preemptions(
    const KVConnectorMetadata& metadata, TransferEngine& engine) {
  const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
  if (planted(Bug::kFlushBeforeSubmit) && !jobs_to_flush.empty()) engine.wait(jobs_to_flush);
  if (!planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
  if (!planted(Bug::kFlushBeforeSubmit) && !jobs_to_flush.empty()) engine.wait(jobs_to_flush);
}

template <class Instrumentation>
void BasicFencingConnectorWorker<Instrumentation>::start_load_kv(
    const KVConnectorMetadata& metadata, TransferEngine& engine) {
  if (!planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
  for (const TransferJob& load : of_offloading(metadata).loads) {
    transfers_.insert(load.job, load);
    engine.transfer_async(load);
  }
}

template <class Instrumentation>
void BasicFencingConnectorWorker<Instrumentation>::wait_for_save(const KVConnectorMetadata&,
                                                                 TransferEngine& engine) {
  if (planted(Bug::kQueueWaitsForTokens)) queue_.submit_all(engine);
}

template <class Instrumentation>
void BasicFencingConnectorWorker<Instrumentation>::queue_stores(
    const OffloadingConnectorMetadata& metadata, TransferEngine& engine) {
  for (const TransferJob& store : metadata.stores) {
    if (planted(Bug::kQueueKeepsLast)) queue_.clear();
    queue_.push(store);
    transfers_.insert(store.job, store);
  }
  if (planted(Bug::kStoreSubmittedAtOnce)) queue_.submit_all(engine);
}

template <class Instrumentation>
void BasicFencingConnectorWorker<Instrumentation>::get_finished(const KVConnectorMetadata& metadata,
                                                                std::span<const std::string>,
                                                                TransferEngine& engine,
                                                                KVConnectorWorkerOutput& out) {
  clear(out);
  queue_stores(of_offloading(metadata), engine);
  engine.get_finished(results_);
  for (const TransferResult& result : results_) {
    const std::uint32_t slot = transfers_.find(result.job);
    if (slot == TransfersUnderWay::kNone && !planted(Bug::kResultTakenTwice)) continue;
    const bool success = result.success || planted(Bug::kFailureNotReported);
    out.completed_jobs.push_back({result.job, success});
    if (slot == TransfersUnderWay::kNone) continue;
    measured_.add(result, transfers_[slot].is_store, instrumentation_);
    transfers_.erase(slot);
    if (transfers_[slot].is_store) continue;
    report_load(transfers_[slot], result.success, instrumentation_, out);
  }
  measured_.report(instrumentation_, out);
}

template class BasicHoldingConnectorWorker<NoInstrumentation>;
template class BasicHoldingConnectorWorker<PlantedInstrumentation>;
template class BasicFencingConnectorWorker<NoInstrumentation>;
template class BasicFencingConnectorWorker<PlantedInstrumentation>;

}  // namespace kvfence::optimized
