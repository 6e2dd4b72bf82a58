#include "reference/worker/copy_workers.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kvfence::reference {

using worker::Direction;
using worker::Ended;

template <class Operation>
ErrorCode CopyWorkers::on_all(Operation operation) {
  std::vector<CopyWorker> tried = ranks_;
  for (CopyWorker& rank : tried) {
    const ErrorCode error = operation(rank);
    if (error != ErrorCode::kNone) return error;
  }
  ranks_ = std::move(tried);
  return ErrorCode::kNone;
}

ErrorCode CopyWorkers::transfer_async(const worker::Transfer& transfer) {
  const ErrorCode error = on_all([&](CopyWorker& rank) { return rank.transfer_async(transfer); });
  if (error == ErrorCode::kNone) jobs_.push_back({transfer.job_id, transfer.direction});
  return error;
}

ErrorCode CopyWorkers::forward(std::span<const std::uint32_t> reads,
                               std::span<const std::uint32_t> writes) {
  return on_all([&](CopyWorker& rank) { return rank.forward(reads, writes); });
}

void CopyWorkers::start_kv_transfers() {
  for (CopyWorker& rank : ranks_) rank.start_kv_transfers();
}

bool CopyWorkers::wait(std::span<const std::uint32_t> job_ids) {
  bool are_over = true;
  for (CopyWorker& rank : ranks_) are_over &= rank.wait(job_ids);
  return are_over;
}

void CopyWorkers::get_finished(std::vector<Ended>& ended) {
  report(&CopyWorker::get_finished, ended);
}

void CopyWorkers::shutdown(std::vector<Ended>& ended) { report(&CopyWorker::shutdown, ended); }

void CopyWorkers::report(void (CopyWorker::*ask)(std::vector<Ended>&), std::vector<Ended>& ended) {
  std::vector<Ended> reports;
  for (CopyWorker& rank : ranks_) (rank.*ask)(reports);
  for (Job& job : jobs_) {
    std::ranges::copy_if(reports, std::back_inserter(job.reports),
                         [&job](const Ended& reported) { return reported.job_id == job.job_id; });
  }
  const auto is_over = [this](const Job& job) { return job.reports.size() == ranks_.size(); };
  for (const Direction direction : {Direction::kStore, Direction::kLoad}) {
    for (const Job& job : jobs_) {
      if (job.direction != direction || !is_over(job)) continue;
      const bool succeeded = std::ranges::all_of(job.reports, &Ended::succeeded);
      const bool is_at_rest = std::ranges::all_of(job.reports, &Ended::is_at_rest);
      ended.push_back({job.job_id, direction, succeeded, is_at_rest});
    }
  }
  std::erase_if(jobs_, is_over);
}

void CopyWorkers::fail_next(std::uint32_t rank, worker::Fault fault) {
  for (CopyWorker& other : ranks_) other.fail_next(worker::Fault::kNone);
  ranks_[rank].fail_next(fault);
}

void CopyWorkers::take_seen(std::vector<worker::Seen>& seen) {
  seen.clear();
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<worker::Seen> taken;
    ranks_[rank].take_seen(taken);
    for (worker::Seen& page : taken) {
      page.rank = rank;
      seen.push_back(page);
    }
  }
}

worker::Counts CopyWorkers::counts() const {
  // Stores are deferred and enqueued on all ranks alike.
  worker::Counts counts{.num_deferred = ranks_[0].counts().num_deferred};
  counts.num_in_flight = static_cast<std::uint32_t>(jobs_.size()) - counts.num_deferred;
  for (const CopyWorker& rank : ranks_) {
    const worker::Counts own = rank.counts();
    counts.num_enqueued += own.num_enqueued;
    counts.num_enqueued_pages += own.num_enqueued_pages;
    counts.num_failed += own.num_failed;
    if (own.next_fault != worker::Fault::kNone) counts.next_fault = own.next_fault;
  }
  return counts;
}

}  // namespace kvfence::reference
