#include "cuda/worker/engine_on_virtual_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "contract/core/check.h"

namespace kvfence::cuda {
namespace {

using engine::Place;
using engine::Symbol;

constexpr std::size_t kNumLayers = kEngineLayers;
/// Besides the KV cache.
constexpr std::size_t kSpareBytes = std::size_t{1} << 16;

std::size_t kv_cache_bytes(const engine::DeviceOptions& options) {
  return std::size_t{options.num_gpu_blocks} * options.block_size * kEngineTokenBytes;
}

void ok(cudaError_t code) { KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code)); }

/// The second half says whether the first is what was written, and in which layer.
content::Granule granule_of(Symbol symbol, std::size_t layer) {
  return {symbol, content::fmix64(symbol + layer)};
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

/// Of a page that begins there; whether anything was written to it.
bool read_page(LayerBytes layers, std::span<Symbol> symbols) {
  bool is_written = false;
  for (Symbol& symbol : symbols) {
    symbol = symbol_at(layers);
    is_written |= symbol != toy_model::kUnwritten;
    for (const std::byte*& bytes : layers) bytes += sizeof(content::Granule);
  }
  return is_written;
}

/// Two layers a group, blocks first; groups share the memory.
KVLayout layout_of(const engine::DeviceOptions& options, std::uintptr_t address) {
  const std::size_t n = options.num_gpu_blocks;
  const std::size_t page_bytes = options.block_size * sizeof(content::Granule);
  std::vector<LayerTensors> layers;
  for (std::size_t group = 0; group < options.num_groups; ++group) {
    for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
      layers.push_back(
          {.name = std::to_string(group * kNumLayers + layer),
           .group = group,
           .tensors = {{address + layer * n * page_bytes, 1, {n, page_bytes}, {page_bytes, 1}}},
           .page_bytes = page_bytes,
           .unpadded_page_bytes = page_bytes,
           .block_dim = 0});
    }
  }
  DiscoveredLayout found = discover_layout(layers, n, options.num_groups);
  KVFENCE_CHECK(found.refusal.empty(), found.refusal);
  return std::move(found.layout);
}

}  // namespace

EngineOnVirtualDevice::EngineOnVirtualDevice(const engine::DeviceOptions& options)
    : options_(options),
      device_({.schedule = virtual_device::Schedule::kCommanded,
               .device_memory_bytes = kv_cache_bytes(options) + kSpareBytes,
               .checks_happens_before = options.looks_for_races}) {
  const virtual_device::Installed installed(device_);
  const std::size_t gpu_bytes = kv_cache_bytes(options);
  void* memory = nullptr;
  ok(cudaMalloc(&memory, gpu_bytes));
  gpu_base_ = static_cast<std::byte*>(memory);
  std::byte* const bytes = device_.bytes(gpu_base_, gpu_bytes);
  std::memset(bytes, 0, gpu_bytes);
  shown_ = bytes;
  ok(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
  first_worker_stream_ = device_.stream_number(compute_) + 1;
  KVLayout layout = layout_of(options, reinterpret_cast<std::uintptr_t>(gpu_base_));
  const std::size_t cpu_bytes =
      cpu_memory_bytes(layout, options.num_cpu_blocks, options.block_size_factor);
  host_.resize(cpu_bytes / sizeof(content::Granule));
  // Blocks that a step reuses are not fenced by their last transfer's report but by its end.
  Worker::Opened opened = Worker::open({.gpu_layout = std::move(layout),
                                        .num_cpu_blocks = options.num_cpu_blocks,
                                        .compute_stream = compute_,
                                        .plan = {.block_size_factor = options.block_size_factor},
                                        .only_path = CopyPathKind::kBatched,
                                        .cpu_memory = std::as_writable_bytes(std::span(host_)),
                                        .refuses_conflicts = false});
  KVFENCE_CHECK(opened.worker != nullptr, opened.refusal);
  worker_ = std::move(opened.worker);
}

EngineOnVirtualDevice::~EngineOnVirtualDevice() {
  const virtual_device::Installed installed(device_);
  worker_.reset();
}

void EngineOnVirtualDevice::arm(worker::Fault fault, std::uint64_t num_records_before) {
  using Kind = virtual_device::Fault::Kind;
  using Function = virtual_device::Function;
  if (fault == worker::Fault::kCopy) {
    device_.inject_once({{.kind = Kind::kReturnCode, .function = Function::kMemcpyBatchAsync}});
  } else if (fault == worker::Fault::kWait) {
    device_.inject_once({{.kind = Kind::kReturnCode, .function = Function::kStreamWaitEvent}});
  } else if (fault == worker::Fault::kRecord) {
    device_.inject_once({{.kind = Kind::kReturnCode,
                          .function = Function::kEventRecord,
                          .nth = num_records_before + 1}});
  }
}

void EngineOnVirtualDevice::transfer_async(const engine::Copy& copy) {
  const virtual_device::Installed installed(device_);
  const TransferSpec spec{.gpu_blocks = copy.gpu_blocks,
                          .cpu_blocks = copy.cpu_blocks,
                          .group_sizes = {copy.group_sizes.begin(), copy.group_sizes.end()},
                          .block_indices = {copy.block_indices.begin(), copy.block_indices.end()}};
  worker::Fault& next_fault = next_faults_[static_cast<std::size_t>(copy.direction)];
  worker::Fault fault = worker::Fault::kNone;
  if (next_fault != worker::Fault::kCopy || !copy.gpu_blocks.empty()) {
    fault = std::exchange(next_fault, worker::Fault::kNone);
  }
  // A refused one is not under way, and never ends: whoever counts transfers misses it.
  if (copy.direction == worker::Direction::kStore) {
    static_cast<void>(worker_->store(copy.job_id, spec));
    // The connector's half has deferred it already. Of the records the first is for its wait.
    arm(fault, 1);
    worker_->begin_step();
  } else {
    cudaEvent_t readers = nullptr;
    ok(cudaEventCreateWithFlags(&readers, cudaEventDisableTiming));
    ok(cudaEventRecord(readers, compute_));
    arm(fault, 0);
    static_cast<void>(worker_->load(copy.job_id, spec, {&readers, 1}));
    ok(cudaEventDestroy(readers));
  }
  // What never called is not failed later.
  if (fault != worker::Fault::kNone) device_.inject_once({});
}

void EngineOnVirtualDevice::get_finished(std::vector<worker::Ended>& ended) {
  const virtual_device::Installed installed(device_);
  std::vector<TransferResult> results;
  worker_->poll(results);
  for (const TransferResult& result : results) {
    ended.push_back({static_cast<std::uint32_t>(result.job_id),
                     result.direction == Direction::kStore ? worker::Direction::kStore
                                                           : worker::Direction::kLoad,
                     result.succeeded()});
  }
}

void EngineOnVirtualDevice::wait(std::span<const std::uint32_t> job_ids) {
  const virtual_device::Installed installed(device_);
  const std::vector<JobId> ids(job_ids.begin(), job_ids.end());
  ok(worker_->wait(ids));
}

std::size_t EngineOnVirtualDevice::gpu_offset(std::size_t layer, Place place) const {
  const std::size_t block = layer * options_.num_gpu_blocks + place.block;
  return (block * options_.block_size + place.offset) * sizeof(content::Granule);
}

std::vector<virtual_device::MemoryRange> EngineOnVirtualDevice::ranges_of(
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
  ok(device_.launch(compute_, ranges_of(reads), ranges_of(writes),
                    [this, kernel = std::move(kernel)] { kernel(*this); }));
}

bool EngineOnVirtualDevice::advance(worker::Stream stream) {
  const virtual_device::Installed installed(device_);
  if (stream == worker::Stream::kCompute) return device_.advance(compute_, 1) > 0;
  const auto index = static_cast<virtual_device::Actor>(stream == worker::Stream::kLoad);
  return device_.advance_to_event(static_cast<virtual_device::Actor>(first_worker_stream_ + index));
}

bool EngineOnVirtualDevice::gpu_page(std::uint32_t block, std::span<Symbol> symbols) const {
  LayerBytes layers;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    layers[layer] = shown_ + gpu_offset(layer, {block, 0});
  }
  return read_page(layers, symbols);
}

bool EngineOnVirtualDevice::cpu_page(std::uint32_t page, std::span<Symbol> symbols) const {
  LayerBytes layers;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    layers[layer] = cpu_address(layer, page);
  }
  return read_page(layers, symbols);
}

/// Checked against the ranges that the forward declares.
Symbol EngineOnVirtualDevice::read(Place place) const {
  LayerBytes layers;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    layers[layer] = device_.bytes(gpu_address(layer, place), sizeof(content::Granule));
  }
  return symbol_at(layers);
}

const std::byte* EngineOnVirtualDevice::cpu_address(std::size_t layer, std::uint32_t page) const {
  const PageTensor& rows = worker_->cpu_layout().tensors[layer];
  const std::uint32_t factor = options_.block_size_factor;
  const std::size_t page_bytes = options_.block_size * sizeof(content::Granule);
  return reinterpret_cast<const std::byte*>(rows.address + page / factor * rows.block_stride +
                                            page % factor * page_bytes);
}

std::optional<worker::Stream> EngineOnVirtualDevice::stream_of(virtual_device::Actor actor) const {
  if (actor == device_.stream_number(compute_)) return worker::Stream::kCompute;
  if (actor == first_worker_stream_) return worker::Stream::kStore;
  if (actor == first_worker_stream_ + 1) return worker::Stream::kLoad;
  return std::nullopt;
}

std::vector<PageName> EngineOnVirtualDevice::pages_in(std::uintptr_t begin,
                                                      std::uintptr_t end) const {
  const std::size_t page_bytes = options_.block_size * sizeof(content::Granule);
  std::vector<PageName> pages;
  const auto add = [&](bool is_gpu, std::uint32_t number, const std::byte* bytes) {
    const PageName page{is_gpu, number};
    const auto address = reinterpret_cast<std::uintptr_t>(bytes);
    if (address >= end || begin >= address + page_bytes) return;
    if (std::find(pages.begin(), pages.end(), page) == pages.end()) pages.push_back(page);
  };
  const std::uint32_t num_cpu_pages = options_.num_cpu_blocks * options_.block_size_factor;
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    for (std::uint32_t block = 0; block < options_.num_gpu_blocks; ++block) {
      add(true, block, gpu_address(layer, {block, 0}));
    }
    for (std::uint32_t page = 0; page < num_cpu_pages; ++page) {
      add(false, page, cpu_address(layer, page));
    }
  }
  return pages;
}

void EngineOnVirtualDevice::write(Place place, Symbol symbol) {
  for (std::size_t layer = 0; layer < kNumLayers; ++layer) {
    const content::Granule granule = granule_of(symbol, layer);
    std::memcpy(device_.bytes(gpu_address(layer, place), sizeof granule), &granule, sizeof granule);
  }
}

worker::Counts EngineOnVirtualDevice::counts() const {
  return {.num_deferred = static_cast<std::uint32_t>(worker_->num_deferred()),
          .num_in_flight = static_cast<std::uint32_t>(worker_->num_in_flight()),
          .num_races = static_cast<std::uint32_t>(device_.counters().num_races),
          .num_misuses = static_cast<std::uint32_t>(device_.misuses().size()),
          .next_fault = worker::Fault::kNone};
}

}  // namespace kvfence::cuda
