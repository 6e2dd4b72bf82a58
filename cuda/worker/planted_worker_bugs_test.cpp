/// Goal: every planted bug of the worker is flagged, by what its nature is, in every run; the
/// worker without one is never flagged in the same programs.

#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <set>
#include <string_view>

#include "contract/core/sanitized.h"
#include "cuda/virtual/explore.h"
#include "cuda/virtual/test_rig.h"
#include "planted/cuda/worker/worker_random_program.h"
#include "planted/cuda/worker/worker_test_rig.h"
#include "properties/planted/bugs.h"

namespace kvfence::cuda {
namespace {

using namespace planted::cuda;
using virtual_device::Fault;
using virtual_device::Function;
using virtual_device::Schedule;

constexpr std::uint64_t kSeeds = 100;
constexpr std::uint64_t kOrdersMaxPerBug = kIsSanitized ? 100 : 3000;

/// What flags it.
enum class Nature : std::uint8_t {
  kOrder,        ///< a race, under every schedule
  kMisuse,       ///< a call that the runtime forbids
  kBytes,        ///< contents
  kObservation,  ///< what the worker says
};

const char* to_text(Nature nature) {
  constexpr const char* kNames[] = {"order", "misuse", "bytes", "observation"};
  return kNames[static_cast<std::size_t>(nature)];
}

/// Returns whether the worker said what a right one says.
using Program = bool (*)(WorkerRig&);

struct Case {
  const char* bug;
  const char* id;  ///< of cuda.md 2.5
  Nature nature;
  Program program;
  RigOptions options = {};
};

/// Stores a block behind its computation; the host reads it when told that it is there.
bool store_one(WorkerRig& rig) {
  rig.compute(0, 0);
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  rig.read_cpu(0);
  return results.size() == 1 && results[0].succeeded();
}

/// Stores two blocks behind their computation; the host reads them when told that they are there.
bool store_two(WorkerRig& rig) {
  rig.compute(0, 0);
  rig.compute(0, 2);
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  EXPECT_EQ(rig.store(2, WorkerRig::spec({2}, {2})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(2);
  rig.read_cpu(0);
  rig.read_cpu(2);
  return results.size() == 2 && results[0].succeeded() && results[1].succeeded();
}

bool load_a_block_still_read(WorkerRig& rig) {
  rig.write_cpu(0);
  rig.attend(0, 0);
  const cudaEvent_t read = rig.record(rig.compute_stream());
  EXPECT_EQ(rig.load(1, WorkerRig::spec({0}, {0}), {read}), "");
  return rig.poll(1).size() == 1;
}

bool load_what_another_writes(WorkerRig& rig) {
  rig.write_cpu_elsewhere(0);
  const cudaEvent_t written = rig.record(rig.other_stream());
  const cudaEvent_t read = rig.record(rig.compute_stream());
  EXPECT_EQ(rig.load(1, WorkerRig::spec({0}, {0}), {read, written}), "");
  return rig.poll(1).size() == 1;
}

bool shut_down_at_once(WorkerRig& rig) {
  const cudaEvent_t read = rig.record(rig.compute_stream());
  EXPECT_EQ(rig.load(1, WorkerRig::spec({4}, {4}), {read}), "");
  const auto results = rig.worker().shutdown();
  return results.size() == 1 && results[0].succeeded();
}

/// The second record fails: that of the end event.
bool store_with_a_failing_record(WorkerRig& rig) {
  rig.compute(0, 0);
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  rig.read_cpu(0);  // at rest, and there, though not a success
  return results.size() == 1 && results[0].code == cudaErrorInvalidResourceHandle;
}

bool store_while_loading(WorkerRig& rig) {
  rig.write_cpu(0);
  const cudaEvent_t read = rig.record(rig.compute_stream());
  EXPECT_EQ(rig.load(1, WorkerRig::spec({0}, {0}), {read}), "");
  const bool is_refused = !rig.store(2, WorkerRig::spec({0}, {1})).empty();
  rig.worker().begin_step();
  rig.poll(is_refused ? 1 : 2);
  return is_refused;
}

bool store_four(WorkerRig& rig) {
  const TransferSpec spec = WorkerRig::spec({0, 2, 4, 6}, {0, 3, 1, 4});
  EXPECT_EQ(rig.store(1, spec), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  return results.size() == 1 && results[0].succeeded();
}

/// The batch fails: a right worker says so, and nobody takes the host's blocks for stored.
bool store_with_a_failing_batch(WorkerRig& rig) {
  EXPECT_EQ(rig.worker().store(1, WorkerRig::spec({0}, {0})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  if (results.size() == 1 && results[0].succeeded()) {
    rig.expect(Direction::kStore, WorkerRig::spec({0}, {0}));
  }
  return results.size() == 1 && results[0].code == cudaErrorUnknown && results[0].num_bytes == 0;
}

/// Part of the batch is enqueued; once the failure is reported, the host uses the block again.
bool reuse_after_a_failure(WorkerRig& rig) {
  const TransferSpec spec = WorkerRig::spec({0, 2}, {0, 2});
  EXPECT_EQ(rig.worker().store(1, spec), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  if (results.size() == 1 && results[0].is_at_rest) {
    rig.write_cpu(0);
    rig.write_cpu(2);
  }
  return results.size() == 1 && results[0].code == cudaErrorInvalidValue;
}

/// The first call that copies fails, the others do not.
bool store_with_a_failing_copy(WorkerRig& rig) {
  EXPECT_EQ(rig.worker().store(1, WorkerRig::spec({0, 2}, {0, 2})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  const bool is_right = results.size() == 1 && results[0].code == cudaErrorUnknown;
  if (!is_right) return false;
  rig.write_cpu(0);
  rig.write_cpu(2);
  return true;
}

/// Asking for the end of a store returns an error, or waiting does; the copy is none the worse.
bool ask_in_vain(WorkerRig& rig) {
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  rig.worker().begin_step();
  const auto results = rig.poll(1);
  return results.size() == 1 && results[0].code == cudaErrorUnknown;
}

bool wait_in_vain(WorkerRig& rig) {
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  const JobId job_ids[] = {1};
  static_cast<void>(rig.worker().wait(job_ids));
  const auto results = rig.poll(1);
  return results.size() == 1 && results[0].code == cudaErrorUnknown && !results[0].is_at_rest;
}

bool two_blocks_to_one(WorkerRig& rig) {
  const TransferSpec spec = WorkerRig::spec({0, 2}, {0, 0});
  const bool is_refused = !rig.worker().store(1, spec).empty();
  rig.worker().begin_step();
  rig.poll(is_refused ? 0 : 1);
  return is_refused;
}

bool store_the_second_half(WorkerRig& rig) {
  EXPECT_EQ(rig.store(1, WorkerRig::spec({5}, {0}, 3)), "");
  rig.worker().begin_step();
  return rig.poll(1).size() == 1;
}

bool store_is_deferred(WorkerRig& rig) {
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  const bool is_deferred = rig.worker().num_deferred() == 1 && rig.worker().num_in_flight() == 0;
  rig.worker().begin_step();
  return rig.poll(1).size() == 1 && is_deferred;
}

bool wait_for_a_store(WorkerRig& rig) {
  EXPECT_EQ(rig.store(1, WorkerRig::spec({0}, {0})), "");
  const JobId job_ids[] = {1, 77};
  EXPECT_EQ(rig.worker().wait(job_ids), cudaSuccess);
  rig.read_cpu(0);
  return rig.poll(1).size() == 1;
}

bool refuses_what_cannot_be_pinned(WorkerRig& rig) {
  if (!rig.is_open()) return true;
  EXPECT_EQ(rig.worker().store(1, WorkerRig::spec({0}, {0})), "");
  rig.worker().begin_step();
  rig.poll(1);
  return false;
}

RigOptions with(CopyPathKind path) {
  RigOptions options;
  options.worker.only_path = path;
  return options;
}

RigOptions with(CopyPathKind path, Fault fault) {
  RigOptions options = with(path);
  options.device.faults = {fault};
  return options;
}

std::vector<Case> all_cases() {
  using K = CopyPathKind;
  RigOptions small_batches = with(K::kBatched);
  small_batches.device.batch_entries_max = 2;
  small_batches.worker.copy.batch_entries_max = 2;
  RigOptions own_addresses = with(K::kBatched);
  own_addresses.device.registered_memory_has_own_device_address = true;
  RigOptions allocated = with(K::kBatched);
  allocated.has_given_memory = false;
  RigOptions halves = with(K::kBatched);
  halves.worker.plan.block_size_factor = 2;
  RigOptions padded = with(K::kBatched);
  padded.layout = 4;
  return {
      {"store_ignores_compute", "M1", Nature::kOrder, store_one, with(K::kBatched)},
      {"load_ignores_readers", "M2", Nature::kOrder, load_a_block_still_read, with(K::kLooped)},
      {"store_reads_in_any_order", "M3", Nature::kOrder, store_one, with(K::kBatched)},
      {"descriptors_reused_in_flight", "M4", Nature::kOrder, store_two, with(K::kKernel)},
      {"host_memory_freed_in_flight", "M5", Nature::kOrder, shut_down_at_once, allocated},
      {"only_first_event_awaited", "M6", Nature::kOrder, load_what_another_writes,
       with(K::kStrided)},
      {"event_recorded_again_before_wait", "M7", Nature::kOrder, store_two, with(K::kKernel)},
      {"record_error_ignored", "M8", Nature::kOrder, store_with_a_failing_record,
       with(
           K::kBatched,
           {.function = Function::kEventRecord, .nth = 2, .code = cudaErrorInvalidResourceHandle})},
      {"legacy_stream", "M9", Nature::kMisuse, store_two, with(K::kBatched)},
      {"host_address_for_device", "M10", Nature::kMisuse, store_two, own_addresses},
      {"conflict_accepted", "M11", Nature::kOrder, store_while_loading, with(K::kLooped)},
      {"batch_not_cut", "M12", Nature::kObservation, store_four, small_batches},
      {"errors_ignored", "M13", Nature::kBytes, store_with_a_failing_batch,
       with(K::kBatched, {.function = Function::kMemcpyBatchAsync, .code = cudaErrorUnknown})},
      {"end_event_before_copy", "", Nature::kOrder, store_two, with(K::kLooped)},
      {"failure_reported_in_flight", "", Nature::kOrder, reuse_after_a_failure,
       with(K::kBatched, {.kind = Fault::Kind::kPartialBatch,
                          .function = Function::kMemcpyBatchAsync,
                          .code = cudaErrorInvalidValue,
                          .count = 1})},
      {"overlap_accepted", "", Nature::kOrder, two_blocks_to_one, with(K::kBatched)},
      {"first_block_not_skipped", "", Nature::kBytes, store_the_second_half, halves},
      {"padding_copied", "", Nature::kBytes, store_two, padded},
      {"store_not_deferred", "", Nature::kObservation, store_is_deferred, with(K::kBatched)},
      {"wait_returns_at_once", "", Nature::kOrder, wait_for_a_store, with(K::kBatched)},
      {"pin_failure_ignored", "", Nature::kMisuse, refuses_what_cannot_be_pinned,
       with(K::kBatched, {.function = Function::kHostRegister, .code = cudaErrorMemoryAllocation})},
      {"only_last_code_counts", "", Nature::kObservation, store_with_a_failing_copy,
       with(K::kLooped, {.function = Function::kMemcpyAsync, .code = cudaErrorUnknown})},
      {"query_error_taken_for_end", "", Nature::kObservation, ask_in_vain,
       with(K::kBatched, {.function = Function::kEventQuery, .code = cudaErrorUnknown})},
      {"wait_error_ignored", "", Nature::kObservation, wait_in_vain,
       with(K::kBatched, {.function = Function::kEventSynchronize, .code = cudaErrorUnknown})},
  };
}

struct Outcome {
  bool has_race = false;
  bool has_misuse = false;
  bool has_wrong_bytes = false;
  bool says_wrong = false;
  std::array<std::size_t, content::kNumVerdicts> num_by_verdict{};
  std::string report = {};

  bool is_flagged() const { return has_race || has_misuse || has_wrong_bytes || says_wrong; }
  bool is_flagged_by(Nature nature) const {
    switch (nature) {
      case Nature::kOrder:
        return has_race;
      case Nature::kMisuse:
        return has_misuse;
      case Nature::kBytes:
        return has_wrong_bytes;
      case Nature::kObservation:
        return says_wrong;
    }
    return false;
  }
};

Outcome run(const Case& c, WorkerRig& rig) {
  Outcome outcome;
  outcome.says_wrong = !c.program(rig);
  if (rig.is_open()) {
    rig.worker().shutdown();
    static_cast<void>(cudaDeviceSynchronize());
    rig.check_all(c.options.has_given_memory);
  }
  outcome.has_race = !rig.device().races().empty();
  outcome.has_misuse = !rig.device().misuses().empty();
  outcome.has_wrong_bytes = !rig.wrong().empty();
  outcome.num_by_verdict = rig.num_by_verdict();
  outcome.report = rig.device().report() + (rig.wrong().empty() ? "" : rig.wrong().front());
  return outcome;
}

Outcome run(const Case& c, std::string_view bug, Schedule schedule, std::uint64_t seed) {
  RigOptions options = c.options;
  options.device.schedule = schedule;
  options.device.seed = seed;
  const planted::SwitchedOn switched("worker", bug);
  WorkerRig rig(options);
  return run(c, rig);
}

constexpr Schedule kSchedules[] = {Schedule::kEager, Schedule::kLazy, Schedule::kCommanded,
                                   Schedule::kRandom, Schedule::kPriority};

/// Runs of one bug under one schedule.
struct Tally {
  std::size_t num_runs = 0;
  std::size_t num_flagged = 0;  ///< by what its nature is
  std::size_t num_wrong_bytes = 0;
  bool is_complete = true;  ///< no order is left
  std::set<content::Verdict> verdicts = {};

  void add(const Outcome& outcome, Nature nature) {
    ++num_runs;
    num_flagged += outcome.is_flagged_by(nature) ? 1 : 0;
    num_wrong_bytes += outcome.has_wrong_bytes ? 1 : 0;
    for (std::size_t index = 0; index < outcome.num_by_verdict.size(); ++index) {
      if (outcome.num_by_verdict[index] > 0) verdicts.insert(static_cast<content::Verdict>(index));
    }
  }
  std::string percent() const {
    const std::size_t rounded =
        num_runs == 0 ? 0 : (100 * num_wrong_bytes + num_runs / 2) / num_runs;
    return std::to_string(rounded) + (is_complete ? "" : "+");
  }
};

Tally run_under(const Case& c, std::string_view bug, Schedule schedule) {
  const bool is_drawn = schedule == Schedule::kRandom || schedule == Schedule::kPriority;
  Tally tally;
  for (std::uint64_t seed = 1; seed <= (is_drawn ? kSeeds : 1); ++seed) {
    const Outcome outcome = run(c, bug, schedule, seed);
    SCOPED_TRACE(std::string(virtual_device::to_text(schedule)) + " seed " + std::to_string(seed));
    if (bug.empty()) {
      EXPECT_FALSE(outcome.is_flagged()) << outcome.report << (outcome.says_wrong ? " says" : "");
    } else {
      EXPECT_TRUE(outcome.is_flagged_by(c.nature)) << outcome.report;
    }
    tally.add(outcome, c.nature);
  }
  return tally;
}

/// Under every order of the device's steps that can matter, up to a bound.
Tally run_in_every_order(const Case& c, std::string_view bug) {
  virtual_device::ExploreOptions options;
  options.device = c.options.device;
  options.device.chunks_max = 1;
  options.device.polls_max = 2;
  options.runs_max = kOrdersMaxPerBug;
  options.prunes = true;
  Tally tally;
  Outcome outcome;
  const auto program = [&](virtual_device::Device& device) {
    const planted::SwitchedOn switched("worker", bug);
    WorkerRig rig(device, c.options);
    outcome = run(c, rig);
  };
  const auto at_end = [&](virtual_device::Device&) {
    if (bug.empty()) {
      EXPECT_FALSE(outcome.is_flagged()) << outcome.report;
    } else {
      EXPECT_TRUE(outcome.is_flagged_by(c.nature)) << outcome.report;
    }
    tally.add(outcome, c.nature);
  };
  tally.is_complete = virtual_device::explore(options, program, at_end).is_complete;
  return tally;
}

TEST(PlantedWorkerBugs, EachHasACase) {
  std::set<std::string_view> bugs;
  std::set<std::string> ids;
  for (const Case& c : all_cases()) {
    bugs.insert(c.bug);
    ids.insert(c.id);
  }
  for (const planted::Bug& bug : planted::bugs_of("worker")) {
    // Of what the ranks report together, not of a worker.
    const bool is_of_ranks =
        bug.name == "first_rank_counts" || bug.name == "failure_of_a_rank_lost";
    EXPECT_EQ(bugs.contains(bug.name), !is_of_ranks) << bug.name;
  }
  for (int id = 1; id <= 13; ++id) EXPECT_TRUE(ids.contains("M" + std::to_string(id))) << id;
}

TEST(PlantedWorkerBugs, AreFlaggedInEveryRunAndTheRightWorkerInNone) {
  // cuda/mistakes_by_schedule.md holds this table.
  std::cout << "| bug | | flagged by | eager | lazy | commanded | random | priority | exhaustive "
               "| wrong bytes are |\n|---|---|---|---|---|---|---|---|---|---|\n";
  std::size_t num_runs = 0;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.bug);
    std::string row = "| " + std::string(c.bug) + " | " + c.id + " | " + to_text(c.nature);
    bool shows_in_bytes = false;
    std::set<content::Verdict> verdicts;
    const auto take_in = [&](const Tally& planted) {
      num_runs += planted.num_runs;
      row += " | " + planted.percent();
      shows_in_bytes |= planted.num_wrong_bytes > 0;
      verdicts.insert(planted.verdicts.begin(), planted.verdicts.end());
      EXPECT_EQ(planted.num_flagged, planted.num_runs);
    };
    for (const Schedule schedule : kSchedules) {
      run_under(c, "", schedule);
      take_in(run_under(c, c.bug, schedule));
    }
    run_in_every_order(c, "");
    take_in(run_in_every_order(c, c.bug));
    ASSERT_FALSE(HasFailure());
    // What is out of order corrupts in some order, or the checker's edges are too few.
    EXPECT_TRUE(shows_in_bytes || c.nature != Nature::kOrder);
    std::string names;
    for (const content::Verdict verdict : verdicts) {
      names += (names.empty() ? "" : ", ") + std::string(content::to_text(verdict));
    }
    std::cout << row << " | " << names << " |\n";
  }
  EXPECT_GT(num_runs, kIsSanitized ? 5'000U : 20'000U);
  std::cout << num_runs << " runs of each worker\n";
}

TEST(PlantedWorkerBugs, RandomProgramsFindAStoreThatWaitsForNoForward) {
  const planted::SwitchedOn switched("worker", "store_ignores_compute");
  for (const Schedule schedule : kSchedules) {
    RigOptions options = with(CopyPathKind::kBatched);
    options.device.schedule = schedule;
    options.layout = 1;
    WorkerRig rig(options);
    Reached reached;
    RandomProgram(rig, options.worker.plan.first_block_rule, 1).run(100, reached);
    EXPECT_FALSE(rig.device().is_clean()) << virtual_device::to_text(schedule);
  }
}

}  // namespace
}  // namespace kvfence::cuda
