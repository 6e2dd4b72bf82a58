#pragma once

/// The executable specification of contract/engine/engine_device.h: three lists of work, and a
/// symbol for each place.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "contract/core/state_digest.h"
#include "contract/engine/engine_device.h"

namespace kvfence::reference {

class EngineDevice final : public engine::EngineDevice {
 public:
  explicit EngineDevice(const engine::DeviceOptions& options);

  void transfer_async(const engine::Copy& copy) override;
  void get_finished(std::vector<worker::Ended>& ended) override;
  void wait(std::span<const std::uint32_t> job_ids) override;
  void forward(const std::vector<engine::Place>& reads, const std::vector<engine::Place>& writes,
               engine::Kernel kernel) override;
  bool advance(worker::Stream stream) override;
  void fail_next(worker::Direction direction, worker::Fault fault) override {
    next_faults_[static_cast<std::size_t>(direction)] = fault;
  }
  // Who accesses the KV cache over a network does so at its end: there is nobody who looks for
  // races.
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

  /// Without what forwards compute, which whoever enqueued them knows.
  void add_to(StateHash& hash) const override {
    hash.add_kept(gpu_, cpu_, forwards_.size(), num_forwards_run_, next_faults_);
    hash.add(in_flight_);
  }

 private:
  /// A transfer that is not reported.
  struct Job {
    engine::Copy what;
    std::size_t num_forwards_before = 0;  ///< that have to have run
    worker::Fault fault = worker::Fault::kNone;
    bool is_done = false;
    bool was_waited = false;
    std::uint32_t num_late_polls = 0;  ///< that will deny its end
    void add_to(StateHash& hash) const {
      hash.add_all(what, num_forwards_before, fault, is_done, was_waited, num_late_polls);
    }

    bool copies() const {
      return !what.gpu_blocks.empty() && fault != worker::Fault::kCopy &&
             fault != worker::Fault::kWait;
    }
  };
  using Jobs = std::vector<Job>;

  std::size_t index_of(engine::Place place) const {
    return std::size_t{place.block} * options_.block_size + place.offset;
  }
  static Job* next_of(Jobs& jobs);
  bool is_blocked(const Job& job) const { return job.num_forwards_before > num_forwards_run_; }
  static bool is_known_to_be_over(Job& job, const Jobs& jobs);
  void run_forward();
  void copy(const Job& job);
  void finish(Jobs& jobs, const Job& job);
  /// Transfers whose copies could not be enqueued end when their turn comes.
  void end_what_copies_nothing();

  engine::DeviceOptions options_;
  std::vector<engine::Symbol> gpu_;
  std::vector<engine::Symbol> cpu_;
  std::vector<engine::Kernel> forwards_;  ///< all that were enqueued
  std::size_t num_forwards_run_ = 0;
  Jobs in_flight_[worker::kNumDirections];
  worker::Fault next_faults_[worker::kNumDirections] = {};
};

}  // namespace kvfence::reference
