#pragma once

/// The copy worker with everything around it, as contract/worker.h wants it: a virtual device whose
/// progress is commanded, a KV cache, host memory, and the forwards of a model. What pages hold is
/// read from their bytes.
///
/// Link kvfence::worker_on_virtual_device, and nothing that brings the real runtime.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "contract/content_report.h"
#include "contract/status.h"
#include "contract/worker.h"
#include "cuda/virtual/device.h"
#include "cuda/worker.h"

namespace kvfence::cuda {

/// A GPU block, or the page of a CPU block that takes one.
struct PageName {
  bool is_gpu = false;
  std::uint32_t number = 0;
  friend bool operator==(const PageName&, const PageName&) = default;
};

template <class Instrumentation>
class BasicWorkerOnVirtualDevice {
 public:
  explicit BasicWorkerOnVirtualDevice(const worker::Options& options,
                                      Instrumentation instrumentation = {});
  ~BasicWorkerOnVirtualDevice();
  BasicWorkerOnVirtualDevice(const BasicWorkerOnVirtualDevice&) = delete;
  BasicWorkerOnVirtualDevice& operator=(const BasicWorkerOnVirtualDevice&) = delete;

  ErrorCode transfer_async(const worker::Transfer& transfer);
  void start_kv_transfers();
  void get_finished(std::vector<worker::Ended>& ended);
  void wait(std::span<const std::uint32_t> job_ids);
  void shutdown(std::vector<worker::Ended>& ended);
  ErrorCode forward(std::span<const std::uint32_t> reads, std::span<const std::uint32_t> writes);
  bool advance(worker::Stream stream);
  void fail_next(worker::Fault fault) { next_fault_ = fault; }
  void take_seen(std::vector<worker::Seen>& seen);

  worker::Counts counts() const;
  worker::Content gpu_content(std::uint32_t block) const;
  worker::Content cpu_content(std::uint32_t page) const;
  std::uint32_t num_stray_bytes() const;

  const virtual_device::Device& device() const { return device_; }

  // For those who tell what happened.

  void set_story(virtual_device::Story* story) { device_.set_story(story); }
  /// The stream of that number; nothing of streams that are none of the worker's or the model's.
  std::optional<worker::Stream> stream_of(virtual_device::Actor actor) const;
  /// Those that share bytes with [begin, end), as accesses name them. Cost: O(pages).
  std::vector<PageName> pages_in(std::uintptr_t begin, std::uintptr_t end) const;

 private:
  using Worker = BasicWorker<Instrumentation>;
  struct ByteSpan {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  /// Memory with what its bytes were at first, and which of them no page has.
  struct Memory {
    std::size_t size = 0;
    std::vector<std::byte> at_first = {};
    std::vector<ByteSpan> outside = {};
  };
  /// The blocks of a transfer that is not reported.
  struct Unreported {
    std::uint32_t job_id = 0;
    worker::Direction direction = worker::Direction::kStore;
    std::vector<std::uint32_t> gpu_blocks = {};
  };
  class Armed;

  void open(Instrumentation instrumentation);
  void note_pages(Memory& memory, std::uintptr_t address, const KVLayout& layout,
                  std::size_t pages_per_block) const;
  const std::byte* gpu_page(std::size_t ref, std::uint32_t block) const;
  const std::byte* cpu_page(std::size_t ref, std::uint32_t page) const;
  template <class PageOf>
  worker::Content content_of(PageOf page_of) const;
  std::vector<virtual_device::MemoryRange> ranges_of(std::span<const std::uint32_t> blocks) const;
  void write(std::uint32_t block, std::uint32_t generation);
  void report(std::span<const TransferResult> results, std::vector<worker::Ended>& ended);
  /// Behind the forwards enqueued so far, and behind another stream.
  std::vector<cudaEvent_t> record_readers();

  worker::Options options_;
  virtual_device::Device device_;
  KVLayout gpu_layout_;
  std::byte* gpu_base_ = nullptr;
  std::vector<content::Granule> host_;
  Memory gpu_;
  Memory cpu_;
  cudaStream_t compute_ = nullptr;
  cudaStream_t other_ = nullptr;
  virtual_device::Actor first_worker_stream_ = 0;
  std::unique_ptr<Worker> worker_;
  std::vector<Unreported> unreported_;
  std::uint32_t generation_ = 0;
  std::vector<worker::Seen> seen_;
  worker::Fault next_fault_ = worker::Fault::kNone;
};

extern template class BasicWorkerOnVirtualDevice<NoWorkerInstrumentation>;
extern template class BasicWorkerOnVirtualDevice<PlantedWorkerInstrumentation>;

using WorkerOnVirtualDevice = BasicWorkerOnVirtualDevice<NoWorkerInstrumentation>;
/// For the tests of the harness itself.
using PlantedWorkerOnVirtualDevice = BasicWorkerOnVirtualDevice<PlantedWorkerInstrumentation>;

}  // namespace kvfence::cuda
