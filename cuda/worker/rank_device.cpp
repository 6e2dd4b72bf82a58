#include "cuda/worker/rank_device.h"

#include <utility>

#include "contract/core/check.h"

namespace kvfence::cuda {

void RankDevice::ok(cudaError_t code) {
  KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code));
}

void RankDevice::close() {
  const virtual_device::Installed installed(device_);
  worker_.reset();
}

std::byte* RankDevice::open_device(std::size_t size) {
  void* memory = nullptr;
  ok(cudaMalloc(&memory, size));
  ok(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
  return static_cast<std::byte*>(memory);
}

void RankDevice::open_worker(WorkerOptions options) {
  const KVLayout gpu = options.gpu_layout;
  const std::size_t factor = options.block_size_factor;
  options.compute_stream = compute_;
  num_held_ = num_held();
  // Streams are numbered in the order in which they are made.
  first_worker_stream_ = static_cast<virtual_device::Actor>(device_.num_streams()) + 1;
  Worker::Opened opened = Worker::open(std::move(options));
  KVFENCE_CHECK(opened.worker != nullptr, opened.refusal);
  worker_ = std::move(opened.worker);
  num_gpu_blocks_ = gpu.tensors[0].num_blocks;
  num_parts_ = gpu.groups[0].size();
  for (const bool is_gpu : {true, false}) {
    const KVLayout& layout = is_gpu ? gpu : worker_->cpu_layout();
    const std::size_t pages_per_block = is_gpu ? 1 : factor;
    for (std::size_t number = 0; number < layout.tensors[0].num_blocks * pages_per_block;
         ++number) {
      for (const PageRef& ref : gpu.groups[0]) {
        const PageTensor& rows = layout.tensors[ref.tensor_index];
        auto* const address = reinterpret_cast<std::byte*>(
            rows.address + number / pages_per_block * rows.block_stride +
            number % pages_per_block * gpu.tensors[ref.tensor_index].page_bytes);
        const std::size_t size = ref.unpadded_page_bytes;
        parts_.push_back({.page = {is_gpu, static_cast<std::uint32_t>(number)},
                          .address = address,
                          .bytes = is_gpu ? device_.bytes(address, size) : address,
                          .size = size});
      }
    }
  }
}

std::optional<worker::Stream> RankDevice::stream_of(virtual_device::Actor actor) const {
  for (const worker::Stream stream :
       {worker::Stream::kCompute, worker::Stream::kStore, worker::Stream::kLoad}) {
    if (actor_of(stream) == actor) return stream;
  }
  return std::nullopt;
}

virtual_device::Actor RankDevice::actor_of(worker::Stream stream) const {
  if (stream == worker::Stream::kCompute) return device_.stream_number(compute_);
  return first_worker_stream_ + (stream == worker::Stream::kLoad ? 1 : 0);
}

std::vector<PageName> RankDevice::pages_in(std::uintptr_t begin, std::uintptr_t end) const {
  std::vector<PageName> pages;
  for (const PagePart& part : parts_) {
    const auto address = reinterpret_cast<std::uintptr_t>(part.address);
    if (address >= end || begin >= address + part.size) continue;
    if (pages.empty() || pages.back() != part.page) pages.push_back(part.page);
  }
  return pages;
}

cudaEvent_t RankDevice::record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  ok(cudaEventRecord(event, stream));
  return event;
}

worker::Counts RankDevice::counts_of_worker() const {
  const std::size_t num_in_flight = worker_->num_in_flight();
  const std::size_t num_events = worker_->num_events();
  const Worker::Counters& counters = worker_->counters();
  const bool has_given_back = worker_->is_shut_down() && !device_.is_lost();
  return {
      .num_deferred = static_cast<std::uint32_t>(worker_->num_deferred()),
      .num_in_flight = static_cast<std::uint32_t>(num_in_flight),
      .num_enqueued = static_cast<std::uint32_t>(counters.num_submitted),
      .num_enqueued_pages = static_cast<std::uint32_t>(counters.num_pages / num_parts_),
      .num_failed = static_cast<std::uint32_t>(counters.num_failed),
      .num_lost_events =
          static_cast<std::uint32_t>(num_events - std::min(num_events, num_in_flight)),
      .num_left_behind = has_given_back ? static_cast<std::uint32_t>(num_held() - num_held_) : 0,
      .num_races = static_cast<std::uint32_t>(device_.counters().num_races),
      .num_misuses = static_cast<std::uint32_t>(device_.misuses().size())};
}

std::vector<virtual_device::MemoryRange> RankDevice::ranges_of(
    bool is_gpu, std::span<const std::uint32_t> pages) const {
  std::vector<virtual_device::MemoryRange> ranges;
  for (const std::uint32_t page : pages) {
    for (const PagePart& part : parts_of({is_gpu, page})) {
      ranges.push_back({part.address, part.size});
    }
  }
  return ranges;
}

std::vector<virtual_device::Fault> RankDevice::faults_of(
    worker::Fault fault, std::uint64_t num_records_before,
    const std::vector<virtual_device::MemoryRange>& undefined) {
  using Kind = virtual_device::Fault::Kind;
  using Function = virtual_device::Function;
  const std::uint64_t end = num_records_before + 1;
  Kind kind = Kind::kReturnCode;
  switch (fault) {
    case worker::Fault::kNone:
      return {};
    case worker::Fault::kWait:
      return {{.function = Function::kStreamWaitEvent}};
    case worker::Fault::kRecord:
      return {{.function = Function::kEventRecord, .nth = end}};
    case worker::Fault::kLate:
      return {{.kind = Kind::kReadyLate,
               .function = Function::kEventRecord,
               .nth = end,
               .count = worker::kNumLatePolls}};
    case worker::Fault::kCopy:
      break;
    case worker::Fault::kPartial:
      kind = Kind::kPartialBatch;
      break;
    case worker::Fault::kSticky:
      kind = Kind::kAsynchronous;
      break;
  }
  // At the first call that copies, whichever it is.
  std::vector<virtual_device::Fault> faults;
  for (const Function function : {Function::kMemcpyBatchAsync, Function::kMemcpyAsync,
                                  Function::kMemcpy2DAsync, Function::kLaunch}) {
    faults.push_back({.kind = kind, .function = function, .count = 1, .undefined = undefined});
  }
  return faults;
}

void RankDevice::report(std::span<const TransferResult> results,
                        std::vector<worker::Ended>& ended) {
  for (const TransferResult& result : results) {
    ended.push_back({static_cast<std::uint32_t>(result.job_id), result.direction,
                     result.succeeded(), result.is_at_rest});
  }
}

}  // namespace kvfence::cuda
