#include "reference/worker/copy_worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "contract/core/lists.h"

namespace kvfence::reference {
namespace {

using Numbers = std::span<const std::uint32_t>;
using worker::Content;
using worker::Direction;
using worker::Fault;
using worker::Transfer;

bool share(Numbers a, Numbers b) {
  return std::any_of(a.begin(), a.end(), [b](std::uint32_t number) { return contains(b, number); });
}

bool are_known(Numbers blocks, std::uint32_t num_blocks) {
  return std::all_of(blocks.begin(), blocks.end(),
                     [num_blocks](std::uint32_t block) { return block < num_blocks; });
}

bool has_repeats(Numbers numbers) {
  return std::set<std::uint32_t>(numbers.begin(), numbers.end()).size() < numbers.size();
}

}  // namespace

CopyWorker::CopyWorker(const worker::Options& options)
    : options_(options),
      gpu_(options.num_gpu_blocks),
      cpu_(std::size_t{options.num_cpu_blocks} * options.block_size_factor) {}

ErrorCode CopyWorker::transfer_async(const Transfer& transfer) {
  if (is_shut_down_) return ErrorCode::kShutDown;
  for (const Transfer* other : unreported()) {
    if (other->job_id == transfer.job_id) return ErrorCode::kJobInFlight;
  }
  if (!are_known(transfer.gpu_blocks, options_.num_gpu_blocks) ||
      !are_known(transfer.cpu_blocks, options_.num_cpu_blocks)) {
    return ErrorCode::kUnknownBlock;
  }
  if (!worker::counts_fit(transfer, options_.block_size_factor)) return ErrorCode::kCountsDiffer;
  const bool is_store = transfer.direction == Direction::kStore;
  if (has_repeats(is_store ? cpu_pages(transfer) : transfer.gpu_blocks)) {
    return ErrorCode::kListedTwice;
  }
  if (conflicts(transfer)) return ErrorCode::kBlockInFlight;
  if (is_store) {
    deferred_.push_back(transfer);
    return ErrorCode::kNone;
  }
  if (!transfer.has_event) return ErrorCode::kNotOrdered;
  enqueue(transfer);
  return ErrorCode::kNone;
}

std::vector<const Transfer*> CopyWorker::unreported() const {
  std::vector<const Transfer*> found;
  for (const Transfer& transfer : deferred_) found.push_back(&transfer);
  for (const Jobs& jobs : in_flight_) {
    for (const Job& job : jobs) found.push_back(&job.transfer);
  }
  return found;
}

bool CopyWorker::conflicts(const Transfer& transfer) const {
  // One reads the GPU blocks and writes the CPU pages, the other the other way round: whatever
  // they share is written by one of them.
  for (const Transfer* other : unreported()) {
    if (other->direction == transfer.direction) continue;
    if (share(transfer.gpu_blocks, other->gpu_blocks)) return true;
    if (share(cpu_pages(transfer), cpu_pages(*other))) return true;
  }
  return false;
}

void CopyWorker::enqueue(const Transfer& transfer) {
  ++num_enqueued_;
  num_enqueued_pages_ += static_cast<std::uint32_t>(transfer.gpu_blocks.size());
  submit(transfer, next_fault_);
}

void CopyWorker::start_kv_transfers() {
  for (const Transfer& transfer : std::exchange(deferred_, {})) enqueue(transfer);
}

void CopyWorker::run(const WorkerForward& forward) {
  for (const std::uint32_t block : forward.reads) seen_.push_back({block, gpu_[block]});
  for (const std::uint32_t block : forward.writes) {
    gpu_[block] = {Content::Kind::kWritten, block, forward.generation};
  }
}

void CopyWorker::copy(const Job& job) {
  const Transfer& transfer = job.transfer;
  const std::vector<std::uint32_t> pages = cpu_pages(transfer);
  const bool is_torn = job.fault == Fault::kPartial || job.fault == Fault::kSticky;
  for (std::size_t index = 0; index < pages.size(); ++index) {
    Content& on_gpu = gpu_[transfer.gpu_blocks[index]];
    Content& on_cpu = cpu_[pages[index]];
    const bool is_store = transfer.direction == Direction::kStore;
    (is_store ? on_cpu : on_gpu) = is_torn    ? Content{.kind = Content::Kind::kTorn}
                                   : is_store ? on_gpu
                                              : on_cpu;
  }
  if (job.fault == Fault::kSticky) is_lost_ = true;
}

Content CopyWorker::gpu_content(std::uint32_t block) const {
  const Content undefined{.kind = Content::Kind::kUndefined};
  for (const Job& job : in_flight_[static_cast<std::size_t>(Direction::kLoad)]) {
    if (is_undefined(job) && contains(job.transfer.gpu_blocks, block)) return undefined;
  }
  if (options_.is_commanded()) return gpu_[block];
  for (std::size_t index = num_forwards_run_; index < forwards_.size(); ++index) {
    if (contains(forwards_[index].writes, block)) return undefined;
  }
  return gpu_[block];
}

Content CopyWorker::cpu_content(std::uint32_t page) const {
  for (const Job& job : in_flight_[static_cast<std::size_t>(Direction::kStore)]) {
    if (is_undefined(job) && contains(cpu_pages(job.transfer), page)) {
      return {.kind = Content::Kind::kUndefined};
    }
  }
  return cpu_[page];
}

bool CopyWorker::advance(worker::Stream stream, std::uint32_t num_steps) {
  // A device that is not commanded does not report here what it does.
  if (is_lost_ || !options_.is_commanded()) return false;
  return run_next(stream, num_steps > 0);
}

bool CopyWorker::wait(std::span<const std::uint32_t> job_ids) {
  const auto is_meant = [job_ids](const Transfer& transfer) {
    return contains(job_ids, transfer.job_id);
  };
  if (std::any_of(deferred_.begin(), deferred_.end(), is_meant)) start_kv_transfers();
  return wait_for(job_ids);
}

worker::Ended CopyWorker::end_of(const Job& job) {
  if (is_undefined(job)) {
    // Its device was lost meanwhile: its result stays unknown.
    const bool is_store = job.transfer.direction == Direction::kStore;
    for (const std::uint32_t page : is_store ? cpu_pages(job.transfer) : job.transfer.gpu_blocks) {
      (is_store ? cpu_ : gpu_)[page] = {.kind = Content::Kind::kUndefined};
    }
  }
  const bool succeeded = !job.was_lost && !worker::fails(job.fault);
  num_failed_ += !succeeded;
  return {job.transfer.job_id, job.transfer.direction, succeeded, !job.was_lost};
}

void CopyWorker::get_finished(std::vector<worker::Ended>& ended) {
  for (Jobs& jobs : in_flight_) {
    // Asked until all is over.
    if (!options_.is_commanded() && !jobs.empty()) {
      finish(jobs, jobs.back());
      for (Job& job : jobs) job.num_late_polls = 0;
    }
    while (!jobs.empty() && is_known_to_be_over(jobs.front(), jobs)) {
      ended.push_back(end_of(jobs.front()));
      jobs.erase(jobs.begin());
    }
  }
}

void CopyWorker::shutdown(std::vector<worker::Ended>& ended) {
  start_kv_transfers();
  is_shut_down_ = true;
  for (Jobs& jobs : in_flight_) {
    if (!jobs.empty()) finish(jobs, jobs.back());
    for (Job& job : jobs) {
      job.was_lost |= is_lost_ && !job.was_waited;
      ended.push_back(end_of(job));
    }
    jobs.clear();
  }
}

ErrorCode CopyWorker::forward(Numbers reads, Numbers writes) {
  if (!are_known(reads, options_.num_gpu_blocks) || !are_known(writes, options_.num_gpu_blocks)) {
    return ErrorCode::kUnknownBlock;
  }
  if (has_repeats(reads) || has_repeats(writes) || share(reads, writes)) {
    return ErrorCode::kListedTwice;
  }
  for (const Transfer* transfer : unreported()) {
    const bool is_load = transfer->direction == Direction::kLoad;
    if (share(writes, transfer->gpu_blocks) || (is_load && share(reads, transfer->gpu_blocks))) {
      return ErrorCode::kBlockInFlight;
    }
  }
  forwards_.push_back({{reads.begin(), reads.end()},
                       {writes.begin(), writes.end()},
                       static_cast<std::uint32_t>(forwards_.size() + 1)});
  return ErrorCode::kNone;
}

void CopyWorker::take_seen(std::vector<worker::Seen>& seen) { seen = std::exchange(seen_, {}); }

worker::Counts CopyWorker::counts() const {
  return {.num_deferred = static_cast<std::uint32_t>(deferred_.size()),
          .num_in_flight = static_cast<std::uint32_t>(in_flight_[0].size() + in_flight_[1].size()),
          .num_enqueued = num_enqueued_,
          .num_enqueued_pages = num_enqueued_pages_,
          .num_failed = num_failed_,
          .next_fault = next_fault_};
}

}  // namespace kvfence::reference
