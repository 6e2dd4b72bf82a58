#include "reference/engine_device.h"

#include <algorithm>
#include <utility>

namespace kvfence::reference {

using worker::Direction;

EngineDevice::EngineDevice(const engine::DeviceOptions& options)
    : options_(options),
      gpu_(std::size_t{options.num_gpu_blocks} * options.block_size, toy_model::kUnwritten),
      cpu_(std::size_t{options.num_cpu_blocks} * options.block_size_factor * options.block_size,
           toy_model::kUnwritten) {}

void EngineDevice::transfer_async(const worker::Transfer& transfer) {
  in_flight_[static_cast<std::size_t>(transfer.direction)].push_back({transfer, forwards_.size()});
}

void EngineDevice::get_finished(std::vector<worker::Ended>& ended) {
  for (Jobs& jobs : in_flight_) {
    while (!jobs.empty() && jobs.front().is_done) {
      const worker::Transfer& transfer = jobs.front().transfer;
      ended.push_back({transfer.job_id, transfer.direction, /*succeeded=*/true});
      jobs.erase(jobs.begin());
    }
  }
}

EngineDevice::Job* EngineDevice::next_of(Jobs& jobs) {
  const auto next =
      std::find_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.is_done; });
  return next == jobs.end() ? nullptr : &*next;
}

void EngineDevice::run_forward() { forwards_[num_forwards_run_++](*this); }

void EngineDevice::copy(Job& job) {
  const worker::Transfer& transfer = job.transfer;
  const std::vector<std::uint32_t> pages =
      worker::cpu_pages_of(transfer, options_.block_size_factor);
  for (std::size_t index = 0; index < pages.size(); ++index) {
    for (std::uint32_t offset = 0; offset < options_.block_size; ++offset) {
      engine::Symbol& on_gpu = gpu_[index_of({transfer.gpu_blocks[index], offset})];
      engine::Symbol& on_cpu = cpu_[index_of({pages[index], offset})];
      if (transfer.direction == Direction::kStore) on_cpu = on_gpu;
      if (transfer.direction == Direction::kLoad) on_gpu = on_cpu;
    }
  }
  job.is_done = true;
}

void EngineDevice::wait(std::span<const std::uint32_t> job_ids) {
  for (Jobs& jobs : in_flight_) {
    for (const Job& job : jobs) {
      if (std::find(job_ids.begin(), job_ids.end(), job.transfer.job_id) == job_ids.end()) continue;
      while (!job.is_done) {
        Job& next = *next_of(jobs);
        while (next.num_forwards_before > num_forwards_run_) run_forward();
        copy(next);
      }
    }
  }
}

void EngineDevice::forward(const std::vector<engine::Place>& /*reads*/,
                           const std::vector<engine::Place>& /*writes*/, engine::Kernel kernel) {
  forwards_.push_back(std::move(kernel));
}

bool EngineDevice::advance(worker::Stream stream) {
  if (stream == worker::Stream::kCompute) {
    if (num_forwards_run_ == forwards_.size()) return false;
    run_forward();
    return true;
  }
  Job* next = next_of(in_flight_[stream == worker::Stream::kLoad ? 1 : 0]);
  if (!next || next->num_forwards_before > num_forwards_run_) return false;
  copy(*next);
  return true;
}

worker::Counts EngineDevice::counts() const {
  const std::size_t num_in_flight = in_flight_[0].size() + in_flight_[1].size();
  return {.num_deferred = 0,
          .num_in_flight = static_cast<std::uint32_t>(num_in_flight),
          .num_races = 0,
          .num_misuses = 0,
          .next_fault = worker::Fault::kNone};
}

}  // namespace kvfence::reference
