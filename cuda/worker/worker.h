#pragma once

/// The copy worker: moves KV blocks between the GPU and pinned host memory, and reports the end of
/// each transfer.
///
/// There is one stream per direction, so that transfers of a direction run in the order of their
/// submission. Only the caller's events and this worker's results order the two directions. Stores
/// wait for the compute stream as it is when they are enqueued; loads wait for the events passed
/// with them. One thread.
///
/// Source: off/worker.py, kvo/worker/cpu_gpu.py (v0.19.0), kvo/cpu/gpu_worker.py (v0.23.0).

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/core/status.h"
#include "cuda/copy_paths/copy_calibration.h"
#include "cuda/copy_paths/copy_path.h"
#include "cuda/copy_paths/event_pool.h"
#include "cuda/copy_paths/kv_layout.h"
#include "cuda/copy_paths/pinned_memory.h"
#include "cuda/copy_paths/transfer_plan.h"

namespace kvfence::cuda {

using JobId = std::uint64_t;

struct WorkerOptions {
  KVLayout gpu_layout = {};
  std::size_t num_cpu_blocks = 0;
  cudaStream_t compute_stream = nullptr;  ///< what stores wait for; not the NULL one
  std::size_t block_size_factor = 1;      ///< GPU blocks in a host block
  CopyPathOptions copy = {};
  CopyCalibration calibration = {};
  std::optional<CopyPathKind> only_path = {};  ///< instead of the calibration's choice
  /// The memory of the host blocks, cpu_memory_bytes() long, which the worker pins. Empty: the
  /// worker allocates it.
  std::span<std::byte> cpu_memory = {};
  /// Refuses a transfer that conflicts with one of the other direction, deferred or in flight: one
  /// writes what the other reads or writes. False: the caller must prevent that.
  bool refuses_conflicts = true;
};

struct TransferResult {
  JobId job_id = 0;
  Direction direction = Direction::kStore;
  cudaError_t code = cudaSuccess;  ///< the first that was not cudaSuccess
  /// No enqueued work touches the memory of the transfer. False only where the runtime could not
  /// say so: then that memory must not be used again.
  bool is_at_rest = true;
  std::size_t num_bytes = 0;   ///< copied; 0 of a transfer that failed
  std::size_t num_copies = 0;  ///< after merging

  bool succeeded() const { return code == cudaSuccess; }
};

/// Bytes of host memory that a worker needs.
std::size_t cpu_memory_bytes(const KVLayout& gpu_layout, std::size_t num_cpu_blocks,
                             std::size_t block_size_factor);

class Worker {
 public:
  struct Opened {
    std::unique_ptr<Worker> worker = {};
    std::string refusal = {};  ///< why there is no worker
  };
  struct Counters {
    std::uint64_t num_submitted = 0;
    std::uint64_t num_failed = 0;
    std::uint64_t num_pages = 0;  ///< submitted
    std::array<std::uint64_t, kNumCopyPaths> num_by_path = {};
  };

  /// Refuses options that make no sense, memory that cannot be pinned, streams that cannot be made.
  static Opened open(WorkerOptions options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // kNone: the transfer is taken. Else nothing has changed: kShutDown, kJobInFlight, kUnknownBlock,
  // kCountsDiffer, kListedTwice, kBlockInFlight or kNotOrdered.

  /// Deferred to the next begin_step, so that it does not delay the work of the present step.
  ErrorCode store(JobId job_id, const TransferSpec& spec);
  /// Enqueued now, to run after `load_after`: the events of the last readers of the GPU blocks, and
  /// of other writers of the host blocks. At least one, each recorded by the caller.
  ErrorCode load(JobId job_id, const TransferSpec& spec, std::span<const cudaEvent_t> load_after);
  /// The error of such a store, or of such a load with events.
  ErrorCode refusal_of(JobId job_id, Direction direction, const TransferSpec& spec) const;

  /// Enqueues the deferred stores, after the compute stream as it is now.
  void begin_step();
  /// Appends what is over, each transfer once: stores, then loads, each in the order of
  /// submission. Never blocks. An error is in the result; while something is in flight,
  /// cudaGetLastError has none after the call.
  void poll(std::vector<TransferResult>& results);
  /// Blocks until these transfers are over; unknown ids are ignored. Deferred stores are enqueued
  /// first if one is among them. poll() reports them. Returns the first error of waiting.
  cudaError_t wait(std::span<const JobId> job_ids);
  /// Enqueues everything, waits for its end, and gives all resources back but host memory that is
  /// not at rest. The worker refuses everything afterwards.
  std::vector<TransferResult> shutdown();

  /// The host blocks, by the host's addresses.
  const KVLayout& cpu_layout() const { return cpu_host_layout_; }
  std::size_t num_deferred() const { return deferred_.size(); }
  bool is_shut_down() const { return is_shut_down_; }
  std::size_t num_in_flight() const { return in_flight_[0].size() + in_flight_[1].size(); }
  /// Events that are in use: at most one per transfer in flight.
  std::size_t num_events() const { return events_.num_used(); }
  const Counters& counters() const { return counters_; }
  /// The state that the device does not hold.
  void add_to(StateHash& hash) const {
    hash.add_kept(counters_.num_submitted, counters_.num_pages, counters_.num_failed);
    hash.add_all(deferred_, in_flight_, job_ids_, is_shut_down_);
  }

 private:
  struct Transfer {
    JobId job_id = 0;
    Direction direction = Direction::kStore;
    TransferPlan plan = {};
    cudaError_t code = cudaSuccess;
    cudaEvent_t end = nullptr;  ///< null: the whole stream is asked instead
    bool is_over = false;       ///< known from wait()
    bool is_at_rest = true;
    std::vector<PinnedMemory> held = {};
    void add_to(StateHash& hash) const {
      hash.add_all(job_id, direction, code, is_over, is_at_rest);
    }
  };

  explicit Worker(WorkerOptions options) : options_(std::move(options)) {}
  std::string open_memory();
  std::string open_streams();
  cudaStream_t stream_of(Direction direction) const;
  /// A transfer ready to be enqueued, or the reason why not.
  ErrorCode prepare(JobId job_id, Direction direction, const TransferSpec& spec,
                    Transfer& transfer) const;
  bool has_conflict(const Transfer& transfer) const;
  cudaError_t wait_for_compute(cudaStream_t stream);
  CopyPathKind choose_path(const Transfer& transfer);
  /// `ordered`: the code of the stream's waits; the copies are enqueued only if it is cudaSuccess.
  void submit(Transfer transfer, cudaError_t ordered);
  /// cudaErrorNotReady, or the transfer is over, and its code final.
  cudaError_t ask(Transfer& transfer);
  TransferResult finish(Transfer& transfer);

  WorkerOptions options_;
  PinnedMemory cpu_memory_;
  KVLayout cpu_host_layout_;
  KVLayout cpu_layout_;  ///< by the device's addresses
  std::array<cudaStream_t, kNumDirections> streams_ = {};
  EventPool events_;
  PinnedPool descriptors_;
  std::deque<Transfer> deferred_;
  std::array<std::deque<Transfer>, kNumDirections> in_flight_;
  std::unordered_set<JobId> job_ids_;  ///< deferred or in flight
  bool is_shut_down_ = false;
  Counters counters_;
};

}  // namespace kvfence::cuda
