#pragma once

/// For tests: random programs of a caller of the copy worker that is right, and what has to hold of
/// the worker then.

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/worker/worker_test_rig.h"

namespace kvfence::cuda {

inline constexpr virtual_device::Schedule kAllSchedules[] = {
    virtual_device::Schedule::kEager, virtual_device::Schedule::kLazy,
    virtual_device::Schedule::kRandom, virtual_device::Schedule::kPriority,
    virtual_device::Schedule::kCommanded};

/// What random programs did.
struct Reached {
  std::uint64_t num_steps = 0;
  std::size_t num_programs = 0;
  std::size_t num_stores = 0;
  std::size_t num_loads = 0;
  std::size_t num_refused = 0;
  std::size_t num_partial = 0;  ///< transfers that begin inside a host block
  std::uint64_t num_pages = 0;
  std::uint64_t num_copies = 0;
  std::array<std::uint64_t, kNumCopyPaths> num_by_path = {};
};

/// A scheduler that touches only what no transfer touches, as far as it has been told.
class RandomProgram {
 public:
  RandomProgram(WorkerRig& rig, FirstBlockRule rule, std::uint64_t seed)
      : rig_(rig), rule_(rule), random_(seed) {}

  void run(std::uint64_t num_steps, Reached& reached) {
    for (std::uint64_t step = 0; step < num_steps; ++step) {
      ++reached.num_steps;
      rig_.worker().begin_step();
      for (std::size_t kernel = 0; kernel < 2; ++kernel) run_kernel();
      transfer(draw(2) == 0 ? Direction::kStore : Direction::kLoad, reached);
      if (draw(2) == 0) take_results();
      if (draw(3) == 0) rig_.device().yield();
      if (draw(3) == 0) rig_.advance_if_commanded();
      // A lazy device does nothing before somebody waits, and soon every block is taken.
      if (draw(10) == 0) wait_for_all();
    }
    if (draw(2) == 0) wait_for_all();
    const auto results = rig_.worker().shutdown();
    for (const TransferResult& result : results) take(result);
    expect(in_flight_.empty(), "a shutdown left transfers");
    ok(cudaDeviceSynchronize());
    rig_.check_all();
    const auto& counters = rig_.worker().counters();
    reached.num_pages += counters.num_pages;
    reached.num_copies += counters.num_copies;
    for (std::size_t path = 0; path < kNumCopyPaths; ++path) {
      reached.num_by_path[path] += counters.num_by_path[path];
    }
    ++reached.num_programs;
  }

  /// The first thing that the worker did wrong; empty for nothing.
  const std::string& wrong() const { return wrong_; }

 private:
  void expect(bool holds, const char* what_else) {
    if (!holds && wrong_.empty()) wrong_ = what_else;
  }

  std::size_t draw(std::size_t bound) { return random_() % bound; }
  std::size_t num_groups() const { return rig_.layout().groups.size(); }

  /// Groups that share a tensor share no block.
  std::vector<std::uint32_t> free_blocks(std::size_t group) {
    const std::size_t share = kRigGpuBlocks / num_groups();
    std::vector<std::uint32_t> blocks;
    for (std::size_t block = group * share; block < (group + 1) * share; ++block) {
      if (!busy_gpu_.contains(static_cast<std::uint32_t>(block))) {
        blocks.push_back(static_cast<std::uint32_t>(block));
      }
    }
    std::shuffle(blocks.begin(), blocks.end(), random_);
    return blocks;
  }

  void run_kernel() {
    const std::size_t group = draw(num_groups());
    const auto blocks = free_blocks(group);
    if (blocks.empty()) return;
    if (draw(2) == 0) {
      rig_.compute(group, blocks[0]);
    } else {
      rig_.attend(group, blocks[0]);
    }
  }

  void transfer(Direction direction, Reached& reached) {
    const std::size_t factor = rig_.factor();
    const bool is_store = direction == Direction::kStore;
    TransferSpec spec;
    std::size_t num_rows = 0;
    bool is_partial = false;
    for (std::size_t group = 0; group < num_groups(); ++group) {
      auto blocks = free_blocks(group);
      std::size_t count = draw(std::min<std::size_t>(blocks.size(), 4) + 1);
      std::size_t skipped = 0;
      const std::size_t index = draw(9);
      if (rule_ == FirstBlockRule::kByIndex) {
        skipped = index % factor;
      } else if (is_store) {
        count -= count % factor;
      } else {
        skipped = (factor - count % factor) % factor;
      }
      if (draw(2) == 0) std::sort(blocks.begin(), blocks.begin() + static_cast<int>(count));
      spec.gpu_blocks.insert(spec.gpu_blocks.end(), blocks.begin(),
                             blocks.begin() + static_cast<int>(count));
      spec.group_sizes.push_back(count);
      spec.block_indices.push_back(index);
      is_partial = is_partial || (count > 0 && skipped > 0);
      if (count > 0) num_rows += (count + skipped + factor - 1) / factor;
    }
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < kRigCpuBlocks; ++row) {
      if (!busy_cpu_.contains(row)) rows.push_back(row);
    }
    if (draw(2) == 0) std::shuffle(rows.begin(), rows.end(), random_);
    if (rows.size() < num_rows) return;
    rows.resize(num_rows);
    spec.cpu_blocks = rows;

    const JobId job_id = ++last_job_id_;
    if (is_store) {
      expect(rig_.store(job_id, spec).empty(), "a good store was refused");
      ++reached.num_stores;
    } else {
      expect(rig_.load(job_id, spec, {rig_.record(rig_.compute_stream())}).empty(),
             "a good load was refused");
      ++reached.num_loads;
    }
    reached.num_partial += is_partial ? 1 : 0;
    busy_gpu_.insert(spec.gpu_blocks.begin(), spec.gpu_blocks.end());
    busy_cpu_.insert(spec.cpu_blocks.begin(), spec.cpu_blocks.end());
    in_flight_[job_id] = {direction, spec};
  }

  void wait_for_all() {
    std::vector<JobId> job_ids;
    for (const auto& [job_id, transfer] : in_flight_) job_ids.push_back(job_id);
    expect(rig_.worker().wait(job_ids) == cudaSuccess, "a wait failed");
    take_results();
    expect(in_flight_.empty(), "a wait left transfers");
  }

  void take_results() {
    std::vector<TransferResult> results;
    rig_.worker().poll(results);
    for (const TransferResult& result : results) take(result);
  }

  void take(const TransferResult& result) {
    const auto found = in_flight_.find(result.job_id);
    if (found == in_flight_.end()) return expect(false, "reported twice, or never submitted");
    expect(result.succeeded(), "a transfer failed");
    expect(result.direction == found->second.first, "reported in the other direction");
    JobId& last = last_result_[static_cast<std::size_t>(result.direction)];
    expect(result.job_id > last, "not reported in the order of submission");
    last = result.job_id;
    const TransferSpec& spec = found->second.second;
    for (const std::uint32_t block : spec.gpu_blocks) busy_gpu_.erase(block);
    for (const std::uint32_t row : spec.cpu_blocks) {
      busy_cpu_.erase(row);
      if (rig_.worker().num_in_flight() > 0 || draw(2) == 0) continue;
      if (draw(2) == 0) rig_.write_cpu(row);
    }
    in_flight_.erase(found);
  }

  WorkerRig& rig_;
  FirstBlockRule rule_;
  std::mt19937_64 random_;
  std::set<std::uint32_t> busy_gpu_;
  std::set<std::uint32_t> busy_cpu_;
  std::map<JobId, std::pair<Direction, TransferSpec>> in_flight_;
  std::array<JobId, kNumDirections> last_result_ = {};
  JobId last_job_id_ = 0;
  std::string wrong_;
};

/// Runs one program; what is wrong: something that the worker said, a race, a misuse or a byte.
/// Empty for nothing.
inline std::string run_random_program(const RigOptions& options, std::uint64_t seed,
                                      std::uint64_t num_steps, Reached& reached) {
  WorkerRig rig(options);
  if (!rig.is_open()) return rig.refusal();
  RandomProgram program(rig, options.worker.plan.first_block_rule, seed);
  program.run(num_steps, reached);
  if (!program.wrong().empty()) return program.wrong();
  if (!rig.device().is_clean()) return rig.device().report();
  if (!rig.wrong().empty()) return rig.wrong().front();
  return rig.num_checks() > 1 ? "" : "nothing was compared";
}

}  // namespace kvfence::cuda
