#include "cuda/worker/engine_on_virtual_device.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace kvfence::cuda {
namespace {

using engine::Place;
using engine::Symbol;

constexpr std::size_t kNumLayers = kEngineLayers;
/// The happens-before check distinguishes this many accesses over the network at once.
constexpr std::size_t kRemoteStreams = 8;
/// Besides the KV cache.
constexpr std::size_t kSpareBytes = std::size_t{1} << 16;

std::size_t kv_cache_bytes(const engine::DeviceOptions& options) {
  return std::size_t{options.num_gpu_blocks} * options.block_size * kEngineTokenBytes;
}

/// The second half says whether the first is intact, and of which layer. An unwritten place is all
/// zeros, and so is a copy of it.
content::Granule granule_of(Symbol symbol, std::size_t layer) {
  if (symbol == toy_model::kUnwritten) return {};
  return {symbol, content::fmix64(symbol + layer)};
}

/// Of a whole number of granules.
bool is_zero(std::span<const std::byte> bytes) {
  std::uint64_t any = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof any) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    any |= word;
  }
  return any == 0;
}

using LayerBytes = std::array<const std::byte*, kNumLayers>;

/// Of a token's bytes in each layer.
Symbol symbol_at(const LayerBytes& layers) {
  std::array<content::Granule, kNumLayers> found{};
  bool is_unwritten = true;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    std::memcpy(&found[layer], layers[layer], sizeof(content::Granule));
    is_unwritten &= found[layer] == content::Granule{};
  }
  if (is_unwritten) return toy_model::kUnwritten;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    if (found[layer] != granule_of(found[0].first, layer)) return toy_model::kTorn;
  }
  return found[0].first;
}

/// Two layers per group, blocks first; groups share the memory.
KVLayout layout_of(const engine::DeviceOptions& options, std::uintptr_t address) {
  const std::size_t n = options.num_gpu_blocks;
  const std::size_t page_bytes = options.block_size * sizeof(content::Granule);
  KVLayout layout;
  std::vector<PageRef> refs;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    layout.tensors.push_back({address + layer * n * page_bytes, n, page_bytes, page_bytes});
    refs.push_back({layer, page_bytes});
  }
  layout.groups.assign(options.num_groups, refs);
  return layout;
}

}  // namespace

EngineOnVirtualDevice::EngineOnVirtualDevice(const engine::DeviceOptions& options)
    : RankDevice({.schedule = virtual_device::Schedule::kCommanded,
                  .device_memory_bytes = kv_cache_bytes(options) + kSpareBytes,
                  .checks_happens_before = options.looks_for_races}),
      options_(options) {
  const virtual_device::Installed installed(device_);
  const std::size_t gpu_bytes = kv_cache_bytes(options);
  gpu_base_ = open_device(gpu_bytes);
  std::memset(device_.bytes(gpu_base_, gpu_bytes), 0, gpu_bytes);
  KVLayout layout = layout_of(options, reinterpret_cast<std::uintptr_t>(gpu_base_));
  const std::size_t cpu_bytes =
      cpu_memory_bytes(layout, options.num_cpu_blocks, options.block_size_factor);
  host_.resize(cpu_bytes / sizeof(content::Granule));
  // A step may reuse blocks when their last transfer has ended, before its report.
  open_worker({.gpu_layout = std::move(layout),
               .num_cpu_blocks = options.num_cpu_blocks,
               .block_size_factor = options.block_size_factor,
               .only_path = CopyPathKind::kBatched,
               .cpu_memory = std::as_writable_bytes(std::span(host_)),
               .refuses_conflicts = false});
}

void EngineOnVirtualDevice::transfer_async(const engine::Copy& copy) {
  const virtual_device::Installed installed(device_);
  const TransferSpec spec{.gpu_blocks = copy.gpu_blocks,
                          .cpu_blocks = copy.cpu_blocks,
                          .group_sizes = {copy.group_sizes.begin(), copy.group_sizes.end()},
                          .block_indices = {copy.block_indices.begin(), copy.block_indices.end()}};
  worker::Fault& next_fault = next_faults_[static_cast<std::size_t>(copy.direction)];
  std::vector<virtual_device::MemoryRange> torn;
  if (next_fault == worker::Fault::kPartial) {
    const bool is_load = copy.direction == worker::Direction::kLoad;
    torn = ranges_of(is_load, is_load ? copy.gpu_blocks
                                      : engine::cpu_pages_of(copy, options_.block_size_factor));
  }
  // A refused transfer is not under way and never ends: the count of transfers lacks it.
  if (copy.direction == worker::Direction::kStore) {
    static_cast<void>(worker_->store(copy.job_id, spec));
    // The connector's half has deferred it already. The first record is for its wait.
    device_.inject_once(faults_of(next_fault, 1, torn));
    worker_->begin_step();
  } else {
    const cudaEvent_t readers = record(compute_);
    device_.inject_once(faults_of(next_fault, 0, torn));
    static_cast<void>(worker_->load(copy.job_id, spec, {&readers, 1}));
    ok(cudaEventDestroy(readers));
  }
  // A transfer without pages copies nothing: a fault of copies waits for the next one.
  if (!device_.has_injected()) next_fault = worker::Fault::kNone;
  device_.inject_once({});
}

void EngineOnVirtualDevice::get_finished(std::vector<worker::Ended>& ended) {
  const virtual_device::Installed installed(device_);
  std::vector<TransferResult> results;
  worker_->poll(results);
  report(results, ended);
}

void EngineOnVirtualDevice::wait(std::span<const std::uint32_t> job_ids) {
  const virtual_device::Installed installed(device_);
  const std::vector<JobId> ids(job_ids.begin(), job_ids.end());
  ok(worker_->wait(ids));
}

std::byte* EngineOnVirtualDevice::gpu_address(std::size_t layer, Place place) const {
  const std::size_t block = layer * options_.num_gpu_blocks + place.block;
  return gpu_base_ + (block * options_.block_size + place.offset) * sizeof(content::Granule);
}

std::vector<virtual_device::MemoryRange> EngineOnVirtualDevice::ranges_of_places(
    const std::vector<Place>& places) const {
  std::vector<virtual_device::MemoryRange> ranges;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    for (const Place place : places) {
      std::byte* const address = gpu_address(layer, place);
      const bool goes_on =
          !ranges.empty() &&
          static_cast<const std::byte*>(ranges.back().address) + ranges.back().size == address;
      if (goes_on) {
        ranges.back().size += sizeof(content::Granule);
      } else {
        ranges.push_back({address, sizeof(content::Granule)});
      }
    }
  }
  return ranges;
}

void EngineOnVirtualDevice::forward(const std::vector<Place>& reads,
                                    const std::vector<Place>& writes, engine::Kernel kernel) {
  const virtual_device::Installed installed(device_);
  ok(device_.launch(compute_, ranges_of_places(reads), ranges_of_places(writes),
                    [this, kernel = std::move(kernel)] { kernel(*this); }));
  if (options_.has_remote) forwards_.push_back(record(compute_));
}

/// It is not known before the end which bytes are touched when. So nothing is touched here, and all
/// bytes that may be touched are compared with all other accesses.
void EngineOnVirtualDevice::begin_remote(std::uint32_t number,
                                         std::span<const std::uint32_t> blocks, bool writes) {
  const virtual_device::Installed installed(device_);
  if (remote_.size() < kRemoteStreams) {
    ok(cudaStreamCreateWithFlags(&remote_.emplace_back(), cudaStreamNonBlocking));
  }
  const cudaStream_t stream = remote_[number % remote_.size()];
  std::vector<Place> places;
  for (const std::uint32_t block : blocks) {
    for (std::uint32_t at = 0; at < options_.block_size; ++at) places.push_back({block, at});
  }
  const std::vector<virtual_device::MemoryRange> ranges = ranges_of_places(places);
  ok(device_.launch(stream, writes ? decltype(ranges){} : ranges,
                    writes ? ranges : decltype(ranges){}, [] {}));
  device_.advance(stream, 1);
  remotes_[number] = record(stream);
}

void EngineOnVirtualDevice::know(cudaEvent_t event) {
  const virtual_device::Installed installed(device_);
  ok(cudaEventSynchronize(event));
  ok(cudaEventDestroy(event));
}

void EngineOnVirtualDevice::know_remote(std::uint32_t number) {
  const auto remote = remotes_.find(number);
  if (remote == remotes_.end()) return;
  know(remote->second);
  remotes_.erase(remote);
}

void EngineOnVirtualDevice::know_forward() {
  if (forwards_.empty()) return;
  know(forwards_.front());
  forwards_.pop_front();
}

bool EngineOnVirtualDevice::advance(worker::Stream stream) {
  const virtual_device::Installed installed(device_);
  if (stream == worker::Stream::kCompute) return device_.advance(compute_, 1) > 0;
  return device_.advance_to_event(actor_of(stream));
}

void EngineOnVirtualDevice::show_pages(std::uint32_t rank, engine::KVPages& gpu,
                                       engine::KVPages& cpu) const {
  for (const bool is_gpu : {true, false}) {
    const std::uint32_t num_pages =
        is_gpu ? options_.num_gpu_blocks : options_.num_cpu_blocks * options_.block_size_factor;
    engine::KVPages& pages = is_gpu ? gpu : cpu;
    for (std::uint32_t number = 0; number < num_pages; ++number) {
      const auto parts = parts_of({is_gpu, number}).first(kNumLayers);
      const auto was_written = [](const PagePart& part) {
        return !is_zero({part.bytes, part.size});
      };
      if (std::ranges::none_of(parts, was_written)) continue;
      LayerBytes layers;
      for (std::size_t layer = 0; layer < kNumLayers; ++layer) layers[layer] = parts[layer].bytes;
      for (std::uint32_t& shown : pages.add(rank, number, options_.block_size)) {
        shown = toy_model::shortened(symbol_at(layers));
        for (const std::byte*& bytes : layers) bytes += sizeof(content::Granule);
      }
    }
  }
}

/// Checked against the ranges that the forward declares.
Symbol EngineOnVirtualDevice::read(Place place) const {
  LayerBytes layers;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    layers[layer] = device_.bytes(gpu_address(layer, place), sizeof(content::Granule));
  }
  return symbol_at(layers);
}

void EngineOnVirtualDevice::write(Place place, Symbol symbol) {
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    const content::Granule granule = granule_of(symbol, layer);
    std::memcpy(device_.bytes(gpu_address(layer, place), sizeof granule), &granule, sizeof granule);
  }
}

}  // namespace kvfence::cuda
