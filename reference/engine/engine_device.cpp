#include "reference/engine/engine_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kvfence::reference {

using engine::Symbol;
using worker::Direction;
using worker::Fault;

EngineDevice::EngineDevice(const engine::DeviceOptions& options)
    : options_(options),
      gpu_(std::size_t{options.num_gpu_blocks} * options.block_size, toy_model::kUnwritten),
      cpu_(std::size_t{options.num_cpu_blocks} * options.block_size_factor * options.block_size,
           toy_model::kUnwritten) {}

void EngineDevice::transfer_async(const engine::Copy& copy) {
  submit(copy, next_faults_[static_cast<std::size_t>(copy.direction)]);
}

void EngineDevice::get_finished(std::vector<worker::Ended>& ended) {
  for (Jobs& jobs : in_flight_) {
    while (!jobs.empty() && is_known_to_be_over(jobs.front(), jobs)) {
      const Job& job = jobs.front();
      ended.push_back({job.transfer.job_id, job.transfer.direction, !worker::fails(job.fault)});
      jobs.erase(jobs.begin());
    }
  }
}

void EngineDevice::copy(const Job& job) {
  const engine::Copy& what = job.transfer;
  const bool is_torn = job.fault == Fault::kPartial;
  const std::vector<std::uint32_t> pages = engine::cpu_pages_of(what, options_.block_size_factor);
  for (std::size_t index = 0; index < pages.size(); ++index) {
    for (std::uint32_t offset = 0; offset < options_.block_size; ++offset) {
      engine::Symbol& on_gpu = gpu_[index_of({what.gpu_blocks[index], offset})];
      engine::Symbol& on_cpu = cpu_[index_of({pages[index], offset})];
      if (what.direction == Direction::kStore) on_cpu = is_torn ? toy_model::kTorn : on_gpu;
      if (what.direction == Direction::kLoad) on_gpu = is_torn ? toy_model::kTorn : on_cpu;
    }
  }
}

void EngineDevice::forward(const std::vector<engine::Place>& /*reads*/,
                           const std::vector<engine::Place>& /*writes*/, engine::Kernel kernel) {
  forwards_.push_back(std::move(kernel));
}

void EngineDevice::show_pages(std::uint32_t rank, engine::KVPages& gpu,
                              engine::KVPages& cpu) const {
  const auto is_unwritten = [](Symbol symbol) { return symbol == toy_model::kUnwritten; };
  const auto show = [&](const std::vector<Symbol>& memory, engine::KVPages& pages) {
    const std::size_t size = options_.block_size;
    for (std::size_t begin = 0; begin < memory.size(); begin += size) {
      const std::span page(memory.data() + begin, size);
      if (std::ranges::all_of(page, is_unwritten)) continue;
      const auto number = static_cast<std::uint32_t>(begin / size);
      std::ranges::transform(page, pages.add(rank, number, size).begin(), toy_model::shortened);
    }
  };
  show(gpu_, gpu);
  show(cpu_, cpu);
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
