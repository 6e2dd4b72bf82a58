#pragma once

/// A copy worker on a virtual device, with the names of all pages: the part of a rank that the
/// targets `worker` and `engine` share.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "contract/worker/worker.h"
#include "cuda/virtual/device.h"
#include "cuda/worker/page_name.h"
#include "cuda/worker/worker.h"

namespace kvfence::cuda {

class RankDevice {
 public:
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  // For stories.

  const virtual_device::Device& device() const { return device_; }
  void set_story(virtual_device::Story* story) { device_.set_story(story); }
  /// The stream of that number; nothing if it is neither the worker's nor the model's.
  std::optional<worker::Stream> stream_of(virtual_device::Actor actor) const;
  /// The pages that share bytes with [begin, end), an access's addresses. Cost: O(pages).
  std::vector<PageName> pages_in(std::uintptr_t begin, std::uintptr_t end) const;

 protected:
  /// The part of a page in one tensor.
  struct PagePart {
    PageName page;
    void* address = nullptr;  ///< as calls of the runtime name it
    std::byte* bytes = nullptr;
    std::size_t size = 0;  ///< of its contents
  };

  explicit RankDevice(virtual_device::Options options) : device_(std::move(options)) {}
  ~RankDevice() = default;

  /// Memory of the GPU, and the stream that computes.
  std::byte* open_device(std::size_t size);
  /// The worker, on the compute stream, and the pages of both sides.
  void open_worker(WorkerOptions options);
  /// Ends the worker, which runs what is in flight: the memory that this touches must still be
  /// there.
  void close();

  std::span<const PagePart> parts_of(PageName page) const {
    const std::size_t index = page.is_gpu ? page.number : num_gpu_blocks_ + page.number;
    return {parts_.data() + index * num_parts_, num_parts_};
  }
  std::span<const PagePart> parts() const { return parts_; }
  /// All bytes of these pages of one side.
  std::vector<virtual_device::MemoryRange> ranges_of(bool is_gpu,
                                                     std::span<const std::uint32_t> pages) const;
  virtual_device::Actor actor_of(worker::Stream stream) const;
  /// Requires that the runtime does not fail.
  static void ok(cudaError_t code);
  /// The event that `stream` records now; it is the caller's.
  cudaEvent_t record(cudaStream_t stream);
  worker::Counts counts_of_worker() const;
  /// Allocations, streams and events.
  std::size_t num_held() const {
    return device_.num_allocations() + device_.num_streams() + device_.num_events();
  }
  /// The faults of a transfer. `num_records_before`: the calls before its end that record an event;
  /// `undefined`: the memory that it writes.
  static std::vector<virtual_device::Fault> faults_of(
      worker::Fault fault, std::uint64_t num_records_before,
      const std::vector<virtual_device::MemoryRange>& undefined);
  static void report(std::span<const TransferResult> results, std::vector<worker::Ended>& ended);

  virtual_device::Device device_;
  cudaStream_t compute_ = nullptr;
  std::unique_ptr<Worker> worker_;

 private:
  virtual_device::Actor first_worker_stream_ = 0;
  std::size_t num_held_ = 0;  ///< on the device, before there was a worker
  std::size_t num_gpu_blocks_ = 0;
  std::size_t num_parts_ = 0;    ///< of a page
  std::vector<PagePart> parts_;  ///< of GPU blocks, then of CPU pages; those of a page together
};

}  // namespace kvfence::cuda
