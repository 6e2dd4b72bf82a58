#pragma once

/// The executable specification of contract/engine_device.h: three lists of work, and a symbol for
/// each place.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/engine_device.h"

namespace kvfence::reference {

class EngineDevice final : public engine::KVCells {
 public:
  explicit EngineDevice(const engine::DeviceOptions& options);

  void transfer_async(const worker::Transfer& transfer);
  void get_finished(std::vector<worker::Ended>& ended);
  void wait(std::span<const std::uint32_t> job_ids);
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel);
  bool advance(worker::Stream stream);

  worker::Counts counts() const;
  engine::Symbol gpu_symbol(engine::Place place) const { return gpu_[index_of(place)]; }
  engine::Symbol cpu_symbol(engine::Place place) const { return cpu_[index_of(place)]; }

  engine::Symbol read(engine::Place place) const override { return gpu_symbol(place); }
  void write(engine::Place place, engine::Symbol symbol) override {
    gpu_[index_of(place)] = symbol;
  }

 private:
  /// A transfer that is not reported.
  struct Job {
    worker::Transfer transfer;
    std::size_t num_forwards_before = 0;  ///< that have to have run
    bool is_done = false;
  };
  using Jobs = std::vector<Job>;

  std::size_t index_of(engine::Place place) const {
    return std::size_t{place.block} * options_.block_size + place.offset;
  }
  static Job* next_of(Jobs& jobs);
  void run_forward();
  void copy(Job& job);

  engine::DeviceOptions options_;
  std::vector<engine::Symbol> gpu_;
  std::vector<engine::Symbol> cpu_;
  std::vector<engine::Kernel> forwards_;  ///< all that were enqueued
  std::size_t num_forwards_run_ = 0;
  Jobs in_flight_[worker::kNumDirections];
};

}  // namespace kvfence::reference
