#pragma once

/// Implements contract/worker/worker.h for one rank: the copy worker with a virtual device, a KV
/// cache, host memory, and the forwards of a model. The contents of pages come from their bytes.
/// Which pages are undefined comes from the device: the work that it runs, and what the host knows
/// of it.
///
/// Link kvfence::worker_on_virtual_device, and nothing that brings the real runtime.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/worker/content_report.h"
#include "contract/worker/worker.h"
#include "cuda/virtual/device.h"
#include "cuda/worker/rank_device.h"

namespace kvfence::cuda {

class WorkerOnVirtualDevice : public RankDevice {
 public:
  explicit WorkerOnVirtualDevice(const worker::Options& options);
  ~WorkerOnVirtualDevice() { close(); }

  /// The error of transfer_async.
  ErrorCode refusal_of(const worker::Transfer& transfer) const;
  /// Requires that it is not refused.
  void transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  bool wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
  ErrorCode refusal_of_forward(std::span<const std::uint32_t> reads,
                               std::span<const std::uint32_t> writes) const;
  /// Requires that it is not refused.
  void forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(worker::Stream stream, std::uint32_t num_steps = 0);
  void fail_next(worker::Fault fault) { next_fault_ = fault; }
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t block) const { return content_of({true, block}); }
  worker::Content cpu_content(std::uint32_t page) const { return content_of({false, page}); }
  std::uint32_t num_stray_bytes() const;

  void add_to(StateHash& hash) const {
    hash.add_kept(device_, begun_, random_, generation_, seen_, next_fault_);
    hash.add_all(worker_, unreported_);
  }

 private:
  /// Memory, its bytes at the start, and the bytes that belong to no page.
  struct Memory {
    std::span<std::byte> bytes = {};
    std::vector<std::byte> at_first = {};
    std::vector<std::pair<std::size_t, std::size_t>> outside = {};  ///< [begin, end)
  };
  /// The blocks of a transfer that is not reported.
  struct Unreported {
    std::uint32_t job_id = 0;
    worker::Direction direction = worker::Direction::kStore;
    std::vector<std::uint32_t> gpu_blocks = {};
    std::vector<std::uint32_t> cpu_pages = {};
    bool is_deferred = false;
  };
  /// Work that ran in part: the pages that it writes.
  struct Begun {
    virtual_device::Moment end = {};  ///< its own
    std::vector<PageName> pages = {};
    void add_to(StateHash& hash) const { hash.add_all(end.stream, end.time, pages.size()); }
  };
  struct SeenAt {
    virtual_device::Time time = 0;  ///< of the forward
    worker::Seen seen = {};
    void add_to(StateHash& hash) const { hash.add_all(time, seen); }
  };
  class Armed;

  void open();
  worker::Content content_of(PageName page) const;
  worker::Content bytes_of(PageName page) const;
  bool is_begun(PageName page) const;
  void begin(virtual_device::Actor stream);
  void load(const worker::Transfer& transfer, const Unreported& taken);
  void start_stores();
  /// The deferred store that will copy first; nullptr: none copies.
  const Unreported* first_deferred() const;
  void write(std::uint32_t block, std::uint32_t generation);
  void take_results(std::span<const TransferResult> results, std::vector<worker::Ended>& ended);

  worker::Options options_;
  std::vector<content::Granule> host_;
  Memory gpu_;
  Memory cpu_;
  cudaStream_t other_ = nullptr;
  std::vector<Unreported> unreported_;
  std::vector<Begun> begun_;
  virtual_device::Random random_;
  std::uint32_t generation_ = 0;
  std::vector<SeenAt> seen_;
  worker::Fault next_fault_ = worker::Fault::kNone;
};

/// One per rank, and what they have reported together.
class WorkersOnVirtualDevices {
 public:
  using Rank = WorkerOnVirtualDevice;

  explicit WorkersOnVirtualDevices(const worker::Options& options);

  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended) { collect(&Rank::get_finished, ended); }
  bool wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended) { collect(&Rank::shutdown, ended); }
  ErrorCode forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(std::uint32_t rank, worker::Stream stream, std::uint32_t num_steps) {
    return ranks_[rank]->advance(stream, num_steps);
  }
  void fail_next(std::uint32_t rank, worker::Fault fault);
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t rank, std::uint32_t block) const {
    return ranks_[rank]->gpu_content(block);
  }
  worker::Content cpu_content(std::uint32_t rank, std::uint32_t page) const {
    return ranks_[rank]->cpu_content(page);
  }
  std::uint32_t num_stray_bytes() const;
  void add_to(StateHash& hash) const { hash.add_all(ranks_, pending_); }

  Rank& rank(std::uint32_t number) { return *ranks_[number]; }

 private:
  /// A transfer that not all ranks have reported.
  struct Pending {
    worker::Ended ended = {};  ///< as far as is known
    std::uint32_t num_reports = 0;
  };

  /// Asks each rank what has ended.
  void collect(void (Rank::*ask)(std::vector<worker::Ended>&), std::vector<worker::Ended>& ended);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Pending> pending_;
};

}  // namespace kvfence::cuda
