/// Goal: every planted bug of order is found by happens-before in every run, with the same verdict
/// under every schedule, and shown by bytes under at least one; programs without one never are.

#include "cuda/virtual/scenarios.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "cuda/virtual/explore.h"

namespace kvfence::virtual_device {
namespace {

constexpr std::uint64_t kSeeds = 100;
constexpr std::uint64_t kOrdersMax = 3000;

struct Outcome {
  std::vector<std::string> races;
  bool has_wrong_bytes = false;
};

Outcome outcome_of(TestRig& rig) {
  Outcome outcome;
  for (const Race& race : rig.device().races()) outcome.races.push_back(to_text(race));
  EXPECT_GT(rig.num_checks(), 0U);
  outcome.has_wrong_bytes = !rig.wrong().empty();
  return outcome;
}

Outcome run(const Scenario& scenario, Options options) {
  TestRig rig(std::move(options));
  scenario.program(rig);
  return outcome_of(rig);
}

/// All runs of a scenario: each schedule's, by name.
std::map<std::string, std::vector<Outcome>> run_all(const Scenario& scenario) {
  std::map<std::string, std::vector<Outcome>> outcomes;
  for (const Schedule schedule : {Schedule::kEager, Schedule::kLazy, Schedule::kCommanded}) {
    outcomes[to_text(schedule)].push_back(run(scenario, {.schedule = schedule}));
  }
  for (const Schedule schedule : {Schedule::kRandom, Schedule::kPriority}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      outcomes[to_text(schedule)].push_back(run(scenario, {.schedule = schedule, .seed = seed}));
    }
  }
  ExploreOptions options;
  options.device.chunks_max = 1;
  options.device.polls_max = 2;
  options.runs_max = kOrdersMax;
  explore(options, [&](Device& device) {
    TestRig rig(device);
    scenario.program(rig);
    outcomes["exhaustive"].push_back(outcome_of(rig));
  });
  return outcomes;
}

std::string percent_wrong(const std::vector<Outcome>& outcomes) {
  const auto num_wrong = std::count_if(outcomes.begin(), outcomes.end(),
                                       [](const Outcome& o) { return o.has_wrong_bytes; });
  return std::to_string(100 * num_wrong / static_cast<std::ptrdiff_t>(outcomes.size())) + "%";
}

TEST(Scenarios, BugsAreFoundByOrderAlwaysAndByBytesSometimes) {
  ASSERT_GE(racy_scenarios().size(), 9U);
  for (const Scenario& scenario : racy_scenarios()) {
    SCOPED_TRACE(scenario.name);
    const auto outcomes = run_all(scenario);
    const std::vector<std::string> expected = outcomes.at("lazy").front().races;
    ASSERT_FALSE(expected.empty());
    bool has_wrong_bytes = false;
    std::string table = std::string(scenario.id) + " " + scenario.name + ": wrong bytes";
    for (const auto& [schedule, runs] : outcomes) {
      for (const Outcome& outcome : runs) {
        ASSERT_EQ(outcome.races, expected) << schedule;
        has_wrong_bytes |= outcome.has_wrong_bytes;
      }
      table += " " + schedule + " " + percent_wrong(runs);
    }
    EXPECT_TRUE(has_wrong_bytes) << table;
    std::cout << table << "\n  " << expected.front() << "\n";
  }
}

TEST(Scenarios, RightProgramsAreNeverBlamed) {
  for (const Scenario& scenario : right_scenarios()) {
    SCOPED_TRACE(scenario.name);
    for (const auto& [schedule, runs] : run_all(scenario)) {
      for (const Outcome& outcome : runs) {
        ASSERT_TRUE(outcome.races.empty()) << schedule << ": " << outcome.races.front();
        ASSERT_FALSE(outcome.has_wrong_bytes) << schedule;
      }
    }
  }
}

TEST(Scenarios, ARaceIsDataAndOneLine) {
  TestRig rig({.schedule = Schedule::kLazy});
  rig.device().set_label({"step", 3});
  rig.compute(0, 1, {1, 1});
  rig.device().set_label({"job", 17});
  ok(rig.batch(1, {{rig.cpu(0), rig.gpu(0)}, {rig.cpu(1), rig.gpu(1) + 0}}));
  ASSERT_EQ(rig.device().races().size(), 1U);
  const Race& race = rig.device().races().front();
  EXPECT_TRUE(race.first.is_write);
  EXPECT_FALSE(race.second.is_write);
  EXPECT_EQ(race.second.entry, 1U);
  EXPECT_EQ(race.first.label.number, 3U);
  EXPECT_EQ(race.begin, 64U);
  EXPECT_EQ(race.end, 128U);
  EXPECT_EQ(to_text(race),
            "race: write of cudaMalloc #0 [64, 128) by launch (call 15, stream 1, \"step\" 3) and "
            "read of [64, 128) by cudaMemcpyBatchAsync (call 16, stream 2, entry 1, \"job\" 17) "
            "share [64, 128) unordered");
}

// The bugs that are not of order: an error code or a misuse says it, and who ignores that has wrong
// bytes.

TEST(Mistakes, ARecordThatFailedAndWasIgnoredOrdersNothing) {  // M8
  TestRig rig({.schedule = Schedule::kLazy,
               .faults = {{.kind = Fault::Kind::kReturnCode,
                           .function = Function::kEventRecord,
                           .code = cudaErrorInvalidResourceHandle}}});
  rig.set_gpu(0, {1, 1});
  rig.store(1, 0, 0);
  EXPECT_EQ(cudaEventRecord(rig.event(0), rig.stream(1)), cudaErrorInvalidResourceHandle);
  ok(cudaEventSynchronize(rig.event(0)));  // of nothing
  rig.expect_cpu(0, {1, 1});
  EXPECT_EQ(rig.wrong().size(), 1U);
  EXPECT_EQ(rig.device().races().size(), 1U);
}

TEST(Mistakes, TheBatchRefusesTheLegacyStream) {  // M9
  TestRig rig;
  void* dst = rig.cpu(0);
  const void* src = rig.gpu(0);
  std::size_t size = 16;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t start = 0;
  EXPECT_EQ(cudaMemcpyBatchAsync(&dst, &src, &size, 1, &attributes, &start, 1, nullptr),
            cudaErrorInvalidValue);
  ASSERT_EQ(rig.device().misuses().size(), 1U);
  EXPECT_EQ(rig.device().misuses()[0].kind, Misuse::Kind::kLegacyStream);
}

TEST(Mistakes, TheHostsAddressWhereTheDeviceHasItsOwnFaultsLate) {  // M10
  for (const bool translates : {false, true}) {
    TestRig rig({.schedule = Schedule::kLazy, .registered_memory_has_own_device_address = true});
    std::vector<std::byte> memory(TestRig::kBlockBytes);
    ok(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterMapped));
    int can_use_host_pointer = -1;
    ok(cudaDeviceGetAttribute(&can_use_host_pointer, cudaDevAttrCanUseHostPointerForRegisteredMem,
                              0));
    EXPECT_EQ(can_use_host_pointer, 0);
    void* address = memory.data();
    if (translates) ok(cudaHostGetDevicePointer(&address, memory.data(), 0));
    EXPECT_EQ(address == memory.data(), !translates);
    rig.set_gpu(0, {1, 1});
    ok(rig.batch(0, {{address, rig.gpu(0)}}));
    EXPECT_EQ(cudaStreamSynchronize(rig.stream(0)),
              translates ? cudaSuccess : cudaErrorIllegalAddress);
    EXPECT_EQ(rig.device().misuses().size(), translates ? 0U : 1U);
    EXPECT_EQ(rig.look(memory.data(), {1, 1}).is_right(), translates);
    EXPECT_EQ(cudaGetLastError(), translates ? cudaSuccess : cudaErrorIllegalAddress);
  }
}

TEST(Mistakes, TooManyDescriptorsAreRefused) {  // M12
  TestRig rig({.batch_entries_max = 2});
  rig.set_gpu(0, {1, 1});
  std::vector<TestRig::BlockCopy> copies;
  for (std::size_t block = 0; block < 3; ++block) copies.push_back({rig.cpu(block), rig.gpu(0)});
  EXPECT_EQ(rig.batch(0, copies), cudaErrorInvalidValue);
  rig.sync(0);
  rig.expect_cpu(0, {1, 1});
  EXPECT_EQ(rig.wrong().size(), 1U);  // M13: who ignores the code takes poison for content
  copies.pop_back();
  EXPECT_EQ(rig.batch(0, copies), cudaSuccess);
}

}  // namespace
}  // namespace kvfence::virtual_device
