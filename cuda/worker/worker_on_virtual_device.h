#pragma once

/// The copy worker with everything around it, as contract/worker/worker.h wants it of one rank: a
/// virtual device, a KV cache, host memory, and the forwards of a model. What pages hold is read
/// from their bytes; what is undefined, from the device: what it runs, and what it has told the
/// host.
///
/// Link kvfence::worker_on_virtual_device, and nothing that brings the real runtime.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "contract/worker/content_report.h"
#include "contract/worker/worker.h"
#include "cuda/virtual/device.h"
#include "cuda/worker/page_name.h"
#include "cuda/worker/worker.h"

namespace kvfence::cuda {

class WorkerOnVirtualDevice {
 public:
  explicit WorkerOnVirtualDevice(const worker::Options& options);
  ~WorkerOnVirtualDevice();
  WorkerOnVirtualDevice(const WorkerOnVirtualDevice&) = delete;
  WorkerOnVirtualDevice& operator=(const WorkerOnVirtualDevice&) = delete;

  /// What transfer_async would be refused with.
  ErrorCode refusal_of(const worker::Transfer& transfer);
  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  void wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
  ErrorCode refusal_of_forward(std::span<const std::uint32_t> reads,
                               std::span<const std::uint32_t> writes) const;
  ErrorCode forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(worker::Stream stream, std::uint32_t num_steps = 0);
  void fail_next(worker::Fault fault) { next_fault_ = fault; }
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t block) const;
  worker::Content cpu_content(std::uint32_t page) const;
  std::uint32_t num_stray_bytes() const;

  const virtual_device::Device& device() const { return device_; }
  void add_to(StateHash& hash) const {
    hash.add_all(device_, worker_, unreported_, begun_, random_, generation_, seen_, next_fault_);
  }

  // For those who tell what happened.

  void set_story(virtual_device::Story* story) { device_.set_story(story); }
  /// The stream of that number; nothing of streams that are none of the worker's or the model's.
  std::optional<worker::Stream> stream_of(virtual_device::Actor actor) const;
  /// Those that share bytes with [begin, end), as accesses name them. Cost: O(pages).
  std::vector<PageName> pages_in(std::uintptr_t begin, std::uintptr_t end) const;

 private:
  struct ByteSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// Memory with what its bytes were at first, and which of them no page has.
  struct Memory {
    std::size_t size = 0;
    std::vector<std::byte> at_first = {};
    std::vector<ByteSpan> outside = {};
  };
  /// The blocks of a transfer that is not reported.
  struct Unreported {
    std::uint32_t job_id = 0;
    worker::Direction direction = worker::Direction::kStore;
    std::vector<std::uint32_t> gpu_blocks = {};
    std::vector<std::uint32_t> cpu_pages = {};
    bool is_deferred = false;
    void add_to(StateHash& hash) const {
      hash.add_all(job_id, direction, gpu_blocks, cpu_pages, is_deferred);
    }
  };
  /// Work that ran in part: the pages that it writes.
  struct Begun {
    virtual_device::Actor stream = 0;
    virtual_device::Time last = 0;  ///< over when this is completed
    std::vector<PageName> pages = {};
    void add_to(StateHash& hash) const { hash.add_all(stream, last, pages.size()); }
  };
  struct SeenAt {
    virtual_device::Time time = 0;  ///< of the forward
    worker::Seen seen = {};
    void add_to(StateHash& hash) const { hash.add_all(time, seen); }
  };
  class Armed;

  void open();
  void note_pages(Memory& memory, std::uintptr_t address, const KVLayout& layout,
                  std::size_t pages_per_block) const;
  const std::byte* gpu_page(std::size_t ref, std::uint32_t block) const;
  const std::byte* cpu_page(std::size_t ref, std::uint32_t page) const;
  template <class PageOf>
  worker::Content content_of(PageOf page_of) const;
  worker::Content gpu_bytes_of(std::uint32_t block) const;
  bool is_begun(const PageName& page) const;
  void begin(virtual_device::Actor stream);
  std::vector<PageName> pages_in(std::span<const virtual_device::ByteRange> ranges) const;
  virtual_device::Actor actor_of(worker::Stream stream) const;
  TransferSpec spec_of(const worker::Transfer& transfer) const;
  /// What a transfer writes.
  std::vector<virtual_device::MemoryRange> destinations_of(const Unreported& transfer) const;
  void start_stores();
  /// The deferred store that will copy first; nullptr: none copies.
  const Unreported* first_deferred() const;
  std::vector<virtual_device::MemoryRange> ranges_of(std::span<const std::uint32_t> blocks) const;
  void write(std::uint32_t block, std::uint32_t generation);
  void report(std::span<const TransferResult> results, std::vector<worker::Ended>& ended);
  /// Behind the forwards enqueued so far, and behind another stream.
  std::vector<cudaEvent_t> record_readers();

  worker::Options options_;
  virtual_device::Device device_;
  KVLayout gpu_layout_;
  std::byte* gpu_base_ = nullptr;
  std::vector<content::Granule> host_;
  Memory gpu_;
  Memory cpu_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t other_ = nullptr;
  virtual_device::Actor first_worker_stream_ = 0;
  std::unique_ptr<Worker> worker_;
  std::vector<Unreported> unreported_;
  std::vector<Begun> begun_;
  virtual_device::Random random_;
  std::uint32_t generation_ = 0;
  std::vector<SeenAt> seen_;
  worker::Fault next_fault_ = worker::Fault::kNone;
};

/// One a rank, and what they have reported together.
class WorkersOnVirtualDevices {
 public:
  using Rank = WorkerOnVirtualDevice;

  explicit WorkersOnVirtualDevices(const worker::Options& options);

  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  void wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
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
  /// A transfer of which the ranks have not all said that it is over.
  struct Pending {
    worker::Ended ended = {};  ///< as far as is known
    std::uint32_t num_reports = 0;
    void add_to(StateHash& hash) const { hash.add_all(ended, num_reports); }
  };

  void collect(std::span<const worker::Ended> reports, std::vector<worker::Ended>& ended);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Pending> pending_;
};

}  // namespace kvfence::cuda
