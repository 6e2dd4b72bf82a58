#pragma once

/// For tests: a virtual device with a pool of KV blocks on each side, and the operations of a
/// worker as calls of the runtime. Contents are those of content_pattern.h, so that a report names
/// the origin of a wrong byte.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/core/sanitized.h"
#include "contract/worker/content_report.h"
#include "cuda/virtual/device.h"

namespace kvfence::virtual_device {

inline void ok(cudaError_t code) { KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code)); }

class TestRig {
 public:
  static constexpr std::size_t kBlockBytes = 64;
  static constexpr std::size_t kNumBlocks = 8;
  static constexpr std::size_t kNumStreams = 4;
  static constexpr std::uint64_t kRunSeed = 99;
  static constexpr content::Universe kUniverse{kRunSeed, 64, 1 << 20, kBlockBytes / 16};

  explicit TestRig(Options options = {})
      : own_(std::in_place, std::move(options)), device_(*own_), installed_(device_) {
    open();
  }
  /// On a device of the caller's.
  explicit TestRig(Device& device) : device_(device), installed_(device_) { open(); }

  Device& device() { return device_; }
  std::byte* gpu(std::size_t block) { return gpu_ + block * kBlockBytes; }
  std::byte* cpu(std::size_t block) { return cpu_ + block * kBlockBytes; }
  cudaStream_t stream(std::size_t index) { return streams_[index]; }
  cudaEvent_t event(std::size_t index) { return events_[index]; }

  /// Contents that were there before the program began.
  void set_gpu(std::size_t block, content::Tag tag) { set(gpu(block), tag); }
  void set_cpu(std::size_t block, content::Tag tag) { set(cpu(block), tag); }

  /// A kernel that writes a block, and one that reads it.
  void compute(std::size_t stream, std::size_t block, content::Tag tag) {
    ok(device().launch(streams_[stream], {}, {{gpu(block), kBlockBytes}},
                       [this, block, tag] { set_gpu(block, tag); }));
  }
  void attend(std::size_t stream, std::size_t block, content::Tag expected) {
    ok(device().launch(streams_[stream], {{gpu(block), kBlockBytes}}, {},
                       [this, block, expected] { check(gpu(block), expected); }));
  }
  void store(std::size_t stream, std::size_t gpu_block, std::size_t cpu_block) {
    ok(cudaMemcpyAsync(cpu(cpu_block), gpu(gpu_block), kBlockBytes, cudaMemcpyDeviceToHost,
                       streams_[stream]));
  }
  void load(std::size_t stream, std::size_t cpu_block, std::size_t gpu_block) {
    ok(cudaMemcpyAsync(gpu(gpu_block), cpu(cpu_block), kBlockBytes, cudaMemcpyHostToDevice,
                       streams_[stream]));
  }
  struct BlockCopy {
    void* dst;
    const void* src;
  };
  cudaError_t batch(std::size_t stream, const std::vector<BlockCopy>& copies,
                    cudaMemcpySrcAccessOrder order = cudaMemcpySrcAccessOrderStream) {
    std::vector<void*> dsts;
    std::vector<const void*> srcs;
    std::vector<std::size_t> sizes(copies.size(), kBlockBytes);
    for (const BlockCopy& copy : copies) {
      dsts.push_back(copy.dst);
      srcs.push_back(copy.src);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = order;
    std::size_t start = 0;
    const cudaError_t code =
        cudaMemcpyBatchAsync(dsts.data(), srcs.data(), sizes.data(), copies.size(), &attributes,
                             &start, 1, streams_[stream]);
    // The call has copied its descriptors, so they may change.
    dsts.assign(dsts.size(), nullptr);
    srcs.assign(srcs.size(), nullptr);
    sizes.assign(sizes.size(), 0);
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    return code;
  }
  void record(std::size_t event, std::size_t stream) {
    ok(cudaEventRecord(events_[event], streams_[stream]));
  }
  void wait(std::size_t stream, std::size_t event) {
    ok(cudaStreamWaitEvent(streams_[stream], events_[event], 0));
  }
  void sync(std::size_t stream) { ok(cudaStreamSynchronize(streams_[stream])); }

  /// The host writes and reads a block of its pool.
  void fill(std::size_t cpu_block, content::Tag tag) {
    device().host_write(cpu(cpu_block), kBlockBytes);
    set_cpu(cpu_block, tag);
  }
  void expect_cpu(std::size_t cpu_block, content::Tag expected) {
    device().host_read(cpu(cpu_block), kBlockBytes);
    check(cpu(cpu_block), expected);
  }
  /// Without an access of the host: for the end of a program.
  void expect_gpu(std::size_t gpu_block, content::Tag expected) { check(gpu(gpu_block), expected); }

  content::BlockReport look(const void* address, content::Tag expected) {
    const std::byte* bytes = device().bytes(address, kBlockBytes);
    return content::check_block({bytes, kBlockBytes}, expected, kUniverse);
  }
  /// Checks that found wrong bytes.
  const std::vector<content::BlockReport>& wrong() const { return wrong_; }
  std::size_t num_checks() const { return num_checks_; }

 private:
  void open() {
    void* memory = nullptr;
    ok(cudaMalloc(&memory, kNumBlocks * kBlockBytes));
    gpu_ = static_cast<std::byte*>(memory);
    ok(cudaHostAlloc(&memory, kNumBlocks * kBlockBytes, cudaHostAllocDefault));
    cpu_ = static_cast<std::byte*>(memory);
    for (cudaStream_t& stream : streams_) {
      ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    for (cudaEvent_t& event : events_) {
      ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    for (std::size_t block = 0; block < kNumBlocks; ++block) {
      content::fill_poison({device().bytes(gpu(block), kBlockBytes), kBlockBytes}, kRunSeed);
      content::fill_poison({cpu(block), kBlockBytes}, kRunSeed);
    }
  }
  void set(std::byte* address, content::Tag tag) {
    content::fill({device().bytes(address, kBlockBytes), kBlockBytes}, tag, kRunSeed);
  }
  void check(const std::byte* address, content::Tag expected) {
    ++num_checks_;
    const content::BlockReport report = look(address, expected);
    if (!report.is_right()) wrong_.push_back(report);
  }

  std::optional<Device> own_;
  Device& device_;
  Installed installed_;
  std::byte* gpu_ = nullptr;
  std::byte* cpu_ = nullptr;
  std::array<cudaStream_t, kNumStreams> streams_{};
  std::array<cudaEvent_t, 8> events_{};
  std::vector<content::BlockReport> wrong_;
  std::size_t num_checks_ = 0;
};

}  // namespace kvfence::virtual_device
