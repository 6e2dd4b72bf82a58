#pragma once

/// The executable specification of contract/worker/worker.h: a copy worker per rank, and what they
/// have reported together.

#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/worker/worker.h"
#include "reference/worker/copy_worker.h"

namespace kvfence::reference {

class CopyWorkers {
 public:
  explicit CopyWorkers(const worker::Options& options)
      : ranks_(options.num_ranks, CopyWorker(options)) {}

  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  bool wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
  ErrorCode forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(std::uint32_t rank, worker::Stream stream, std::uint32_t num_steps) {
    return ranks_[rank].advance(stream, num_steps);
  }
  void fail_next(std::uint32_t rank, worker::Fault fault);
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t rank, std::uint32_t block) const {
    return ranks_[rank].gpu_content(block);
  }
  worker::Content cpu_content(std::uint32_t rank, std::uint32_t page) const {
    return ranks_[rank].cpu_content(page);
  }
  std::uint32_t num_stray_bytes() const { return 0; }

  void add_to(StateHash& hash) const { hash.add_all(ranks_, jobs_); }

 private:
  /// A transfer that not every rank has reported.
  struct Job {
    std::uint32_t job_id = 0;
    worker::Direction direction = worker::Direction::kStore;
    std::vector<worker::Ended> reports = {};
  };

  /// Does it on every rank, or on none.
  template <class Operation>
  ErrorCode on_all(Operation operation);
  /// Asks every rank what ended there.
  void report(void (CopyWorker::*ask)(std::vector<worker::Ended>&),
              std::vector<worker::Ended>& ended);

  std::vector<CopyWorker> ranks_;
  std::vector<Job> jobs_;  ///< in the order of submission
};

}  // namespace kvfence::reference
