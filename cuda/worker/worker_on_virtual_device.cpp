#include "cuda/worker/worker_on_virtual_device.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::cuda {
namespace {

using Numbers = std::span<const std::uint32_t>;

constexpr std::uint64_t kRunSeed = 7;
/// Before and after the KV cache and the host blocks: nothing may write there.
constexpr std::size_t kGuardBytes = 256;
/// A block's page in each tensor has a number of its own in the pattern.
constexpr std::uint64_t kPagesMax = 16;
constexpr std::size_t kBlockSpace = 128;
constexpr std::size_t kTensorsMax = 2;
/// Of a device that makes progress by itself: more than any transfer takes.
constexpr int kPollsMax = 10'000;
constexpr std::uint32_t kGenerationMax = (std::uint32_t{1} << content::kGenerationBits) - 1;

void ok(cudaError_t code) { KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code)); }

/// Two layers, or one where a block's page holds more than one thing.
std::vector<LayerTensors> layers_of(worker::Layout layout, std::uintptr_t address, std::size_t n) {
  const auto at = [&](std::size_t tensor) { return address + tensor * n * kBlockSpace; };
  const auto blocks_first = [&](std::string name, std::size_t tensor, std::size_t stride) {
    return LayerTensors{.name = std::move(name),
                        .tensors = {{at(tensor), 2, {n, 2, 16}, {stride / 2, 16, 1}}},
                        .page_bytes = stride,
                        .unpadded_page_bytes = 64,
                        .block_dim = 0};
  };
  const auto kv_first = [&](std::string name, std::size_t tensor) {
    return LayerTensors{.name = std::move(name),
                        .tensors = {{at(tensor), 2, {2, n, 2, 16}, {n * 32, 32, 16, 1}}},
                        .page_bytes = 128,
                        .unpadded_page_bytes = 128,
                        .block_dim = 1};
  };
  switch (layout) {
    case worker::Layout::kBlocksFirst:
      return {blocks_first("a", 0, 64), blocks_first("b", 1, 64)};
    case worker::Layout::kKVFirst:
      return {kv_first("a", 0), kv_first("b", 1)};
    case worker::Layout::kCrossLayers:
      return {{.name = "all",
               .kind = LayerKind::kCrossLayers,
               .tensors = {{at(0), 2, {3, n, 16}, {16, 48, 1}}},
               .page_bytes = 96,
               .unpadded_page_bytes = 96,
               .block_dim = 1}};
    case worker::Layout::kMamba:
      return {{.name = "a",
               .kind = LayerKind::kMamba,
               .tensors = {{at(0), 4, {n, 3, 4}, {24, 4, 1}}, {at(0) + 48, 2, {n, 16}, {48, 1}}},
               .page_bytes = 96,
               .unpadded_page_bytes = 80,
               .block_dim = 0}};
    case worker::Layout::kPadded:
      return {blocks_first("a", 0, 96)};
  }
  return {};
}

CopyPathKind kind_of(worker::Path path) {
  switch (path) {
    case worker::Path::kBatched:
      return CopyPathKind::kBatched;
    case worker::Path::kLooped:
      return CopyPathKind::kLooped;
    case worker::Path::kStrided:
      return CopyPathKind::kStrided;
    case worker::Path::kKernel:
      return CopyPathKind::kKernel;
  }
  return CopyPathKind::kBatched;
}

virtual_device::Schedule schedule_of(worker::Schedule schedule) {
  switch (schedule) {
    case worker::Schedule::kCommanded:
      return virtual_device::Schedule::kCommanded;
    case worker::Schedule::kEager:
      return virtual_device::Schedule::kEager;
    case worker::Schedule::kLazy:
      return virtual_device::Schedule::kLazy;
    case worker::Schedule::kRandom:
      return virtual_device::Schedule::kRandom;
    case worker::Schedule::kPriority:
      return virtual_device::Schedule::kPriority;
  }
  return virtual_device::Schedule::kCommanded;
}

virtual_device::Options device_options(const worker::Options& options) {
  return {.schedule = schedule_of(options.schedule),
          .seed = options.seed,
          .device_memory_bytes = std::size_t{1} << 17,
          .registered_memory_has_own_device_address = options.host_address_differs,
          .batch_entries_max = options.batch_entries_max};
}

/// At the first call that copies. `undefined`: what the transfer writes.
std::vector<virtual_device::Fault> faults_of_copies(
    virtual_device::Fault::Kind kind, const std::vector<virtual_device::MemoryRange>& undefined) {
  using Function = virtual_device::Function;
  std::vector<virtual_device::Fault> faults;
  for (const Function function : {Function::kMemcpyBatchAsync, Function::kMemcpyAsync,
                                  Function::kMemcpy2DAsync, Function::kLaunch}) {
    faults.push_back({.kind = kind, .function = function, .count = 1, .undefined = undefined});
  }
  return faults;
}

/// `num_records_before`: of the calls that record an event, those before a transfer's end.
std::vector<virtual_device::Fault> faults_of(
    worker::Fault fault, std::uint64_t num_records_before,
    const std::vector<virtual_device::MemoryRange>& undefined) {
  using Kind = virtual_device::Fault::Kind;
  using Function = virtual_device::Function;
  switch (fault) {
    case worker::Fault::kNone:
      return {};
    case worker::Fault::kCopy:
      return faults_of_copies(Kind::kReturnCode, {});
    case worker::Fault::kWait:
      return {{.kind = Kind::kReturnCode, .function = Function::kStreamWaitEvent}};
    case worker::Fault::kRecord:
      return {{.kind = Kind::kReturnCode,
               .function = Function::kEventRecord,
               .nth = num_records_before + 1}};
    case worker::Fault::kLate:
      return {{.kind = Kind::kReadyLate,
               .function = Function::kEventRecord,
               .nth = num_records_before + 1,
               .count = worker::kNumLatePolls}};
    case worker::Fault::kPartial:
      return faults_of_copies(Kind::kPartialBatch, undefined);
    case worker::Fault::kSticky:
      return faults_of_copies(Kind::kAsynchronous, undefined);
  }
  return {};
}

bool contains(Numbers numbers, std::uint32_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

bool share(Numbers a, Numbers b) {
  return std::any_of(a.begin(), a.end(), [b](std::uint32_t number) { return contains(b, number); });
}

content::Owner owner_at(const std::byte* bytes) {
  content::Granule granule;
  std::memcpy(&granule, bytes, sizeof granule);
  return content::decode(kRunSeed, granule);
}

}  // namespace

/// The fault that waits, for as long as the worker is called.
class WorkerOnVirtualDevice::Armed {
 public:
  /// `first`: the transfer that will copy first; none: nothing copies.
  Armed(WorkerOnVirtualDevice& self, std::uint64_t num_records_before, const Unreported* first)
      : self_(self), is_lost_(self.device_.is_lost()) {
    // On a lost device every call fails already.
    if (is_lost_) return;
    const auto undefined = first != nullptr ? self_.destinations_of(*first)
                                            : std::vector<virtual_device::MemoryRange>();
    self_.device_.inject_once(faults_of(self_.next_fault_, num_records_before, undefined));
  }
  ~Armed() {
    if (!is_lost_ && !self_.device_.has_injected()) self_.next_fault_ = worker::Fault::kNone;
    self_.device_.inject_once({});
  }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  WorkerOnVirtualDevice& self_;
  bool is_lost_;
};

WorkerOnVirtualDevice::WorkerOnVirtualDevice(const worker::Options& options)
    : options_(options), device_(device_options(options)), random_(options.seed) {
  const virtual_device::Installed installed(device_);
  open();
}

WorkerOnVirtualDevice::~WorkerOnVirtualDevice() {
  const virtual_device::Installed installed(device_);
  worker_.reset();
}

void WorkerOnVirtualDevice::open() {
  const std::size_t num_blocks = options_.num_gpu_blocks;
  gpu_.size = kTensorsMax * num_blocks * kBlockSpace + 2 * kGuardBytes;
  void* memory = nullptr;
  ok(cudaMalloc(&memory, gpu_.size));
  gpu_base_ = static_cast<std::byte*>(memory);
  const auto gpu_address = reinterpret_cast<std::uintptr_t>(gpu_base_);
  DiscoveredLayout found = discover_layout(
      layers_of(options_.layout, gpu_address + kGuardBytes, num_blocks), num_blocks, 1);
  KVFENCE_CHECK(found.refusal.empty(), found.refusal);
  gpu_layout_ = std::move(found.layout);
  ok(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
  ok(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
  first_worker_stream_ = device_.stream_number(other_) + 1;

  const std::size_t cpu_bytes =
      cpu_memory_bytes(gpu_layout_, options_.num_cpu_blocks, options_.block_size_factor);
  cpu_.size = (cpu_bytes + 15) / 16 * 16 + 2 * kGuardBytes;
  host_.resize(cpu_.size / sizeof(content::Granule));
  auto* const host = reinterpret_cast<std::byte*>(host_.data());
  gpu_.at_first.resize(gpu_.size);
  cpu_.at_first.resize(cpu_.size);
  content::fill_canary(gpu_.at_first, kRunSeed, 1);
  content::fill_canary(cpu_.at_first, kRunSeed, 2);
  std::memcpy(device_.bytes(gpu_base_, gpu_.size), gpu_.at_first.data(), gpu_.size);
  std::memcpy(host, cpu_.at_first.data(), cpu_.size);

  Worker::Opened opened = Worker::open({.gpu_layout = gpu_layout_,
                                        .num_cpu_blocks = options_.num_cpu_blocks,
                                        .compute_stream = compute_,
                                        .plan = {.block_size_factor = options_.block_size_factor},
                                        .copy = {.batch_entries_max = options_.batch_entries_max},
                                        .only_path = kind_of(options_.path),
                                        .cpu_memory = {host + kGuardBytes, cpu_bytes}});
  KVFENCE_CHECK(opened.worker != nullptr, opened.refusal);
  worker_ = std::move(opened.worker);
  note_pages(gpu_, gpu_address, gpu_layout_, 1);
  note_pages(cpu_, reinterpret_cast<std::uintptr_t>(host), worker_->cpu_layout(),
             options_.block_size_factor);
}

void WorkerOnVirtualDevice::note_pages(Memory& memory, std::uintptr_t address,
                                       const KVLayout& layout, std::size_t pages_per_block) const {
  std::vector<ByteSpan> pages;
  for (const PageRef& ref : gpu_layout_.groups[0]) {
    const PageTensor& tensor = layout.tensors[ref.tensor_index];
    const std::size_t page_bytes = gpu_layout_.tensors[ref.tensor_index].page_bytes;
    for (std::size_t block = 0; block < tensor.num_blocks; ++block) {
      for (std::size_t page = 0; page < pages_per_block; ++page) {
        const std::size_t begin =
            tensor.address - address + block * tensor.block_stride + page * page_bytes;
        pages.push_back({begin, begin + ref.unpadded_page_bytes});
      }
    }
  }
  std::sort(pages.begin(), pages.end(),
            [](const ByteSpan& a, const ByteSpan& b) { return a.begin < b.begin; });
  std::size_t end = 0;
  for (const ByteSpan& page : pages) {
    if (page.begin > end) memory.outside.push_back({end, page.begin});
    end = page.end;
  }
  memory.outside.push_back({end, memory.size});
}

const std::byte* WorkerOnVirtualDevice::gpu_page(std::size_t ref, std::uint32_t block) const {
  const PageRef& page = gpu_layout_.groups[0][ref];
  const PageTensor& tensor = gpu_layout_.tensors[page.tensor_index];
  const std::uintptr_t address = tensor.address + block * tensor.block_stride;
  return device_.bytes(reinterpret_cast<const void*>(address), page.unpadded_page_bytes);
}

const std::byte* WorkerOnVirtualDevice::cpu_page(std::size_t ref, std::uint32_t page) const {
  const std::size_t tensor = gpu_layout_.groups[0][ref].tensor_index;
  const PageTensor& rows = worker_->cpu_layout().tensors[tensor];
  const std::uint32_t factor = options_.block_size_factor;
  return reinterpret_cast<const std::byte*>(rows.address + page / factor * rows.block_stride +
                                            page % factor * gpu_layout_.tensors[tensor].page_bytes);
}

template <class PageOf>
worker::Content WorkerOnVirtualDevice::content_of(PageOf page_of) const {
  using Kind = worker::Content::Kind;
  const std::vector<PageRef>& refs = gpu_layout_.groups[0];
  const content::Tag first = owner_at(page_of(0)).tag;
  if (first.block_id == content::kCanaryBlock) {
    for (std::size_t ref = 0; ref < refs.size(); ++ref) {
      const std::byte* bytes = page_of(ref);
      for (std::size_t at = 0; at < refs[ref].unpadded_page_bytes; at += content::kGranuleBytes) {
        if (owner_at(bytes + at).tag.block_id != content::kCanaryBlock)
          return {.kind = Kind::kTorn};
      }
    }
    return {};
  }
  const std::uint64_t block = first.block_id / kPagesMax;
  if (block >= options_.num_gpu_blocks) return {.kind = Kind::kTorn};
  for (std::size_t ref = 0; ref < refs.size(); ++ref) {
    const content::Universe universe{.run_seed = kRunSeed,
                                     .num_blocks = options_.num_gpu_blocks * kPagesMax,
                                     .generation_max = kGenerationMax,
                                     .granules_per_block = kBlockSpace / content::kGranuleBytes};
    const content::Tag tag{block * kPagesMax + ref, first.generation};
    const std::span<const std::byte> bytes(page_of(ref), refs[ref].unpadded_page_bytes);
    if (!content::check_block(bytes, tag, universe).is_right()) return {.kind = Kind::kTorn};
  }
  return {Kind::kWritten, static_cast<std::uint32_t>(block), first.generation};
}

worker::Content WorkerOnVirtualDevice::gpu_bytes_of(std::uint32_t block) const {
  return content_of([&](std::size_t ref) { return gpu_page(ref, block); });
}

worker::Content WorkerOnVirtualDevice::gpu_content(std::uint32_t block) const {
  const worker::Content undefined{.kind = worker::Content::Kind::kUndefined};
  if (is_begun({true, block})) return undefined;
  if (!options_.is_commanded()) {
    const std::uint32_t blocks[] = {block};
    for (const virtual_device::MemoryRange& range : ranges_of(blocks)) {
      if (!device_.host_knows_writes(range.address, range.size)) return undefined;
    }
  }
  return gpu_bytes_of(block);
}

worker::Content WorkerOnVirtualDevice::cpu_content(std::uint32_t page) const {
  const worker::Content undefined{.kind = worker::Content::Kind::kUndefined};
  if (is_begun({false, page})) return undefined;
  if (!options_.is_commanded()) {
    for (std::size_t ref = 0; ref < gpu_layout_.groups[0].size(); ++ref) {
      const std::size_t size = gpu_layout_.groups[0][ref].unpadded_page_bytes;
      if (!device_.host_knows_writes(cpu_page(ref, page), size)) return undefined;
    }
  }
  return content_of([&](std::size_t ref) { return cpu_page(ref, page); });
}

bool WorkerOnVirtualDevice::is_begun(const PageName& page) const {
  return std::any_of(begun_.begin(), begun_.end(), [&](const Begun& begun) {
    return device_.queue().completed(begun.stream) < begun.last &&
           std::find(begun.pages.begin(), begun.pages.end(), page) != begun.pages.end();
  });
}

void WorkerOnVirtualDevice::begin(virtual_device::Actor stream) {
  const auto is_over = [&](const Begun& begun) {
    return device_.queue().completed(begun.stream) >= begun.last;
  };
  std::erase_if(begun_, is_over);
  const virtual_device::Device::NextWork next = device_.next_work(stream);
  if (next.last == 0) return;
  // What has begun before is not told from it: no end was recorded between the two.
  for (Begun& begun : begun_) {
    if (begun.stream == stream) begun.last = next.last;
  }
  begun_.push_back({stream, next.last, pages_in(next.writes)});
}

std::vector<PageName> WorkerOnVirtualDevice::pages_in(
    std::span<const virtual_device::ByteRange> ranges) const {
  std::set<std::pair<bool, std::uint32_t>> found;
  const auto add = [&](bool is_gpu, std::uint32_t number, const std::byte* begin,
                       std::size_t size) {
    const bool is_touched = std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
      return range.begin < begin + size && begin < range.end;
    });
    if (is_touched) found.insert({is_gpu, number});
  };
  const std::vector<PageRef>& refs = gpu_layout_.groups[0];
  for (std::size_t ref = 0; ref < refs.size(); ++ref) {
    const std::size_t size = refs[ref].unpadded_page_bytes;
    for (std::uint32_t block = 0; block < options_.num_gpu_blocks; ++block) {
      add(true, block, gpu_page(ref, block), size);
    }
    for (std::uint32_t page = 0; page < options_.num_cpu_blocks * options_.block_size_factor;
         ++page) {
      add(false, page, cpu_page(ref, page), size);
    }
  }
  std::vector<PageName> pages;
  for (const auto& [is_gpu, number] : found) pages.push_back({is_gpu, number});
  return pages;
}

std::uint32_t WorkerOnVirtualDevice::num_stray_bytes() const {
  std::uint32_t num_changed = 0;
  const auto count = [&](const Memory& memory, const std::byte* bytes) {
    for (const ByteSpan& span : memory.outside) {
      for (std::size_t at = span.begin; at < span.end; ++at) {
        num_changed += bytes[at] != memory.at_first[at];
      }
    }
  };
  count(gpu_, device_.bytes(gpu_base_, gpu_.size));
  count(cpu_, reinterpret_cast<const std::byte*>(host_.data()));
  return num_changed;
}

std::optional<worker::Stream> WorkerOnVirtualDevice::stream_of(virtual_device::Actor actor) const {
  if (actor == device_.stream_number(compute_)) return worker::Stream::kCompute;
  if (actor == first_worker_stream_) return worker::Stream::kStore;
  if (actor == first_worker_stream_ + 1) return worker::Stream::kLoad;
  return std::nullopt;
}

std::vector<PageName> WorkerOnVirtualDevice::pages_in(std::uintptr_t begin,
                                                      std::uintptr_t end) const {
  std::vector<PageName> pages;
  const auto add = [&](bool is_gpu, std::uint32_t number, std::uintptr_t address,
                       std::size_t size) {
    const PageName page{is_gpu, number};
    if (address >= end || begin >= address + size) return;
    if (std::find(pages.begin(), pages.end(), page) == pages.end()) pages.push_back(page);
  };
  const std::vector<PageRef>& refs = gpu_layout_.groups[0];
  for (std::size_t ref = 0; ref < refs.size(); ++ref) {
    const PageTensor& tensor = gpu_layout_.tensors[refs[ref].tensor_index];
    const std::size_t size = refs[ref].unpadded_page_bytes;
    for (std::uint32_t block = 0; block < options_.num_gpu_blocks; ++block) {
      add(true, block, tensor.address + block * tensor.block_stride, size);
    }
    const std::uint32_t num_pages = options_.num_cpu_blocks * options_.block_size_factor;
    for (std::uint32_t page = 0; page < num_pages; ++page) {
      add(false, page, reinterpret_cast<std::uintptr_t>(cpu_page(ref, page)), size);
    }
  }
  return pages;
}

std::vector<cudaEvent_t> WorkerOnVirtualDevice::record_readers() {
  // A lost device makes no event, and fails before it looks at one: any handle will do.
  if (device_.is_lost()) return std::vector<cudaEvent_t>(2, reinterpret_cast<cudaEvent_t>(this));
  std::vector<cudaEvent_t> events;
  for (const cudaStream_t stream : {other_, compute_}) {
    events.push_back(nullptr);
    ok(cudaEventCreateWithFlags(&events.back(), cudaEventDisableTiming));
    ok(cudaEventRecord(events.back(), stream));
  }
  return events;
}

TransferSpec WorkerOnVirtualDevice::spec_of(const worker::Transfer& transfer) const {
  return {.gpu_blocks = transfer.gpu_blocks,
          .cpu_blocks = transfer.cpu_blocks,
          .group_sizes = {transfer.gpu_blocks.size()},
          .block_indices = {transfer.block_index}};
}

std::vector<virtual_device::MemoryRange> WorkerOnVirtualDevice::destinations_of(
    const Unreported& transfer) const {
  if (transfer.direction == worker::Direction::kLoad) return ranges_of(transfer.gpu_blocks);
  std::vector<virtual_device::MemoryRange> ranges;
  for (const std::uint32_t page : transfer.cpu_pages) {
    for (std::size_t ref = 0; ref < gpu_layout_.groups[0].size(); ++ref) {
      ranges.push_back({cpu_page(ref, page), gpu_layout_.groups[0][ref].unpadded_page_bytes});
    }
  }
  return ranges;
}

ErrorCode WorkerOnVirtualDevice::refusal_of(const worker::Transfer& transfer) {
  const bool is_store = transfer.direction == worker::Direction::kStore;
  const ErrorCode error = worker_->refusal_of(
      transfer.job_id, is_store ? Direction::kStore : Direction::kLoad, spec_of(transfer));
  if (error != ErrorCode::kNone || is_store || transfer.has_event) return error;
  return ErrorCode::kNotOrdered;
}

ErrorCode WorkerOnVirtualDevice::transfer_async(const worker::Transfer& transfer) {
  const virtual_device::Installed installed(device_);
  const TransferSpec spec = spec_of(transfer);
  const bool is_store = transfer.direction == worker::Direction::kStore;
  Unreported taken{.job_id = transfer.job_id,
                   .direction = transfer.direction,
                   .gpu_blocks = transfer.gpu_blocks,
                   .is_deferred = is_store};
  if (is_store) {
    static_cast<void>(worker_->store(transfer.job_id, spec));
    if (worker_->refusal_code() == ErrorCode::kNone &&
        worker::counts_fit(transfer, options_.block_size_factor)) {
      taken.cpu_pages = worker::cpu_pages_of(transfer, options_.block_size_factor);
    }
  } else {
    const bool is_lost = device_.is_lost();
    std::vector<cudaEvent_t> events;
    if (transfer.has_event) events = record_readers();
    {
      const bool is_known =
          std::all_of(transfer.gpu_blocks.begin(), transfer.gpu_blocks.end(),
                      [this](std::uint32_t block) { return block < options_.num_gpu_blocks; });
      const Armed armed(*this, 0, is_known ? &taken : nullptr);
      static_cast<void>(worker_->load(transfer.job_id, spec, events));
    }
    if (!is_lost) {
      for (const cudaEvent_t event : events) ok(cudaEventDestroy(event));
    }
  }
  const ErrorCode error = worker_->refusal_code();
  if (error == ErrorCode::kNone) unreported_.push_back(std::move(taken));
  return error;
}

auto WorkerOnVirtualDevice::first_deferred() const -> const Unreported* {
  const auto first =
      std::find_if(unreported_.begin(), unreported_.end(), [](const Unreported& transfer) {
        return transfer.is_deferred && !transfer.gpu_blocks.empty();
      });
  return first == unreported_.end() ? nullptr : &*first;
}

void WorkerOnVirtualDevice::start_stores() {
  for (Unreported& transfer : unreported_) transfer.is_deferred = false;
}

void WorkerOnVirtualDevice::start_kv_transfers() {
  const virtual_device::Installed installed(device_);
  const Armed armed(*this, 1, first_deferred());
  worker_->begin_step();
  start_stores();
}

void WorkerOnVirtualDevice::report(std::span<const TransferResult> results,
                                   std::vector<worker::Ended>& ended) {
  for (const TransferResult& result : results) {
    const auto job_id = static_cast<std::uint32_t>(result.job_id);
    ended.push_back({job_id,
                     result.direction == Direction::kStore ? worker::Direction::kStore
                                                           : worker::Direction::kLoad,
                     result.succeeded()});
    std::erase_if(unreported_, [&](const Unreported& other) { return other.job_id == job_id; });
  }
}

void WorkerOnVirtualDevice::get_finished(std::vector<worker::Ended>& ended) {
  const virtual_device::Installed installed(device_);
  std::vector<TransferResult> results;
  worker_->poll(results);
  if (!options_.is_commanded()) {
    for (int polls = 0; worker_->num_in_flight() > 0 && polls < kPollsMax; ++polls) {
      worker_->poll(results);
    }
    std::stable_sort(results.begin(), results.end(), [](const auto& a, const auto& b) {
      return a.direction == Direction::kStore && b.direction == Direction::kLoad;
    });
  }
  report(results, ended);
}

void WorkerOnVirtualDevice::wait(Numbers job_ids) {
  const virtual_device::Installed installed(device_);
  const Armed armed(*this, 1, first_deferred());
  const std::vector<JobId> ids(job_ids.begin(), job_ids.end());
  static_cast<void>(worker_->wait(ids));
  if (worker_->num_deferred() == 0) start_stores();
}

void WorkerOnVirtualDevice::shutdown(std::vector<worker::Ended>& ended) {
  const virtual_device::Installed installed(device_);
  const Armed armed(*this, 1, first_deferred());
  report(worker_->shutdown(), ended);
}

std::vector<virtual_device::MemoryRange> WorkerOnVirtualDevice::ranges_of(Numbers blocks) const {
  std::vector<virtual_device::MemoryRange> ranges;
  for (const std::uint32_t block : blocks) {
    for (const PageRef& ref : gpu_layout_.groups[0]) {
      const PageTensor& tensor = gpu_layout_.tensors[ref.tensor_index];
      const std::uintptr_t address = tensor.address + block * tensor.block_stride;
      ranges.push_back({reinterpret_cast<void*>(address), ref.unpadded_page_bytes});
    }
  }
  return ranges;
}

void WorkerOnVirtualDevice::write(std::uint32_t block, std::uint32_t generation) {
  const std::vector<PageRef>& refs = gpu_layout_.groups[0];
  for (std::size_t ref = 0; ref < refs.size(); ++ref) {
    auto* const bytes = const_cast<std::byte*>(gpu_page(ref, block));
    content::fill({bytes, refs[ref].unpadded_page_bytes}, {block * kPagesMax + ref, generation},
                  kRunSeed);
  }
}

ErrorCode WorkerOnVirtualDevice::refusal_of_forward(Numbers reads, Numbers writes) const {
  std::set<std::uint32_t> named;
  for (const Numbers blocks : {reads, writes}) {
    for (const std::uint32_t block : blocks) {
      if (block >= options_.num_gpu_blocks) return ErrorCode::kUnknownBlock;
      named.insert(block);
    }
  }
  if (named.size() < reads.size() + writes.size()) return ErrorCode::kListedTwice;
  for (const Unreported& transfer : unreported_) {
    const bool is_load = transfer.direction == worker::Direction::kLoad;
    if (share(writes, transfer.gpu_blocks) || (is_load && share(reads, transfer.gpu_blocks))) {
      return ErrorCode::kBlockInFlight;
    }
  }
  return ErrorCode::kNone;
}

ErrorCode WorkerOnVirtualDevice::forward(Numbers reads, Numbers writes) {
  const ErrorCode error = refusal_of_forward(reads, writes);
  if (error != ErrorCode::kNone) return error;
  const std::uint32_t generation = ++generation_;
  // A lost device takes no work.
  if (device_.is_lost()) return ErrorCode::kNone;
  const virtual_device::Installed installed(device_);
  const virtual_device::Time time =
      device_.queue().enqueued(actor_of(worker::Stream::kCompute)) + 1;
  ok(device_.launch(compute_, ranges_of(reads), ranges_of(writes),
                    [this, generation, time, reads = std::vector(reads.begin(), reads.end()),
                     writes = std::vector(writes.begin(), writes.end())] {
                      for (const std::uint32_t block : reads) {
                        seen_.push_back({time, {block, gpu_bytes_of(block)}});
                      }
                      for (const std::uint32_t block : writes) write(block, generation);
                    }));
  return ErrorCode::kNone;
}

virtual_device::Actor WorkerOnVirtualDevice::actor_of(worker::Stream stream) const {
  if (stream == worker::Stream::kCompute) return device_.stream_number(compute_);
  return first_worker_stream_ + (stream == worker::Stream::kLoad ? 1 : 0);
}

bool WorkerOnVirtualDevice::advance(worker::Stream stream, std::uint32_t num_steps) {
  const virtual_device::Installed installed(device_);
  if (device_.is_lost()) return false;
  if (!options_.is_commanded()) {
    device_.yield();
    return false;
  }
  if (stream == worker::Stream::kCompute) {
    return num_steps == 0 && device_.advance(compute_, 1) > 0;
  }
  if (num_steps == 0) return device_.advance_to_event(actor_of(stream));
  begin(actor_of(stream));
  return device_.advance_part(actor_of(stream), num_steps, random_);
}

void WorkerOnVirtualDevice::take_seen(std::vector<worker::Seen>& seen) {
  seen.clear();
  const virtual_device::Actor compute = actor_of(worker::Stream::kCompute);
  const auto end = std::find_if(seen_.begin(), seen_.end(), [&](const SeenAt& at) {
    return !options_.is_commanded() && !device_.host_knows(compute, at.time);
  });
  for (auto at = seen_.begin(); at != end; ++at) seen.push_back(at->seen);
  seen_.erase(seen_.begin(), end);
}

worker::Counts WorkerOnVirtualDevice::counts() const {
  return {.num_deferred = static_cast<std::uint32_t>(worker_->num_deferred()),
          .num_in_flight = static_cast<std::uint32_t>(worker_->num_in_flight()),
          .num_races = static_cast<std::uint32_t>(device_.counters().num_races),
          .num_misuses = static_cast<std::uint32_t>(device_.misuses().size()),
          .next_fault = next_fault_};
}

WorkersOnVirtualDevices::WorkersOnVirtualDevices(const worker::Options& options) {
  for (std::uint32_t rank = 0; rank < options.num_ranks; ++rank) {
    worker::Options own = options;
    own.seed += rank;
    ranks_.push_back(std::make_unique<Rank>(own));
  }
}

ErrorCode WorkersOnVirtualDevices::transfer_async(const worker::Transfer& transfer) {
  // One rank may have reported what another has not: nobody takes what somebody refuses. And a
  // refusal leaves nothing behind on a device, not even the events that a load waits for.
  for (const auto& rank : ranks_) {
    const ErrorCode error = rank->refusal_of(transfer);
    if (error != ErrorCode::kNone) return error;
  }
  for (const auto& rank : ranks_) {
    const ErrorCode error = rank->transfer_async(transfer);
    if (error != ErrorCode::kNone) return error;
  }
  pending_.push_back({.ended = {transfer.job_id, transfer.direction, true}});
  return ErrorCode::kNone;
}

ErrorCode WorkersOnVirtualDevices::forward(Numbers reads, Numbers writes) {
  for (const auto& rank : ranks_) {
    const ErrorCode error = rank->refusal_of_forward(reads, writes);
    if (error != ErrorCode::kNone) return error;
  }
  for (const auto& rank : ranks_) static_cast<void>(rank->forward(reads, writes));
  return ErrorCode::kNone;
}

void WorkersOnVirtualDevices::start_kv_transfers() {
  for (const auto& rank : ranks_) rank->start_kv_transfers();
}

void WorkersOnVirtualDevices::wait(Numbers job_ids) {
  for (const auto& rank : ranks_) rank->wait(job_ids);
}

void WorkersOnVirtualDevices::get_finished(std::vector<worker::Ended>& ended) {
  std::vector<worker::Ended> reports;
  for (const auto& rank : ranks_) rank->get_finished(reports);
  collect(reports, ended);
}

void WorkersOnVirtualDevices::shutdown(std::vector<worker::Ended>& ended) {
  std::vector<worker::Ended> reports;
  for (const auto& rank : ranks_) rank->shutdown(reports);
  collect(reports, ended);
}

void WorkersOnVirtualDevices::collect(std::span<const worker::Ended> reports,
                                      std::vector<worker::Ended>& ended) {
  for (const worker::Ended& report : reports) {
    const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return pending.ended.job_id == report.job_id;
    });
    ++found->num_reports;
    found->ended.succeeded &= report.succeeded;
  }
  const auto is_over = [&](const Pending& pending) { return pending.num_reports == ranks_.size(); };
  for (const auto direction : {worker::Direction::kStore, worker::Direction::kLoad}) {
    for (const Pending& pending : pending_) {
      if (is_over(pending) && pending.ended.direction == direction) ended.push_back(pending.ended);
    }
  }
  std::erase_if(pending_, is_over);
}

void WorkersOnVirtualDevices::fail_next(std::uint32_t rank, worker::Fault fault) {
  for (const auto& other : ranks_) other->fail_next(worker::Fault::kNone);
  ranks_[rank]->fail_next(fault);
}

void WorkersOnVirtualDevices::take_seen(std::vector<worker::Seen>& seen) {
  seen.clear();
  std::vector<worker::Seen> taken;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank]->take_seen(taken);
    for (worker::Seen& page : taken) page.rank = rank;
    seen.insert(seen.end(), taken.begin(), taken.end());
  }
}

worker::Counts WorkersOnVirtualDevices::counts() const {
  worker::Counts sum;
  for (const auto& rank : ranks_) {
    const worker::Counts counts = rank->counts();
    sum.num_deferred = counts.num_deferred;
    sum.num_races += counts.num_races;
    sum.num_misuses += counts.num_misuses;
    if (counts.next_fault != worker::Fault::kNone) sum.next_fault = counts.next_fault;
  }
  sum.num_in_flight = ranks_.size() == 1
                          ? ranks_[0]->counts().num_in_flight
                          : static_cast<std::uint32_t>(pending_.size()) - sum.num_deferred;
  return sum;
}

std::uint32_t WorkersOnVirtualDevices::num_stray_bytes() const {
  std::uint32_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->num_stray_bytes();
  return sum;
}

}  // namespace kvfence::cuda
