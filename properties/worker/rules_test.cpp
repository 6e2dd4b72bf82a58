/// Goal: each rule of target worker passes a right run and reports one wrong member. Method: a
/// short right run in which one observation is changed.

#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "properties/targets/rooms.h"

namespace kvfence::worker {
namespace {

struct Shown {
  Command command;
  Observation observation;
};

Observation shown(std::uint32_t num_deferred, std::uint32_t num_in_flight,
                  std::vector<Page> gpu_pages, std::vector<Page> cpu_pages) {
  Observation observation;
  observation.num_deferred = num_deferred;
  observation.num_in_flight = num_in_flight;
  observation.gpu_pages.emplace() = std::move(gpu_pages);
  observation.cpu_pages.emplace() = std::move(cpu_pages);
  observation.num_stray_bytes.emplace() = 0;
  return observation;
}

/// A block is written and stored.
std::vector<Shown> right_run() {
  const Page on_gpu{.number = 2, .of_block = 2, .generation = 1};
  const Page on_cpu{.number = 1, .of_block = 2, .generation = 1};
  std::vector<Shown> run;
  run.push_back({Forward{{}, {2}}, shown(0, 0, {}, {})});
  run.push_back({TransferAsync{{7, Direction::kStore, {2}, {1}}}, shown(1, 0, {}, {})});
  run.push_back({StartKVTransfers{}, shown(0, 1, {}, {})});
  run.push_back({Advance{Stream::kCompute}, shown(0, 1, {on_gpu}, {})});
  run.back().observation.advanced.emplace() = true;
  run.push_back({Advance{Stream::kStore}, shown(0, 1, {on_gpu}, {on_cpu})});
  run.back().observation.advanced.emplace() = true;
  run.push_back({GetFinished{}, shown(0, 0, {on_gpu}, {on_cpu})});
  run.back().observation.finished_jobs.emplace() = {{7, Direction::kStore, true}};
  return run;
}

/// A store that fails because its copies could not be enqueued.
std::vector<Shown> failing_run() {
  const Page on_gpu{.number = 2, .of_block = 2, .generation = 1};
  std::vector<Shown> run;
  run.push_back({Forward{{}, {2}}, shown(0, 0, {}, {})});
  run.push_back({FailNext{Fault::kCopy}, shown(0, 0, {}, {})});
  run.back().observation.next_fault = Fault::kCopy;
  run.push_back({TransferAsync{{7, Direction::kStore, {2}, {1}}}, shown(1, 0, {}, {})});
  run.back().observation.next_fault = Fault::kCopy;
  run.push_back({StartKVTransfers{}, shown(0, 1, {}, {})});
  run.push_back({Advance{Stream::kCompute}, shown(0, 1, {on_gpu}, {})});
  run.back().observation.advanced.emplace() = true;
  run.push_back({GetFinished{}, shown(0, 0, {on_gpu}, {})});
  run.back().observation.finished_jobs.emplace() = {{7, Direction::kStore, false}};
  return run;
}

std::optional<Divergence> judge(const std::vector<Shown>& run) {
  const auto rules = worker::rules().make(Options{});
  const Observation* before = nullptr;
  for (std::size_t step = 0; step < run.size(); ++step) {
    const auto& [command, observation] = run[step];
    if (auto found = rules->check(command, before, observation, World{})) {
      found->step = step;
      return found;
    }
    before = &observation;
  }
  return std::nullopt;
}

TEST(WorkerInvariants, PassARightRun) {
  for (const std::vector<Shown>& run : {right_run(), failing_run()}) {
    const auto found = judge(run);
    EXPECT_FALSE(found) << found->oracle << ": " << found->field;
  }
}

TEST(WorkerInvariants, EachReportsAWrongMember) {
  struct Case {
    std::string_view oracle;
    std::size_t step;
    std::function<void(Shown&)> spoil;
    bool of_failing_run = false;
  };
  const std::vector<Case> cases = {
      {"nothing_races", 2, [](Shown& at) { at.observation.num_races = 1; }},
      {"nothing_is_misused", 2, [](Shown& at) { at.observation.num_misuses = 1; }},
      {"no_event_is_lost", 2, [](Shown& at) { at.observation.num_lost_events = 1; }},
      {"shutdown_gives_all_back", 2, [](Shown& at) { at.observation.num_left_behind = 1; }},
      {"only_pages_are_written", 4,
       [](Shown& at) { at.observation.num_stray_bytes.emplace() = 5; }},
      {"each_transfer_is_reported_once", 5,
       [](Shown& at) {
         at.observation.finished_jobs.emplace().push_back({7, Direction::kStore, true});
       }},
      {"each_transfer_is_reported_once", 5,
       [](Shown& at) {
         at.observation.finished_jobs.emplace() = {{8, Direction::kStore, true}};
       }},
      {"each_transfer_is_reported_once", 5,
       [](Shown& at) {
         at.observation.finished_jobs.emplace() = {{7, Direction::kLoad, true}};
       }},
      {"transfers_add_up", 1, [](Shown& at) { at.observation.num_deferred = 0; }},
      {"transfers_add_up", 3, [](Shown& at) { at.observation.num_in_flight = 0; }},
      {"pages_hold_what_was_written", 3,
       [](Shown& at) { at.observation.gpu_pages.emplace()[0].torn = true; }},
      {"pages_hold_what_was_written", 3,
       [](Shown& at) { at.observation.gpu_pages.emplace()[0].of_block = 3; }},
      {"pages_hold_what_was_written", 4,
       [](Shown& at) { at.observation.cpu_pages.emplace()[0].generation = 2; }},
      {"what_succeeded_arrived", 5, [](Shown& at) { at.observation.cpu_pages.emplace().clear(); }},
      {"failures_are_those_of_faults", 5,
       [](Shown& at) {
         at.observation.finished_jobs.emplace() = {{7, Direction::kStore, false}};
       }},
      {"failures_are_those_of_faults", 5,
       [](Shown& at) {
         at.observation.finished_jobs.emplace() = {{7, Direction::kStore, true}};
       },
       /*of_failing_run=*/true},
      {"a_page_has_one_writer", 1,
       [](Shown& at) {
         at.command = TransferAsync{{7, Direction::kStore, {2, 3}, {1, 1}}};
       }},
      {"a_page_has_one_writer", 1,
       [](Shown& at) {
         at.command = TransferAsync{{7, Direction::kStore, {2, 3}, {1}}};
       }},
  };
  std::set<std::string_view> turned_red;
  for (const Case& spoilt : cases) {
    std::vector<Shown> run = spoilt.of_failing_run ? failing_run() : right_run();
    spoilt.spoil(run[spoilt.step]);
    const auto found = judge(run);
    ASSERT_TRUE(found) << spoilt.oracle;
    EXPECT_EQ(found->oracle, spoilt.oracle);
    EXPECT_EQ(found->step, spoilt.step) << spoilt.oracle;
    turned_red.insert(spoilt.oracle);
  }
  EXPECT_EQ(turned_red.size(), rules().rows.size());
}

TEST(WorkerInvariants, SeeABlockOfTheOtherDirection) {
  std::vector<Shown> run = right_run();
  run.resize(3);
  run.push_back({TransferAsync{{8, Direction::kLoad, {2}, {3}}}, shown(0, 2, {}, {})});
  const auto found = judge(run);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->oracle, "a_page_has_one_writer");
}

}  // namespace
}  // namespace kvfence::worker
