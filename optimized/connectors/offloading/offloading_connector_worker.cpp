#include "optimized/connectors/offloading/offloading_connector_worker.h"

#include <algorithm>

namespace kvfence::optimized {
namespace {

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
void report_load(const TransferUnderWay& load, bool success, KVConnectorWorkerOutput& out) {
  out.finished_recving.push_back(load.request);
  if (success) return;
  std::copy_if(load.gpu_blocks.begin(), load.gpu_blocks.end(),
               std::back_inserter(out.invalid_block_ids),
               [](BlockId block) { return block != kNullBlockId; });
}

}  // namespace

// ---- Hold ----

std::optional<std::uint32_t> HoldingConnectorWorker::find_storing(std::string_view id) const {
  return storing_of_id_.find(
      id, [this](std::uint32_t at) { return std::string_view(storing_[at].id); });
}

std::uint32_t HoldingConnectorWorker::find_or_add_storing(const std::string& id) {
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

void HoldingConnectorWorker::erase_storing(std::uint32_t at) {
  storing_of_id_.erase(storing_[at].id, at);
  free_storing_.push_back(at);
}

/// Its load alone decides from now on when its blocks are given back.
void HoldingConnectorWorker::forget_stores(std::string_view id) {
  const std::optional<std::uint32_t> at = find_storing(id);
  if (!at) return;
  disown(*at);
  erase_storing(*at);
}

/// The request's stores end without a word about it.
void HoldingConnectorWorker::disown(std::uint32_t at) {
  for (std::uint32_t slot = storing_[at].first_store; slot != kNone; slot = transfers_[slot].next) {
    transfers_[slot].owner = kNone;
  }
}

void HoldingConnectorWorker::flush(const OffloadingConnectorMetadata& metadata) {
  for (const std::string& id : metadata.requests_to_flush) {
    const std::optional<std::uint32_t> at = find_storing(id);
    if (!at || storing_[*at].first_store == kNone) continue;
    to_flush_.clear();
    for (std::uint32_t slot = storing_[*at].first_store; slot != kNone;
         slot = transfers_[slot].next) {
      to_flush_.push_back(transfers_[slot].job);
    }
    std::reverse(to_flush_.begin(), to_flush_.end());
    copies().wait(to_flush_);
  }
}

void HoldingConnectorWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  queue_.submit_all(copies());
  flush(of_offloading(metadata));
}

void HoldingConnectorWorker::start_load_kv() {
  queue_.submit_all(copies());
  for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
    numbered_ = load;
    numbered_.job = next_job_++;
    transfers_.insert(numbered_.job, load);
    forget_stores(load.request);
    copies().transfer_async(numbered_);
  }
}

void HoldingConnectorWorker::wait_for_save() {
  for (const TransferJob& store : of_offloading(bound_metadata()).stores) {
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
}

void HoldingConnectorWorker::end_store(std::uint32_t slot, KVConnectorWorkerOutput& out) {
  const TransferUnderWay& store = transfers_[slot];
  if (store.owner == kNone) {
    transfers_.erase(slot);
    return;
  }
  Storing& owner = storing_[store.owner];
  (store.previous == kNone ? owner.first_store : transfers_[store.previous].next) = store.next;
  if (store.next != kNone) transfers_[store.next].previous = store.previous;
  transfers_.erase(slot);
  if (!owner.is_finished || owner.first_store != kNone) return;
  out.finished_sending.push_back(owner.id);
  erase_storing(store.owner);
}

void HoldingConnectorWorker::get_finished(std::span<const std::string> finished_requests,
                                          KVConnectorWorkerOutput& out) {
  clear(out);
  copies().get_finished(results_);
  for (const TransferResult& result : results_) {
    const std::uint32_t slot = transfers_.find(result.job);
    if (slot == kNone) continue;
    measured_.add(result, transfers_[slot].is_store);
    if (transfers_[slot].is_store) {
      end_store(slot, out);
      continue;
    }
    transfers_.erase(slot);
    report_load(transfers_[slot], result.success, out);
  }
  for (const std::string& id : finished_requests) {
    const std::optional<std::uint32_t> at = find_storing(id);
    if (!at) continue;
    if (storing_[*at].first_store != kNone) {
      storing_[*at].is_finished = true;
      continue;
    }
    out.finished_sending.push_back(id);
    erase_storing(*at);
  }
  measured_.report(out);
}

// ---- Fence ----

void FencingConnectorWorker::handle_preemptions(const KVConnectorMetadata& metadata) {
  const std::vector<JobId>& jobs_to_flush = of_offloading(metadata).jobs_to_flush;
  queue_.submit_all(copies());
  if (!jobs_to_flush.empty()) copies().wait(jobs_to_flush);
}

void FencingConnectorWorker::start_load_kv() {
  queue_.submit_all(copies());
  for (const TransferJob& load : of_offloading(bound_metadata()).loads) {
    transfers_.insert(load.job, load);
    copies().transfer_async(load);
  }
}

void FencingConnectorWorker::queue_stores(const OffloadingConnectorMetadata& metadata) {
  for (const TransferJob& store : metadata.stores) {
    queue_.push(store);
    transfers_.insert(store.job, store);
  }
}

void FencingConnectorWorker::get_finished(std::span<const std::string>,
                                          KVConnectorWorkerOutput& out) {
  clear(out);
  queue_stores(of_offloading(bound_metadata()));
  copies().get_finished(results_);
  for (const TransferResult& result : results_) {
    const std::uint32_t slot = transfers_.find(result.job);
    if (slot == TransfersUnderWay::kNone) continue;
    out.completed_jobs.push_back({result.job, result.success});
    measured_.add(result, transfers_[slot].is_store);
    transfers_.erase(slot);
    if (transfers_[slot].is_store) continue;
    report_load(transfers_[slot], result.success, out);
  }
  measured_.report(out);
}

}  // namespace kvfence::optimized
