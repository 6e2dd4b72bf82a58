#pragma once

/// The executable specification of one rank of contract/worker/worker.h: three lists of work, and
/// what each page holds. On a device that is not commanded, work runs here when the host learns
/// that it is over, not earlier.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/worker/worker.h"
#include "reference/worker/stream_jobs.h"

namespace kvfence::reference {

struct WorkerForward {
  std::vector<std::uint32_t> reads;
  std::vector<std::uint32_t> writes;
  std::uint32_t generation = 0;
};

class CopyWorker final : private StreamJobs<worker::Transfer, WorkerForward> {
 public:
  explicit CopyWorker(const worker::Options& options);

  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  bool wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
  ErrorCode forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(worker::Stream stream, std::uint32_t num_steps);
  void fail_next(worker::Fault fault) { next_fault_ = fault; }
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t block) const;
  worker::Content cpu_content(std::uint32_t page) const;

  void add_to(StateHash& hash) const {
    hash.add_kept(gpu_, cpu_, forwards_, num_forwards_run_, seen_, next_fault_, num_enqueued_,
                  num_enqueued_pages_, num_failed_);
    hash.add_all(deferred_, in_flight_, is_shut_down_, is_lost_);
  }

 private:
  std::vector<std::uint32_t> cpu_pages(const worker::Transfer& transfer) const {
    return worker::cpu_pages_of(transfer, options_.block_size_factor);
  }
  /// Every transfer that is not reported, deferred ones too.
  std::vector<const worker::Transfer*> unreported() const;
  bool conflicts(const worker::Transfer& transfer) const;
  void enqueue(const worker::Transfer& transfer);
  void run(const WorkerForward& forward) override;
  void copy(const Job& job) override;
  /// Whether a write of it may be under way.
  bool is_undefined(const Job& job) const {
    return !job.is_done && job.copies() && (job.has_begun || !options_.is_commanded());
  }
  worker::Ended end_of(const Job& job);

  worker::Options options_;
  std::vector<worker::Content> gpu_;
  std::vector<worker::Content> cpu_;  ///< by page
  std::vector<worker::Transfer> deferred_;
  std::vector<worker::Seen> seen_;
  worker::Fault next_fault_ = worker::Fault::kNone;
  std::uint32_t num_enqueued_ = 0;
  std::uint32_t num_enqueued_pages_ = 0;
  std::uint32_t num_failed_ = 0;
  bool is_shut_down_ = false;
};

}  // namespace kvfence::reference
