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
  const auto direction = static_cast<std::size_t>(copy.direction);
  Job job{.what = copy, .num_forwards_before = forwards_.size()};
  if (!worker::is_of_copies(next_faults_[direction]) || !copy.gpu_blocks.empty()) {
    job.fault = std::exchange(next_faults_[direction], Fault::kNone);
  }
  if (job.fault == Fault::kWait) job.num_forwards_before = 0;
  if (job.fault == Fault::kLate) job.num_late_polls = worker::kNumLatePolls;
  in_flight_[direction].push_back(std::move(job));
  end_what_copies_nothing();
}

// Without a recorded end nothing is known before the whole stream has come to its end.
bool EngineDevice::is_known_to_be_over(Job& job, const Jobs& jobs) {
  if (job.was_waited) return true;
  if (job.fault == Fault::kRecord) return jobs.back().is_done;
  if (!job.is_done) return false;
  if (job.num_late_polls == 0) return true;
  --job.num_late_polls;
  return false;
}

void EngineDevice::get_finished(std::vector<worker::Ended>& ended) {
  for (Jobs& jobs : in_flight_) {
    while (!jobs.empty() && is_known_to_be_over(jobs.front(), jobs)) {
      const Job& job = jobs.front();
      ended.push_back({job.what.job_id, job.what.direction, !worker::fails(job.fault)});
      jobs.erase(jobs.begin());
    }
  }
}

EngineDevice::Job* EngineDevice::next_of(Jobs& jobs) {
  const auto next =
      std::find_if(jobs.begin(), jobs.end(), [](const Job& job) { return !job.is_done; });
  return next == jobs.end() ? nullptr : &*next;
}

void EngineDevice::run_forward() {
  forwards_[num_forwards_run_++](*this);
  end_what_copies_nothing();
}

void EngineDevice::copy(const Job& job) {
  const engine::Copy& what = job.what;
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

void EngineDevice::end_what_copies_nothing() {
  for (Jobs& jobs : in_flight_) {
    for (Job* next = next_of(jobs); next && !next->copies() && !is_blocked(*next);
         next = next_of(jobs)) {
      next->is_done = true;
    }
  }
}

void EngineDevice::finish(Jobs& jobs, const Job& job) {
  while (!job.is_done) {
    Job& next = *next_of(jobs);
    while (is_blocked(next)) run_forward();
    if (next.is_done) continue;
    if (next.copies()) copy(next);
    next.is_done = true;
    end_what_copies_nothing();
  }
}

void EngineDevice::wait(std::span<const std::uint32_t> job_ids) {
  for (Jobs& jobs : in_flight_) {
    for (Job& job : jobs) {
      if (job.was_waited) continue;
      if (std::find(job_ids.begin(), job_ids.end(), job.what.job_id) == job_ids.end()) continue;
      job.was_waited = true;
      finish(jobs, job.fault == Fault::kRecord ? jobs.back() : job);
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
  Jobs& jobs = in_flight_[stream == worker::Stream::kLoad ? 1 : 0];
  bool ran = false;
  // A transfer whose end was not recorded cannot be distinguished from the next one.
  for (bool has_end = false; !has_end;) {
    Job* next = next_of(jobs);
    if (!next || is_blocked(*next)) break;
    if (next->copies()) {
      copy(*next);
      ran = true;
    }
    next->is_done = true;
    has_end = next->fault != Fault::kRecord;
  }
  end_what_copies_nothing();
  return ran;
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
