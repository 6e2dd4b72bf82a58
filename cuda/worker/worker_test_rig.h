#pragma once

/// For tests: a copy worker on a device, with the expected value of every byte of both memories.
/// The rig computes the expectation page by page, with its own arithmetic.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/worker/content_report.h"
#include "cuda/copy_paths/host_access.h"
#include "cuda/worker/worker.h"
#include "cuda/worker/worker_test_device.h"

namespace kvfence::cuda {

inline constexpr std::size_t kRigGpuBlocks = 8;
inline constexpr std::size_t kRigCpuBlocks = 6;
inline constexpr std::uint64_t kRigSeed = 7;
/// Bytes before and after the tensors, and of the space for each.
inline constexpr std::size_t kRigGuard = 256;
inline constexpr std::size_t kRigTensorSpace = 2048;
inline constexpr std::size_t kRigTensorsMax = 3;

/// One layout of each kind, at `address`.
struct NamedLayers {
  std::string name;
  std::size_t num_groups = 1;
  std::vector<LayerTensors> layers;
};

inline std::vector<NamedLayers> all_layouts(std::uintptr_t address) {
  const auto at = [address](std::size_t tensor) { return address + tensor * kRigTensorSpace; };
  const std::size_t n = kRigGpuBlocks;
  const auto blocks_first = [&](std::string name, std::size_t group, std::size_t tensor,
                                std::size_t stride, std::size_t page) {
    return LayerTensors{.name = std::move(name),
                        .group = group,
                        .tensors = {{at(tensor), 2, {n, 2, page / 4}, {stride / 2, page / 4, 1}}},
                        .page_bytes = stride,
                        .unpadded_page_bytes = page};
  };
  const auto kv_first = [&](std::string name, std::size_t group, std::size_t tensor) {
    return LayerTensors{.name = std::move(name),
                        .group = group,
                        .tensors = {{at(tensor), 2, {2, n, 2, 16}, {n * 32, 32, 16, 1}}},
                        .page_bytes = 128,
                        .unpadded_page_bytes = 128,
                        .block_dim = 1};
  };
  const auto mamba = [&](std::string name, std::size_t group, std::size_t tensor) {
    return LayerTensors{
        .name = std::move(name),
        .group = group,
        .kind = LayerKind::kMamba,
        .tensors = {{at(tensor), 4, {n, 3, 4}, {24, 4, 1}}, {at(tensor) + 48, 2, {n, 16}, {48, 1}}},
        .page_bytes = 96,
        .unpadded_page_bytes = 80};
  };
  return {
      {"blocks first", 1, {blocks_first("a", 0, 0, 64, 64), blocks_first("b", 0, 1, 64, 64)}},
      {"K and V first", 1, {kv_first("a", 0, 0), kv_first("b", 0, 1)}},
      {"cross layers",
       1,
       {{.name = "all",
         .kind = LayerKind::kCrossLayers,
         .tensors = {{at(0), 2, {3, n, 16}, {16, 48, 1}}},
         .page_bytes = 96,
         .unpadded_page_bytes = 96,
         .block_dim = 1}}},
      {"mamba", 1, {mamba("a", 0, 0)}},
      {"padding", 1, {blocks_first("a", 0, 0, 96, 64)}},
      {"hybrid",
       2,
       {blocks_first("a", 0, 0, 96, 96), mamba("b", 1, 0), kv_first("c", 0, 1),
        blocks_first("d", 1, 2, 64, 48)}},
  };
}

struct RigOptions {
  virtual_device::Options device = {};
  std::size_t layout = 0;  ///< of all_layouts()
  WorkerOptions worker = {.num_cpu_blocks = kRigCpuBlocks};
  bool has_given_memory = true;  ///< pinned by the worker, not allocated
};

class WorkerRig {
 public:
  explicit WorkerRig(RigOptions options)
      : device_(options.device), factor_(options.worker.block_size_factor) {
    open(std::move(options));
  }
  ~WorkerRig() {
    if constexpr (kIsOnGpu) give_all_back();
  }
  WorkerRig(const WorkerRig&) = delete;
  WorkerRig& operator=(const WorkerRig&) = delete;

#if !defined(KVFENCE_REAL_RUNTIME)
  virtual_device::Device& device() { return device_.device(); }
#endif
  void yield() { device_.yield(); }
  /// Destroys the worker.
  void close() { worker_.reset(); }
  Worker& worker() { return *worker_; }
  bool is_open() const { return worker_ != nullptr; }
  const std::string& refusal() const { return refusal_; }
  const KVLayout& layout() const { return layout_; }
  std::size_t factor() const { return factor_; }
  cudaStream_t compute_stream() const { return compute_; }
  cudaStream_t other_stream() const { return other_; }
  std::size_t num_checks() const { return num_checks_; }
  const std::vector<std::string>& wrong() const { return wrong_; }
  /// The findings of the device; empty if there are none.
  std::string findings() const { return device_.findings(); }

  /// New contents of a group's block: from before the program, and from a kernel.
  void set_gpu(std::size_t group, std::size_t block) {
    write_expected(group, block);
    for (const auto& [begin, size] : pages_of(group, block)) {
      device_.set_bytes(gpu_base_ + begin, gpu_expected_.data() + begin, size);
    }
  }
  void compute(std::size_t group, std::size_t block) {
    write_expected(group, block);
    device_.write_pages(compute_, expected_pages(group, block));
  }
  /// A kernel reads a group's block, and finds the contents expected at its launch.
  void attend(std::size_t group, std::size_t block) {
    device_.read_pages(compute_, expected_pages(group, block),
                       [this](const std::byte* actual, const std::vector<std::byte>& expected) {
                         compare("attended", actual, expected.data(), expected.size());
                       });
  }
  /// Makes one byte of a group's block wrong.
  void spoil_gpu(std::size_t group, std::size_t block) {
    std::byte* const address = gpu_base_ + pages_of(group, block).front().first;
    const std::byte spoiled = ~device_.bytes(address, 1).front();
    device_.set_bytes(address, &spoiled, 1);
  }
  /// The host overwrites a row, and reads one.
  void write_cpu(std::size_t cpu_block) {
    each_row(cpu_block, [&](std::byte* row, std::size_t size) {
      kvfence_host_write(row, size);
      content::fill({row, size}, {400 + cpu_block, ++generation_}, kRigSeed);
      std::memcpy(cpu_expected_.data() + (row - cpu_base_), row, size);
    });
  }
  void read_cpu(std::size_t cpu_block) {
    each_row(cpu_block, [&](std::byte* row, std::size_t size) {
      kvfence_host_read(row, size);
      compare("read by the host", row, cpu_expected_.data() + (row - cpu_base_), size);
    });
  }
  cudaEvent_t record(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ok(cudaEventRecord(event, stream));
    recorded_.push_back(event);
    return event;
  }

  /// Applies a successful transfer to the expectation.
  void expect(Direction direction, const TransferSpec& spec) {
    std::size_t gpu_begin = 0;
    std::size_t cpu_begin = 0;
    for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
      const std::size_t count = spec.group_sizes[group];
      if (count == 0) continue;
      const std::size_t skipped = spec.block_indices[group] % factor_;
      for (const PageRef& ref : layout_.groups[group]) {
        const PageTensor& gpu = layout_.tensors[ref.tensor_index];
        const PageTensor& cpu = worker_->cpu_layout().tensors[ref.tensor_index];
        for (std::size_t index = 0; index < count; ++index) {
          const std::size_t row = spec.cpu_blocks[cpu_begin + (skipped + index) / factor_];
          std::byte* dst = cpu_expected_.data() + (cpu.address - address_of(cpu_base_)) +
                           row * cpu.block_stride + (skipped + index) % factor_ * gpu.page_bytes;
          std::byte* src = gpu_expected_.data() + (gpu.address - address_of(gpu_base_)) +
                           spec.gpu_blocks[gpu_begin + index] * gpu.block_stride;
          if (direction == Direction::kLoad) std::swap(dst, src);
          std::memcpy(dst, src, ref.unpadded_page_bytes);
        }
      }
      gpu_begin += count;
      cpu_begin += (count + skipped + factor_ - 1) / factor_;
    }
  }
  /// A store or a load that should succeed.
  ErrorCode store(JobId job_id, const TransferSpec& spec) {
    const ErrorCode refusal = worker_->store(job_id, spec);
    if (refusal == ErrorCode::kNone) expect(Direction::kStore, spec);
    return refusal;
  }
  ErrorCode load(JobId job_id, const TransferSpec& spec, std::vector<cudaEvent_t> after) {
    const ErrorCode refusal = worker_->load(job_id, spec, after);
    if (refusal == ErrorCode::kNone) expect(Direction::kLoad, spec);
    return refusal;
  }
  /// Polls until `count` results are there.
  std::vector<TransferResult> poll(std::size_t count) {
    std::vector<TransferResult> results;
    for (int polls = 0; results.size() < count && polls < 10000; ++polls) {
      worker_->poll(results);
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      if (results.size() < count) advance_if_commanded();
    }
    return results;
  }
  /// One step of a commanded device.
  void advance_if_commanded() { device_.advance_if_commanded(); }
  /// Waits for everything.
  void settle() { device_.settle(); }
  /// Checks every byte of both memories, when all is over. Not the host's once its memory is freed.
  void check_all(bool with_cpu = true) {
    const std::vector<std::byte> actual = device_.bytes(gpu_base_, gpu_expected_.size());
    compare("GPU", actual.data(), gpu_expected_.data(), gpu_expected_.size());
    if (with_cpu) compare("CPU", cpu_base_, cpu_expected_.data(), cpu_expected_.size());
  }
  /// One group's blocks, one after the other.
  static TransferSpec spec(std::vector<std::uint32_t> gpu_blocks,
                           std::vector<std::uint32_t> cpu_blocks, std::size_t block_index = 0) {
    const std::size_t count = gpu_blocks.size();
    return {std::move(gpu_blocks), std::move(cpu_blocks), {count}, {block_index}};
  }

 private:
  void open(RigOptions options) {
    void* memory = nullptr;
    ok(cudaMalloc(&memory, kRigTensorsMax * kRigTensorSpace + 2 * kRigGuard));
    gpu_base_ = static_cast<std::byte*>(memory);
    NamedLayers named = all_layouts(address_of(gpu_base_) + kRigGuard)[options.layout];
    DiscoveredLayout found = discover_layout(named.layers, kRigGpuBlocks, named.num_groups);
    KVFENCE_CHECK(found.refusal.empty(), found.refusal);
    layout_ = found.layout;
    ok(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking));

    options.worker.gpu_layout = layout_;
    options.worker.compute_stream = compute_;
    const std::size_t cpu_bytes = cpu_memory_bytes(layout_, options.worker.num_cpu_blocks, factor_);
    given_.resize(cpu_bytes / sizeof(content::Granule) + 2 * kRigGuard / sizeof(content::Granule));
    if (options.has_given_memory) {
      options.worker.cpu_memory = {given_bytes() + kRigGuard, cpu_bytes};
    }
    Worker::Opened opened = Worker::open(options.worker);
    refusal_ = opened.refusal;
    worker_ = std::move(opened.worker);
    if (worker_ == nullptr) return;

    std::byte* cpu = pointer_of(worker_->cpu_layout().tensors[0].address);
    const std::size_t cpu_guard = options.has_given_memory ? kRigGuard : 0;
    cpu_base_ = cpu - cpu_guard;
    gpu_expected_.resize(kRigTensorsMax * kRigTensorSpace + 2 * kRigGuard);
    cpu_expected_.resize(cpu_bytes + 2 * cpu_guard);
    content::fill_canary(gpu_expected_, kRigSeed, 1);
    content::fill_canary(cpu_expected_, kRigSeed, 2);
    device_.set_bytes(gpu_base_, gpu_expected_.data(), gpu_expected_.size());
    std::memcpy(cpu_base_, cpu_expected_.data(), cpu_expected_.size());
    for (std::size_t block = 0; block < kRigGpuBlocks; ++block) {
      for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
        if (group == 0 || block >= kRigGpuBlocks / 2) set_gpu(group, block);
      }
    }
  }
  static std::uintptr_t address_of(const std::byte* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
  }
  static std::byte* pointer_of(std::uintptr_t address) {
    return reinterpret_cast<std::byte*>(address);
  }
  std::byte* given_bytes() { return reinterpret_cast<std::byte*>(given_.data()); }
  /// Places and sizes in the GPU's memory.
  std::vector<std::pair<std::size_t, std::size_t>> pages_of(std::size_t group,
                                                            std::size_t block) const {
    std::vector<std::pair<std::size_t, std::size_t>> pages;
    for (const PageRef& ref : layout_.groups[group]) {
      const PageTensor& tensor = layout_.tensors[ref.tensor_index];
      pages.emplace_back(tensor.address - address_of(gpu_base_) + block * tensor.block_stride,
                         ref.unpadded_page_bytes);
    }
    return pages;
  }
  void write_expected(std::size_t group, std::size_t block) {
    std::uint64_t page = 0;
    ++generation_;
    for (const auto& [begin, size] : pages_of(group, block)) {
      content::fill({gpu_expected_.data() + begin, size}, {block * 16 + page++, generation_},
                    kRigSeed);
    }
  }
  /// A block's pages, and their expected contents.
  RigPages expected_pages(std::size_t group, std::size_t block) const {
    RigPages pages;
    for (const auto& [begin, size] : pages_of(group, block)) {
      const auto first = gpu_expected_.begin() + static_cast<std::ptrdiff_t>(begin);
      pages.push_back({gpu_base_ + begin, {first, first + static_cast<std::ptrdiff_t>(size)}});
    }
    return pages;
  }
  template <class Function>
  void each_row(std::size_t cpu_block, Function function) {
    for (const PageTensor& rows : worker_->cpu_layout().tensors) {
      function(pointer_of(rows.address + cpu_block * rows.block_stride), rows.page_bytes);
    }
  }
  void compare(const char* where, const std::byte* actual, const std::byte* expected,
               std::size_t size) {
    ++num_checks_;
    if (std::memcmp(actual, expected, size) == 0) return;
    const auto at = std::mismatch(actual, actual + size, expected).first - actual;
    content::Granule granule;
    std::memcpy(&granule, actual + at / 16 * 16, sizeof granule);
    const content::Owner owner = content::decode(kRigSeed, granule);
    wrong_.push_back(std::string(where) + ": byte " + std::to_string(at) + " of " +
                     std::to_string(size) + " is of " + content::to_text(owner.tag));
  }

  // A virtual device frees all that it has.
  void give_all_back() {
    worker_.reset();
    for (cudaEvent_t event : recorded_) ok(cudaEventDestroy(event));
    for (cudaStream_t stream : {compute_, other_}) ok(cudaStreamDestroy(stream));
    ok(cudaFree(gpu_base_));
  }

  RigDevice device_;
  std::size_t factor_;
  std::byte* gpu_base_ = nullptr;
  std::byte* cpu_base_ = nullptr;
  KVLayout layout_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t other_ = nullptr;
  std::vector<cudaEvent_t> recorded_;
  std::vector<content::Granule> given_;
  std::vector<std::byte> gpu_expected_;
  std::vector<std::byte> cpu_expected_;
  std::uint32_t generation_ = 0;
  std::size_t num_checks_ = 0;
  std::vector<std::string> wrong_;
  std::string refusal_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace kvfence::cuda
