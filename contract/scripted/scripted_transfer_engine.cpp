#include "contract/scripted/scripted_transfer_engine.h"

#include <algorithm>

#include "contract/core/lists.h"

namespace kvfence {

void ScriptedTransferEngine::transfer_async(const TransferJob& job) {
  transfers_.push_back({job, TransferProgress::kSubmitted});
  if (on_progress_) on_progress_(transfers_.back());
}

void ScriptedTransferEngine::get_finished(std::vector<TransferResult>& out) {
  out.clear();
  for (const TransferResult& result : ended_) {
    out.push_back(result);
    const auto has_that_job = [&](const Transfer& transfer) {
      return transfer.job.job == result.job;
    };
    const auto at = std::ranges::find_if(transfers_, has_that_job);
    if (at == transfers_.end()) continue;  // reported again
    transfers_.erase(at);
    reported_.push_back(result);
  }
  ended_.clear();
}

void ScriptedTransferEngine::wait(std::span<const JobId> jobs) {
  for (Transfer& transfer : transfers_) {
    if (is_under_way(transfer.progress) && contains(jobs, transfer.job.job)) {
      advance(transfer.job.job, TransferProgress::kFinished);
    }
  }
}

bool ScriptedTransferEngine::advance(JobId job, TransferProgress progress,
                                     std::uint32_t microseconds) {
  for (Transfer& transfer : transfers_) {
    if (transfer.job.job != job || !is_under_way(transfer.progress)) continue;
    transfer.progress = progress;
    if (on_progress_) on_progress_(transfer);
    if (progress != TransferProgress::kPart) {
      ended_.push_back({job, progress == TransferProgress::kFinished,
                        block_bytes_ * transfer.job.spec.gpu_blocks.size(), microseconds / 1e6});
    }
    return true;
  }
  return false;
}

bool ScriptedTransferEngine::report_again(JobId job) {
  const auto at = std::ranges::find(reported_, job, &TransferResult::job);
  if (at == reported_.end()) return false;
  ended_.push_back(*at);
  return true;
}

}  // namespace kvfence
