#include "cuda/worker/worker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "contract/core/lists.h"
#include "cuda/copy_paths/host_access.h"

namespace kvfence::cuda {
namespace {

/// Between the host's tensors, so that kernels find their pages aligned.
constexpr std::size_t kAlignment = 256;

std::string failed(const char* what, cudaError_t code) {
  return std::string(what) + ": " + cudaGetErrorName(code);
}

/// The host's tensors one after the other; `address` of the first.
KVLayout lay_out_cpu(const KVLayout& gpu, std::size_t num_cpu_blocks, std::size_t factor,
                     std::uintptr_t address) {
  KVLayout cpu{.tensors = {}, .groups = gpu.groups};
  for (const PageTensor& tensor : gpu.tensors) {
    const std::size_t row = tensor.page_bytes * factor;
    cpu.tensors.push_back({address, num_cpu_blocks, row, row});
    address += (num_cpu_blocks * row + kAlignment - 1) / kAlignment * kAlignment;
  }
  return cpu;
}

/// Nothing, or why blocks of this layout would be copied from or to what is not theirs.
std::string check(const KVLayout& layout) {
  if (layout.tensors.empty()) return "a layout without tensors";
  for (const PageTensor& tensor : layout.tensors) {
    if (tensor.num_blocks != layout.tensors.front().num_blocks) {
      return "tensors of different numbers of blocks";
    }
    if (tensor.page_bytes > tensor.block_stride) return "pages overlap";
  }
  for (const std::vector<PageRef>& group : layout.groups) {
    for (const PageRef& ref : group) {
      if (ref.tensor_index >= layout.tensors.size()) return "a group of a tensor that is not there";
      if (ref.unpadded_page_bytes > layout.tensors[ref.tensor_index].page_bytes) {
        return "an unpadded page that is longer than the page";
      }
    }
  }
  return {};
}

/// Whether an address reaches all host blocks.
bool can_lay_out_cpu(const KVLayout& gpu, std::size_t num_cpu_blocks, std::size_t factor) {
  std::size_t left = std::numeric_limits<std::size_t>::max() / 2;
  for (const PageTensor& tensor : gpu.tensors) {
    if (tensor.page_bytes == 0) continue;
    if (num_cpu_blocks > left / tensor.page_bytes / factor) return false;
    left -= num_cpu_blocks * tensor.page_bytes * factor;
  }
  return true;
}

std::string check(const WorkerOptions& options) {
  const std::string refusal = check(options.gpu_layout);
  if (!refusal.empty()) return refusal;
  if (options.num_cpu_blocks == 0) return "no host blocks";
  if (options.block_size_factor == 0) return "block_size_factor is 0";
  if (options.copy.batch_entries_max == 0) return "batch_entries_max is 0";
  if (reinterpret_cast<std::uintptr_t>(options.compute_stream) <= 2) {
    return "the compute stream is a default stream: expected one of its own";
  }
  if (!can_lay_out_cpu(options.gpu_layout, options.num_cpu_blocks, options.block_size_factor)) {
    return "more host blocks than can have addresses";
  }
  const std::size_t needed =
      cpu_memory_bytes(options.gpu_layout, options.num_cpu_blocks, options.block_size_factor);
  if (!options.cpu_memory.empty() && options.cpu_memory.size() < needed) {
    return "host memory of " + std::to_string(options.cpu_memory.size()) + " bytes, expected " +
           std::to_string(needed);
  }
  return {};
}

}  // namespace

std::size_t cpu_memory_bytes(const KVLayout& gpu_layout, std::size_t num_cpu_blocks,
                             std::size_t block_size_factor) {
  const KVLayout cpu = lay_out_cpu(gpu_layout, num_cpu_blocks, block_size_factor, 0);
  if (cpu.tensors.empty()) return 0;
  const PageTensor& last = cpu.tensors.back();
  return last.address + last.num_blocks * last.block_stride;
}

Worker::Opened Worker::open(WorkerOptions options) {
  Opened opened;
  opened.refusal = check(options);
  if (!opened.refusal.empty()) return opened;
  opened.worker.reset(new Worker(std::move(options)));
  opened.refusal = opened.worker->open_memory();
  if (opened.refusal.empty()) opened.refusal = opened.worker->open_streams();
  if (!opened.refusal.empty()) opened.worker.reset();
  return opened;
}

std::string Worker::open_memory() {
  const std::size_t factor = options_.block_size_factor;
  const std::size_t size = cpu_memory_bytes(options_.gpu_layout, options_.num_cpu_blocks, factor);
  const bool is_given = !options_.cpu_memory.empty();
  const cudaError_t code = is_given
                               ? PinnedMemory::pin(options_.cpu_memory.data(), size, cpu_memory_)
                               : PinnedMemory::allocate(size, cpu_memory_);
  if (code != cudaSuccess) return failed("host memory could not be pinned", code);
  const auto host = reinterpret_cast<std::uintptr_t>(is_given ? options_.cpu_memory.data()
                                                              : cpu_memory_.host_address());
  cpu_host_layout_ = lay_out_cpu(options_.gpu_layout, options_.num_cpu_blocks, factor, host);
  cpu_layout_ = lay_out_cpu(options_.gpu_layout, options_.num_cpu_blocks, factor,
                            cpu_memory_.device_address());
  return {};
}

std::string Worker::open_streams() {
  for (cudaStream_t& stream : streams_) {
    const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) {
      stream = nullptr;
      return failed("a stream could not be made", code);
    }
  }
  return {};
}

Worker::~Worker() { static_cast<void>(shutdown()); }

cudaStream_t Worker::stream_of(Direction direction) const {
  return streams_[static_cast<std::size_t>(direction)];
}

ErrorCode Worker::prepare(JobId job_id, Direction direction, const TransferSpec& spec,
                          Transfer& transfer) const {
  if (is_shut_down_) return ErrorCode::kShutDown;
  if (job_ids_.contains(job_id)) return ErrorCode::kJobInFlight;
  PlannedTransfer planned =
      plan_transfer(options_.gpu_layout, cpu_layout_, direction, spec, options_.block_size_factor);
  if (planned.refusal != ErrorCode::kNone) return planned.refusal;
  if (overlaps(planned.plan)) return ErrorCode::kListedTwice;
  transfer = {.job_id = job_id, .direction = direction, .plan = std::move(planned.plan)};
  if (options_.refuses_conflicts && has_conflict(transfer)) return ErrorCode::kBlockInFlight;
  return ErrorCode::kNone;
}

ErrorCode Worker::refusal_of(JobId job_id, Direction direction, const TransferSpec& spec) const {
  Transfer transfer;
  return prepare(job_id, direction, spec, transfer);
}

bool Worker::has_conflict(const Transfer& transfer) const {
  const bool is_store = transfer.direction == Direction::kStore;
  const auto conflicts = [&](const Transfer& other) { return conflict(transfer.plan, other.plan); };
  const auto& others = in_flight_[is_store ? 1 : 0];
  if (std::any_of(others.begin(), others.end(), conflicts)) return true;
  return !is_store && std::any_of(deferred_.begin(), deferred_.end(), conflicts);
}

ErrorCode Worker::store(JobId job_id, const TransferSpec& spec) {
  Transfer transfer;
  const ErrorCode refusal = prepare(job_id, Direction::kStore, spec, transfer);
  if (refusal != ErrorCode::kNone) return refusal;
  job_ids_.insert(job_id);
  deferred_.push_back(std::move(transfer));
  return ErrorCode::kNone;
}

ErrorCode Worker::load(JobId job_id, const TransferSpec& spec,
                       std::span<const cudaEvent_t> load_after) {
  Transfer transfer;
  const ErrorCode refusal = prepare(job_id, Direction::kLoad, spec, transfer);
  if (refusal != ErrorCode::kNone) return refusal;
  if (load_after.empty() || std::count(load_after.begin(), load_after.end(), nullptr) > 0) {
    return ErrorCode::kNotOrdered;
  }
  cudaError_t ordered = cudaSuccess;
  for (const cudaEvent_t event : load_after) {
    ordered = cudaStreamWaitEvent(stream_of(Direction::kLoad), event, 0);
    if (ordered != cudaSuccess) break;
  }
  job_ids_.insert(job_id);
  submit(std::move(transfer), ordered);
  return ErrorCode::kNone;
}

void Worker::begin_step() {
  while (!deferred_.empty()) {
    Transfer transfer = std::move(deferred_.front());
    deferred_.pop_front();
    const cudaError_t ordered = wait_for_compute(stream_of(Direction::kStore));
    submit(std::move(transfer), ordered);
  }
}

cudaError_t Worker::wait_for_compute(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  cudaError_t code = events_.record(options_.compute_stream, event);
  if (code != cudaSuccess) return code;
  code = cudaStreamWaitEvent(stream, event, 0);
  // The wait is bound to this record: the event may be recorded anew.
  events_.give(event);
  return code;
}

CopyPathKind Worker::choose_path(const Transfer& transfer) {
  const TransferPlan& plan = transfer.plan;
  std::array<bool, kNumCopyPaths> usable{};
  for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
    usable[path] = can_copy(static_cast<CopyPathKind>(path), plan.copies);
  }
  const CopyPathKind chosen =
      options_.only_path && usable[static_cast<std::size_t>(*options_.only_path)]
          ? *options_.only_path
          : options_.calibration.choose(transfer.direction, plan.num_bytes / plan.copies.size(),
                                        plan.copies.size(), usable);
  ++counters_.num_by_path[static_cast<std::size_t>(chosen)];
  return chosen;
}

void Worker::submit(Transfer transfer, cudaError_t ordered) {
  kvfence_label(transfer.direction == Direction::kStore ? "store" : "load", transfer.job_id);
  const cudaStream_t stream = stream_of(transfer.direction);
  ++counters_.num_submitted;
  counters_.num_pages += transfer.plan.num_pages;
  transfer.code = ordered;
  if (transfer.code == cudaSuccess && !transfer.plan.copies.empty()) {
    transfer.code = enqueue_copies(choose_path(transfer), options_.copy, transfer.plan.copies,
                                   stream, descriptors_, transfer.held);
  }
  // Also for a transfer that failed: part of it may be under way, and the report waits for that.
  const cudaError_t recorded = events_.record(stream, transfer.end);
  if (transfer.code == cudaSuccess) transfer.code = recorded;
  in_flight_[static_cast<std::size_t>(transfer.direction)].push_back(std::move(transfer));
  kvfence_label("", 0);
}

cudaError_t Worker::ask(Transfer& transfer) {
  if (transfer.is_over) return cudaSuccess;
  if (transfer.end != nullptr) {
    const cudaError_t code = cudaEventQuery(transfer.end);
    if (code == cudaSuccess || code == cudaErrorNotReady) return code;
    // An error of this call or of an earlier one: the transfer has failed, and the event does not
    // say whether its copies are over.
    if (transfer.code == cudaSuccess) transfer.code = code;
    events_.give(std::exchange(transfer.end, nullptr));
  }
  const cudaError_t code = cudaStreamQuery(stream_of(transfer.direction));
  if (code == cudaErrorNotReady) return code;
  if (code != cudaSuccess) {
    if (transfer.code == cudaSuccess) transfer.code = code;
    transfer.is_at_rest = false;
  }
  return cudaSuccess;
}

TransferResult Worker::finish(Transfer& transfer) {
  events_.give(transfer.end);
  if (transfer.is_at_rest) {
    for (PinnedMemory& memory : transfer.held) descriptors_.give(std::move(memory));
  } else {
    for (PinnedMemory& memory : transfer.held) memory.abandon();
  }
  job_ids_.erase(transfer.job_id);
  const bool succeeded = transfer.code == cudaSuccess;
  if (!succeeded) ++counters_.num_failed;
  return {.job_id = transfer.job_id,
          .direction = transfer.direction,
          .code = transfer.code,
          .is_at_rest = transfer.is_at_rest,
          .num_bytes = succeeded ? transfer.plan.num_bytes : 0,
          .num_copies = transfer.plan.copies.size()};
}

void Worker::poll(std::vector<TransferResult>& results) {
  for (std::deque<Transfer>& transfers : in_flight_) {
    while (!transfers.empty() && ask(transfers.front()) != cudaErrorNotReady) {
      results.push_back(finish(transfers.front()));
      transfers.pop_front();
    }
    // "Not ready" is the thread's last error until then, and the caller's next check would take it
    // for a failure of its own.
    if (!transfers.empty()) static_cast<void>(cudaGetLastError());
  }
}

cudaError_t Worker::wait(std::span<const JobId> job_ids) {
  const auto is_meant = [job_ids](const Transfer& transfer) {
    return contains(job_ids, transfer.job_id);
  };
  if (std::any_of(deferred_.begin(), deferred_.end(), is_meant)) begin_step();
  cudaError_t first_error = cudaSuccess;
  for (std::deque<Transfer>& transfers : in_flight_) {
    for (Transfer& transfer : transfers) {
      if (!is_meant(transfer) || transfer.is_over) continue;
      transfer.is_over = true;
      const cudaError_t code = transfer.end != nullptr
                                   ? cudaEventSynchronize(transfer.end)
                                   : cudaStreamSynchronize(stream_of(transfer.direction));
      if (code == cudaSuccess) continue;
      if (transfer.code == cudaSuccess) transfer.code = code;
      transfer.is_at_rest = false;
      if (first_error == cudaSuccess) first_error = code;
    }
  }
  return first_error;
}

std::vector<TransferResult> Worker::shutdown() {
  std::vector<TransferResult> results;
  if (is_shut_down_) return results;
  if (streams_[0] != nullptr && streams_[1] != nullptr) begin_step();
  is_shut_down_ = true;
  bool is_at_rest = true;
  for (std::size_t direction = 0; direction < kNumDirections; ++direction) {
    if (streams_[direction] == nullptr) continue;
    const cudaError_t code = cudaStreamSynchronize(streams_[direction]);
    for (Transfer& transfer : in_flight_[direction]) {
      if (code != cudaSuccess && !transfer.is_over) {
        if (transfer.code == cudaSuccess) transfer.code = code;
        transfer.is_at_rest = false;
      }
      results.push_back(finish(transfer));
    }
    is_at_rest = is_at_rest && code == cudaSuccess;
    in_flight_[direction].clear();
    static_cast<void>(cudaStreamDestroy(std::exchange(streams_[direction], nullptr)));
  }
  if (is_at_rest) {
    cpu_memory_.release();
  } else {
    cpu_memory_.abandon();
  }
  descriptors_ = PinnedPool();
  events_.give_back_unused();
  return results;
}

}  // namespace kvfence::cuda
