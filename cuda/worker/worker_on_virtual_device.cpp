#include "cuda/worker/worker_on_virtual_device.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "contract/core/check.h"
#include "contract/core/lists.h"

namespace kvfence::cuda {
namespace {

using Numbers = std::span<const std::uint32_t>;

constexpr std::uint64_t kRunSeed = 7;
/// Guards before and after the KV cache and the host blocks: nothing may write there.
constexpr std::size_t kGuardBytes = 256;
/// A block's page in each tensor has its own number in the pattern.
constexpr std::uint64_t kPagesMax = 16;
constexpr std::size_t kBlockSpace = 128;
constexpr std::size_t kTensorsMax = 2;
/// For a device that makes progress by itself: more than any transfer takes.
constexpr int kPollsMax = 10'000;
constexpr std::uint32_t kGenerationMax = (std::uint32_t{1} << content::kGenerationBits) - 1;

/// Two layers, or one where a block's page holds more than one thing.
std::vector<LayerTensors> layers_of(worker::Layout layout, std::uintptr_t address, std::size_t n) {
  const auto at = [&](std::size_t tensor) { return address + tensor * n * kBlockSpace; };
  const auto blocks_first = [&](std::string name, std::size_t tensor, std::size_t stride) {
    return LayerTensors{.name = std::move(name),
                        .tensors = {{at(tensor), 2, {n, 2, 16}, {stride / 2, 16, 1}}},
                        .page_bytes = stride,
                        .unpadded_page_bytes = 64};
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
               .unpadded_page_bytes = 80}};
    case worker::Layout::kPadded:
      return {blocks_first("a", 0, 96)};
  }
  return {};
}

/// By worker::Schedule.
constexpr virtual_device::Schedule kSchedules[] = {
    virtual_device::Schedule::kCommanded, virtual_device::Schedule::kEager,
    virtual_device::Schedule::kLazy, virtual_device::Schedule::kRandom,
    virtual_device::Schedule::kPriority};

virtual_device::Options device_options(const worker::Options& options) {
  return {.schedule = kSchedules[static_cast<std::size_t>(options.schedule)],
          .seed = options.seed,
          .device_memory_bytes = std::size_t{1} << 17,
          .registered_memory_has_own_device_address = options.host_address_differs,
          .batch_entries_max = options.batch_entries_max};
}

bool share(Numbers a, Numbers b) {
  return std::ranges::any_of(a, [b](std::uint32_t number) { return contains(b, number); });
}

TransferSpec spec_of(const worker::Transfer& transfer) {
  return {.gpu_blocks = transfer.gpu_blocks,
          .cpu_blocks = transfer.cpu_blocks,
          .group_sizes = {transfer.gpu_blocks.size()},
          .block_indices = {transfer.block_index}};
}

content::Owner owner_at(const std::byte* bytes) {
  content::Granule granule;
  std::memcpy(&granule, bytes, sizeof granule);
  return content::decode(kRunSeed, granule);
}

}  // namespace

/// Injects the waiting fault during a call of the worker.
class WorkerOnVirtualDevice::Armed {
 public:
  /// `first`: the transfer that will copy first; none: nothing copies.
  Armed(WorkerOnVirtualDevice& self, std::uint64_t num_records_before, const Unreported* first)
      : self_(self), is_lost_(self.device_.is_lost()) {
    // On a lost device every call fails already.
    if (is_lost_) return;
    std::vector<virtual_device::MemoryRange> undefined;
    if (first != nullptr) {
      const bool is_load = first->direction == Direction::kLoad;
      undefined = self_.ranges_of(is_load, is_load ? first->gpu_blocks : first->cpu_pages);
    }
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
    : RankDevice(device_options(options)), options_(options), random_(options.seed) {
  const virtual_device::Installed installed(device_);
  open();
}

void WorkerOnVirtualDevice::open() {
  const std::size_t num_blocks = options_.num_gpu_blocks;
  const std::size_t gpu_bytes = kTensorsMax * num_blocks * kBlockSpace + 2 * kGuardBytes;
  std::byte* const gpu = open_device(gpu_bytes);
  ok(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));
  const auto first_tensor = reinterpret_cast<std::uintptr_t>(gpu + kGuardBytes);
  DiscoveredLayout found =
      discover_layout(layers_of(options_.layout, first_tensor, num_blocks), num_blocks, 1);
  KVFENCE_CHECK(found.refusal.empty(), found.refusal);
  const std::size_t cpu_bytes =
      cpu_memory_bytes(found.layout, options_.num_cpu_blocks, options_.block_size_factor);
  host_.resize((cpu_bytes + 15) / 16 + 2 * kGuardBytes / sizeof(content::Granule));
  gpu_.bytes = {device_.bytes(gpu, gpu_bytes), gpu_bytes};
  cpu_.bytes = std::as_writable_bytes(std::span(host_));
  content::fill_canary(gpu_.bytes, kRunSeed, 1);
  content::fill_canary(cpu_.bytes, kRunSeed, 2);
  open_worker({.gpu_layout = std::move(found.layout),
               .num_cpu_blocks = options_.num_cpu_blocks,
               .block_size_factor = options_.block_size_factor,
               .copy = {.batch_entries_max = options_.batch_entries_max},
               .only_path = options_.path,
               .cpu_memory = cpu_.bytes.subspan(kGuardBytes, cpu_bytes)});
  for (Memory* memory : {&gpu_, &cpu_}) {
    std::vector<PagePart> own(parts().begin(), parts().end());
    std::erase_if(own, [&](const PagePart& part) { return part.page.is_gpu != (memory == &gpu_); });
    std::ranges::sort(own, {}, &PagePart::bytes);
    memory->at_first.assign(memory->bytes.begin(), memory->bytes.end());
    std::size_t end = 0;
    for (const PagePart& part : own) {
      const auto begin = static_cast<std::size_t>(part.bytes - memory->bytes.data());
      if (begin > end) memory->outside.push_back({end, begin});
      end = begin + part.size;
    }
    memory->outside.push_back({end, memory->bytes.size()});
  }
}

worker::Content WorkerOnVirtualDevice::bytes_of(PageName page) const {
  using Kind = worker::Content::Kind;
  const std::span<const PagePart> parts = parts_of(page);
  const content::Tag first = owner_at(parts[0].bytes).tag;
  if (first.block_id == content::kCanaryBlock) {
    for (const PagePart& part : parts) {
      for (std::size_t at = 0; at < part.size; at += content::kGranuleBytes) {
        if (owner_at(part.bytes + at).tag.block_id != content::kCanaryBlock) {
          return {.kind = Kind::kTorn};
        }
      }
    }
    return {};
  }
  const std::uint64_t block = first.block_id / kPagesMax;
  if (block >= options_.num_gpu_blocks) return {.kind = Kind::kTorn};
  const content::Universe universe{.run_seed = kRunSeed,
                                   .num_blocks = options_.num_gpu_blocks * kPagesMax,
                                   .generation_max = kGenerationMax,
                                   .granules_per_block = kBlockSpace / content::kGranuleBytes};
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const content::Tag tag{block * kPagesMax + index, first.generation};
    if (!content::check_block({parts[index].bytes, parts[index].size}, tag, universe).is_right()) {
      return {.kind = Kind::kTorn};
    }
  }
  return {Kind::kWritten, static_cast<std::uint32_t>(block), first.generation};
}

worker::Content WorkerOnVirtualDevice::content_of(PageName page) const {
  const auto is_known = [this](const PagePart& part) {
    return options_.is_commanded() || device_.host_knows_writes(part.address, part.size);
  };
  const std::span<const PagePart> parts = parts_of(page);
  if (is_begun(page) || !std::ranges::all_of(parts, is_known)) {
    return {.kind = worker::Content::Kind::kUndefined};
  }
  return bytes_of(page);
}

bool WorkerOnVirtualDevice::is_begun(PageName page) const {
  return std::ranges::any_of(begun_, [&](const Begun& begun) {
    return !device_.queue().is_over(begun.end) && contains(begun.pages, page);
  });
}

void WorkerOnVirtualDevice::begin(virtual_device::Actor stream) {
  std::erase_if(begun_, [&](const Begun& begun) { return device_.queue().is_over(begun.end); });
  const virtual_device::Device::NextWork next = device_.next_work(stream);
  if (next.last == 0) return;
  // Work that began before cannot be distinguished from this: no event was recorded between the
  // two.
  for (Begun& begun : begun_) {
    if (begun.end.stream == stream) begun.end.time = next.last;
  }
  Begun begun{.end = {stream, next.last}};
  for (const PagePart& part : parts()) {
    const virtual_device::ByteRange bytes{part.bytes, part.bytes + part.size};
    const bool is_written =
        std::ranges::any_of(next.writes, [&](const auto& range) { return overlap(range, bytes); });
    const bool is_new = begun.pages.empty() || begun.pages.back() != part.page;
    if (is_written && is_new) begun.pages.push_back(part.page);
  }
  begun_.push_back(std::move(begun));
}

std::uint32_t WorkerOnVirtualDevice::num_stray_bytes() const {
  std::uint32_t num_changed = 0;
  for (const Memory* memory : {&gpu_, &cpu_}) {
    for (const auto& [begin, end] : memory->outside) {
      for (std::size_t at = begin; at < end; ++at) {
        num_changed += memory->bytes[at] != memory->at_first[at];
      }
    }
  }
  return num_changed;
}

// The worker itself refuses a load without an event only in load(). With several ranks that is too
// late: an earlier rank would have taken it.
ErrorCode WorkerOnVirtualDevice::refusal_of(const worker::Transfer& transfer) const {
  const ErrorCode error =
      worker_->refusal_of(transfer.job_id, transfer.direction, spec_of(transfer));
  if (error != ErrorCode::kNone || transfer.direction == Direction::kStore || transfer.has_event) {
    return error;
  }
  return ErrorCode::kNotOrdered;
}

void WorkerOnVirtualDevice::transfer_async(const worker::Transfer& transfer) {
  const virtual_device::Installed installed(device_);
  const bool is_store = transfer.direction == Direction::kStore;
  Unreported taken{.job_id = transfer.job_id,
                   .direction = transfer.direction,
                   .gpu_blocks = transfer.gpu_blocks,
                   .is_deferred = is_store};
  if (is_store) {
    must(worker_->store(transfer.job_id, spec_of(transfer)), "a store is not refused");
  } else {
    load(transfer, taken);
  }
  if (is_store && worker::counts_fit(transfer, options_.block_size_factor)) {
    taken.cpu_pages = worker::cpu_pages_of(transfer, options_.block_size_factor);
  }
  unreported_.push_back(std::move(taken));
}

void WorkerOnVirtualDevice::load(const worker::Transfer& transfer, const Unreported& taken) {
  const bool is_lost = device_.is_lost();
  std::vector<cudaEvent_t> events;
  for (const cudaStream_t stream : {other_, compute_}) {
    // A lost device makes no events, and fails before it looks at one: any handle will do.
    events.push_back(is_lost ? reinterpret_cast<cudaEvent_t>(this) : record(stream));
  }
  {
    const Armed armed(*this, 0, &taken);
    must(worker_->load(transfer.job_id, spec_of(transfer), events), "a load is not refused");
  }
  if (device_.is_lost()) return;  // the load may have lost it
  for (const cudaEvent_t event : events) ok(cudaEventDestroy(event));
}

auto WorkerOnVirtualDevice::first_deferred() const -> const Unreported* {
  const auto first = std::ranges::find_if(unreported_, [](const Unreported& transfer) {
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

void WorkerOnVirtualDevice::take_results(std::span<const TransferResult> results,
                                         std::vector<worker::Ended>& ended) {
  report(results, ended);
  for (const TransferResult& result : results) {
    std::erase_if(unreported_, [&](const auto& other) { return other.job_id == result.job_id; });
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
    std::ranges::stable_sort(results, {}, &TransferResult::direction);
  }
  take_results(results, ended);
}

bool WorkerOnVirtualDevice::wait(Numbers job_ids) {
  const virtual_device::Installed installed(device_);
  const Armed armed(*this, 1, first_deferred());
  const std::vector<JobId> ids(job_ids.begin(), job_ids.end());
  const cudaError_t code = worker_->wait(ids);
  if (worker_->num_deferred() == 0) start_stores();
  return code == cudaSuccess;
}

void WorkerOnVirtualDevice::shutdown(std::vector<worker::Ended>& ended) {
  const virtual_device::Installed installed(device_);
  const Armed armed(*this, 1, first_deferred());
  take_results(worker_->shutdown(), ended);
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
    const bool is_load = transfer.direction == Direction::kLoad;
    if (share(writes, transfer.gpu_blocks) || (is_load && share(reads, transfer.gpu_blocks))) {
      return ErrorCode::kBlockInFlight;
    }
  }
  return ErrorCode::kNone;
}

void WorkerOnVirtualDevice::forward(Numbers reads, Numbers writes) {
  const std::uint32_t generation = ++generation_;
  // A lost device takes no work.
  if (device_.is_lost()) return;
  const virtual_device::Installed installed(device_);
  const virtual_device::Time time =
      device_.queue().enqueued(actor_of(worker::Stream::kCompute)) + 1;
  ok(device_.launch(compute_, ranges_of(true, reads), ranges_of(true, writes),
                    [this, generation, time, reads = std::vector(reads.begin(), reads.end()),
                     writes = std::vector(writes.begin(), writes.end())] {
                      for (const std::uint32_t block : reads) {
                        seen_.push_back({time, {block, bytes_of({true, block})}});
                      }
                      for (const std::uint32_t block : writes) write(block, generation);
                    }));
}

void WorkerOnVirtualDevice::write(std::uint32_t block, std::uint32_t generation) {
  std::uint64_t index = 0;
  for (const PagePart& part : parts_of({true, block})) {
    content::fill({part.bytes, part.size}, {block * kPagesMax + index++, generation}, kRunSeed);
  }
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
  const auto end = std::ranges::find_if(seen_, [&](const SeenAt& at) {
    return !options_.is_commanded() && !device_.host_knows(compute, at.time);
  });
  for (auto at = seen_.begin(); at != end; ++at) seen.push_back(at->seen);
  seen_.erase(seen_.begin(), end);
}

worker::Counts WorkerOnVirtualDevice::counts() const {
  worker::Counts counts = counts_of_worker();
  counts.next_fault = next_fault_;
  return counts;
}

WorkersOnVirtualDevices::WorkersOnVirtualDevices(const worker::Options& options) {
  for (std::uint32_t rank = 0; rank < options.num_ranks; ++rank) {
    worker::Options own = options;
    own.seed += rank;
    ranks_.push_back(std::make_unique<Rank>(own));
  }
}

ErrorCode WorkersOnVirtualDevices::transfer_async(const worker::Transfer& transfer) {
  // One rank may have reported what another has not: no rank takes a transfer that any rank
  // refuses. A refusal leaves nothing on a device, not even the events that a load waits for.
  for (const auto& rank : ranks_) {
    const ErrorCode error = rank->refusal_of(transfer);
    if (error != ErrorCode::kNone) return error;
  }
  for (const auto& rank : ranks_) rank->transfer_async(transfer);
  pending_.push_back({.ended = {transfer.job_id, transfer.direction, true, true}});
  return ErrorCode::kNone;
}

ErrorCode WorkersOnVirtualDevices::forward(Numbers reads, Numbers writes) {
  for (const auto& rank : ranks_) {
    const ErrorCode error = rank->refusal_of_forward(reads, writes);
    if (error != ErrorCode::kNone) return error;
  }
  for (const auto& rank : ranks_) rank->forward(reads, writes);
  return ErrorCode::kNone;
}

void WorkersOnVirtualDevices::start_kv_transfers() {
  for (const auto& rank : ranks_) rank->start_kv_transfers();
}

bool WorkersOnVirtualDevices::wait(Numbers job_ids) {
  bool are_over = true;
  for (const auto& rank : ranks_) are_over &= rank->wait(job_ids);
  return are_over;
}

void WorkersOnVirtualDevices::collect(void (Rank::*ask)(std::vector<worker::Ended>&),
                                      std::vector<worker::Ended>& ended) {
  std::vector<worker::Ended> reports;
  for (const auto& rank : ranks_) (*rank.*ask)(reports);
  for (const worker::Ended& report : reports) {
    const auto found = std::ranges::find(
        pending_, report.job_id, [](const Pending& pending) { return pending.ended.job_id; });
    ++found->num_reports;
    found->ended.succeeded &= report.succeeded;
    found->ended.is_at_rest &= report.is_at_rest;
  }
  const auto is_over = [&](const Pending& pending) { return pending.num_reports == ranks_.size(); };
  if (ranks_.size() == 1) {
    // The worker's own order.
    ended.insert(ended.end(), reports.begin(), reports.end());
  } else {
    for (const Direction direction : {Direction::kStore, Direction::kLoad}) {
      for (const Pending& pending : pending_) {
        if (is_over(pending) && pending.ended.direction == direction) {
          ended.push_back(pending.ended);
        }
      }
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
    sum.num_enqueued += counts.num_enqueued;
    sum.num_enqueued_pages += counts.num_enqueued_pages;
    sum.num_failed += counts.num_failed;
    sum.num_lost_events += counts.num_lost_events;
    sum.num_left_behind += counts.num_left_behind;
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
