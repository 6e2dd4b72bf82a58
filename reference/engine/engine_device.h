#pragma once

/// The executable specification of contract/engine/engine_device.h: three lists of work, and a
/// symbol for each place.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"
#include "reference/worker/stream_jobs.h"

namespace kvfence::reference {

class EngineDevice final : public engine::EngineDevice,
                           private StreamJobs<engine::Copy, engine::Kernel> {
 public:
  explicit EngineDevice(const engine::DeviceOptions& options);

  void transfer_async(const engine::Copy& copy) override;
  void get_finished(std::vector<worker::Ended>& ended) override;
  void wait(std::span<const std::uint32_t> job_ids) override { wait_for(job_ids); }
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel) override;
  bool advance(worker::Stream stream) override { return run_next(stream, /*is_part=*/false); }
  void fail_next(worker::Direction direction, worker::Fault fault) override {
    next_faults_[static_cast<std::size_t>(direction)] = fault;
  }
  // An access over a network happens at its end: this device does not look for races.
  void begin_remote(std::uint32_t /*number*/, std::span<const std::uint32_t> /*blocks*/,
                    bool /*writes*/) override {}
  void know_remote(std::uint32_t /*number*/) override {}
  void know_forward() override {}

  worker::Counts counts() const override;
  void show_pages(std::uint32_t rank, engine::KVPages& gpu, engine::KVPages& cpu) const override;

  engine::Symbol read(engine::Place place) const override { return gpu_[index_of(place)]; }
  void write(engine::Place place, engine::Symbol symbol) override {
    gpu_[index_of(place)] = symbol;
  }

  /// Excludes what forwards compute: their caller knows it.
  void add_to(StateHash& hash) const override {
    hash.add_kept(gpu_, cpu_, forwards_.size(), num_forwards_run_, next_faults_);
    hash.add(in_flight_);
  }

 private:
  std::size_t index_of(engine::Place place) const {
    return std::size_t{place.block} * options_.block_size + place.offset;
  }
  void run(const engine::Kernel& kernel) override { kernel(*this); }
  void copy(const Job& job) override;

  engine::DeviceOptions options_;
  std::vector<engine::Symbol> gpu_;
  std::vector<engine::Symbol> cpu_;
  worker::Fault next_faults_[worker::kNumDirections] = {};
};

}  // namespace kvfence::reference
