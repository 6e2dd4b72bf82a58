#pragma once

/// What contract/engine/engine_device.h describes, out of the copy worker and a virtual device
/// whose progress is commanded: each token's KV is bytes in the pages of two layers, and symbols
/// are read from them.
///
/// Link kvfence::worker_on_virtual_device, and nothing that brings the real runtime.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"
#include "contract/worker/content_pattern.h"
#include "cuda/virtual/device.h"
#include "cuda/worker/page_name.h"
#include "cuda/worker/worker.h"

namespace kvfence::cuda {

/// Layers of the model, and what the KV of a token takes in all of them, in bytes.
inline constexpr std::size_t kEngineLayers = 2;
inline constexpr std::size_t kEngineTokenBytes = kEngineLayers * sizeof(content::Granule);

class EngineOnVirtualDevice final : public engine::KVCells {
 public:
  explicit EngineOnVirtualDevice(const engine::DeviceOptions& options);
  ~EngineOnVirtualDevice();
  EngineOnVirtualDevice(const EngineOnVirtualDevice&) = delete;
  EngineOnVirtualDevice& operator=(const EngineOnVirtualDevice&) = delete;

  void transfer_async(const engine::Copy& copy);
  void get_finished(std::vector<worker::Ended>& ended);
  void wait(std::span<const std::uint32_t> job_ids);
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel);
  bool advance(worker::Stream stream);
  void fail_next(worker::Direction direction, worker::Fault fault) {
    next_faults_[static_cast<std::size_t>(direction)] = fault;
  }

  worker::Counts counts() const;
  bool gpu_page(std::uint32_t block, std::span<engine::Symbol> symbols) const;
  bool cpu_page(std::uint32_t page, std::span<engine::Symbol> symbols) const;

  engine::Symbol read(engine::Place place) const override;
  void write(engine::Place place, engine::Symbol symbol) override;

  void add_to(StateHash& hash) const { hash.add_all(device_, worker_, next_faults_); }

  // For those who tell what happened.

  const virtual_device::Device& device() const { return device_; }
  void set_story(virtual_device::Story* story) { device_.set_story(story); }
  /// The stream of that number; nothing of streams that are none of the worker's or the model's.
  std::optional<worker::Stream> stream_of(virtual_device::Actor actor) const;
  /// Those that share bytes with [begin, end), as accesses name them. Cost: O(pages).
  std::vector<PageName> pages_in(std::uintptr_t begin, std::uintptr_t end) const;

 private:
  /// The next call that the fault concerns meets it.
  void arm(worker::Fault fault, std::uint64_t num_records_before);
  const std::byte* cpu_address(std::size_t layer, std::uint32_t page) const;
  std::size_t gpu_offset(std::size_t layer, engine::Place place) const;
  std::byte* gpu_address(std::size_t layer, engine::Place place) const {
    return gpu_base_ + gpu_offset(layer, place);
  }
  std::vector<virtual_device::MemoryRange> ranges_of(
      const std::vector<engine::Place>& places) const;

  engine::DeviceOptions options_;
  virtual_device::Device device_;
  std::byte* gpu_base_ = nullptr;
  const std::byte* shown_ = nullptr;  ///< the bytes behind gpu_base_, for those who only look
  std::vector<content::Granule> host_;
  cudaStream_t compute_ = nullptr;
  virtual_device::Actor first_worker_stream_ = 0;
  std::unique_ptr<Worker> worker_;
  std::array<worker::Fault, worker::kNumDirections> next_faults_ = {};
};

}  // namespace kvfence::cuda
