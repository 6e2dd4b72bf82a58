#pragma once

/// Implements contract/engine/engine_device.h with the copy worker and a virtual device whose
/// progress is commanded. Each token's KV is bytes in the pages of two layers, from which symbols
/// are read.
///
/// Link kvfence::worker_on_virtual_device, and nothing that brings the real runtime.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"
#include "contract/worker/content_pattern.h"
#include "cuda/virtual/device.h"
#include "cuda/worker/rank_device.h"

namespace kvfence::cuda {

/// Layers of the model, and the bytes of a token's KV in all of them.
inline constexpr std::size_t kEngineLayers = 2;
inline constexpr std::size_t kEngineTokenBytes = kEngineLayers * sizeof(content::Granule);

class EngineOnVirtualDevice final : public RankDevice, public engine::EngineDevice {
 public:
  explicit EngineOnVirtualDevice(const engine::DeviceOptions& options);
  ~EngineOnVirtualDevice() override { close(); }

  void transfer_async(const engine::Copy& copy) override;
  void get_finished(std::vector<worker::Ended>& ended) override;
  void wait(std::span<const std::uint32_t> job_ids) override;
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel) override;
  bool advance(worker::Stream stream) override;
  void fail_next(worker::Direction direction, worker::Fault fault) override {
    next_faults_[static_cast<std::size_t>(direction)] = fault;
  }
  void begin_remote(std::uint32_t number, std::span<const std::uint32_t> blocks,
                    bool writes) override;
  void know_remote(std::uint32_t number) override;
  void know_forward() override;

  worker::Counts counts() const override { return counts_of_worker(); }
  void show_pages(std::uint32_t rank, engine::KVPages& gpu, engine::KVPages& cpu) const override;

  engine::Symbol read(engine::Place place) const override;
  void write(engine::Place place, engine::Symbol symbol) override;

  void add_to(StateHash& hash) const override {
    hash.add_kept(device_, next_faults_);
    hash.add(worker_);
  }

 private:
  void know(cudaEvent_t event);
  std::byte* gpu_address(std::size_t layer, engine::Place place) const;
  std::vector<virtual_device::MemoryRange> ranges_of_places(
      const std::vector<engine::Place>& places) const;

  engine::DeviceOptions options_;
  std::byte* gpu_base_ = nullptr;
  std::vector<content::Granule> host_;
  std::array<worker::Fault, worker::kNumDirections> next_faults_ = {};
  std::deque<cudaEvent_t> forwards_;  ///< whose end the host does not know; with has_remote
  std::vector<cudaStream_t> remote_;  ///< for accesses over a network, in turn
  std::map<std::uint32_t, cudaEvent_t> remotes_;  ///< whose end the host does not know
};

}  // namespace kvfence::cuda
