#pragma once

/// For tests: the device below a WorkerRig, and the work of a program on its streams beside the
/// worker. It is the virtual device or, compiled with KVFENCE_REAL_RUNTIME, a GPU. On a GPU a copy
/// from or to pinned memory replaces a kernel, and settle() compares the bytes that it read.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "cuda/copy_paths/device_under_test.h"
#include "cuda/virtual/options.h"

#if !defined(KVFENCE_REAL_RUNTIME)
#include "cuda/virtual/device.h"
#endif

namespace kvfence::cuda {

inline void ok(cudaError_t code) { KVFENCE_CHECK(code == cudaSuccess, cudaGetErrorName(code)); }

/// A page of a block in the GPU's memory, with the contents that are written or expected.
struct RigPage {
  std::byte* address = nullptr;
  std::vector<std::byte> contents;
};
using RigPages = std::vector<RigPage>;

/// Compares the bytes read of a page.
using ComparePage =
    std::function<void(const std::byte* actual, const std::vector<std::byte>& expected)>;

#if defined(KVFENCE_REAL_RUNTIME)

class RigDevice {
 public:
  explicit RigDevice(const virtual_device::Options& /*options*/) {
    void* memory = nullptr;
    ok(cudaHostAlloc(&memory, kPinnedBytes, cudaHostAllocDefault));
    pinned_ = static_cast<std::byte*>(memory);
  }
  ~RigDevice() { static_cast<void>(cudaFreeHost(pinned_)); }
  RigDevice(const RigDevice&) = delete;
  RigDevice& operator=(const RigDevice&) = delete;

  void write_pages(cudaStream_t stream, const RigPages& pages) {
    for (const RigPage& page : pages) {
      std::byte* const staged = take_pinned(page.contents.size());
      std::memcpy(staged, page.contents.data(), page.contents.size());
      ok(cudaMemcpyAsync(page.address, staged, page.contents.size(), cudaMemcpyDefault, stream));
    }
  }
  void read_pages(cudaStream_t stream, const RigPages& pages, const ComparePage& compare) {
    for (const RigPage& page : pages) {
      std::byte* const staged = take_pinned(page.contents.size());
      ok(cudaMemcpyAsync(staged, page.address, page.contents.size(), cudaMemcpyDefault, stream));
      read_.push_back([staged, compare, expected = page.contents] { compare(staged, expected); });
    }
  }
  /// While nothing runs.
  void set_bytes(std::byte* address, const std::byte* contents, std::size_t size) {
    copy_now(address, contents, size);
  }
  std::vector<std::byte> bytes(const std::byte* address, std::size_t size) {
    std::vector<std::byte> contents(size);
    copy_now(contents.data(), address, size);
    return contents;
  }
  /// Waits for everything.
  void settle() {
    ok(cudaDeviceSynchronize());
    for (const auto& compare : std::exchange(read_, {})) compare();
    num_pinned_ = 0;
  }
  void yield() {}
  void advance_if_commanded() {}
  std::string findings() const { return ""; }

 private:
  static constexpr std::size_t kPinnedBytes = std::size_t{1} << 20U;

  static void copy_now(std::byte* to, const std::byte* from, std::size_t size) {
    ok(cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, nullptr));
    ok(cudaStreamSynchronize(nullptr));
  }
  std::byte* take_pinned(std::size_t size) {
    KVFENCE_CHECK(num_pinned_ + size <= kPinnedBytes, "room for what a program reads and writes");
    return pinned_ + std::exchange(num_pinned_, num_pinned_ + size);
  }

  std::byte* pinned_ = nullptr;
  std::size_t num_pinned_ = 0;
  std::vector<std::function<void()>> read_;  ///< the comparisons that settle() makes
};

#else

class RigDevice {
 public:
  explicit RigDevice(const virtual_device::Options& options)
      : device_(options),
        installed_(device_),
        is_commanded_(options.schedule == virtual_device::Schedule::kCommanded) {}

  virtual_device::Device& device() { return device_; }

  void write_pages(cudaStream_t stream, RigPages pages) {
    auto ranges = ranges_of(pages);
    ok(device_.launch(stream, {}, std::move(ranges), [this, pages = std::move(pages)] {
      for (const RigPage& page : pages) {
        std::memcpy(device_.bytes(page.address, page.contents.size()), page.contents.data(),
                    page.contents.size());
      }
    }));
  }
  void read_pages(cudaStream_t stream, RigPages pages, ComparePage compare) {
    auto ranges = ranges_of(pages);
    ok(device_.launch(stream, std::move(ranges), {},
                      [this, pages = std::move(pages), compare = std::move(compare)] {
                        for (const RigPage& page : pages) {
                          compare(device_.bytes(page.address, page.contents.size()), page.contents);
                        }
                      }));
  }
  /// While nothing runs.
  void set_bytes(std::byte* address, const std::byte* contents, std::size_t size) {
    std::memcpy(device_.bytes(address, size), contents, size);
  }
  std::vector<std::byte> bytes(const std::byte* address, std::size_t size) {
    const std::byte* const begin = device_.bytes(address, size);
    return {begin, begin + size};
  }
  /// Waits for everything.
  void settle() { ok(cudaDeviceSynchronize()); }
  /// Lets the device do some of the work that it could have done by now.
  void yield() { device_.yield(); }
  /// One step of a commanded device.
  void advance_if_commanded() {
    if (!is_commanded_) return;
    std::vector<virtual_device::Step> steps;
    device_.list_steps(steps);
    if (!steps.empty()) device_.advance(steps.front());
  }
  /// Races and misuses; empty where there are none.
  std::string findings() const { return device_.is_clean() ? "" : device_.report(); }

 private:
  static std::vector<virtual_device::MemoryRange> ranges_of(const RigPages& pages) {
    std::vector<virtual_device::MemoryRange> ranges;
    for (const RigPage& page : pages) ranges.push_back({page.address, page.contents.size()});
    return ranges;
  }

  virtual_device::Device device_;
  virtual_device::Installed installed_;
  bool is_commanded_;
};

#endif

}  // namespace kvfence::cuda
