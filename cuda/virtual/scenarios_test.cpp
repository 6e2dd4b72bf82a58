/// Goal: happens-before finds every planted bug of order in every run, with the same verdict under
/// every schedule, and bytes show it under at least one. A correct program is never accused.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "cuda/virtual/explore_test_support.h"
#include "cuda/virtual/test_rig.h"

namespace kvfence::virtual_device {
namespace {

struct Scenario {
  const char* name;
  const char* id;  ///< of the table in README.md; "" for programs that are right
  void (*program)(TestRig& rig);
};

constexpr content::Tag kFirst{1, 1};
constexpr content::Tag kSecond{1, 2};
constexpr content::Tag kOther{2, 1};
constexpr auto kAny = cudaMemcpySrcAccessOrderAny;

// Streams of a worker.
constexpr std::size_t kCompute = 0;
constexpr std::size_t kToHost = 1;
constexpr std::size_t kToDevice = 2;
constexpr std::size_t kElsewhere = 3;

void finish(TestRig& rig) {
  // Copies first: this shows a missing order after compute.
  rig.sync(kToHost);
  rig.sync(kToDevice);
  ok(cudaDeviceSynchronize());
}

/// Wrong in their order: a race.
const Scenario kRacyScenarios[] = {
    {"store does not wait for compute", "M1",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.store(kToHost, 0, 0);
       finish(rig);
       rig.expect_cpu(0, kFirst);
     }},
    {"load into a block that is still read", "M2",
     [](TestRig& rig) {
       rig.set_gpu(0, kFirst);
       rig.set_cpu(0, kOther);
       rig.attend(kCompute, 0, kFirst);
       rig.load(kToDevice, 0, 0);
       finish(rig);
     }},
    {"Any order after a wait", "M3",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.record(0, kCompute);
       rig.wait(kToHost, 0);
       ok(rig.batch(kToHost, {{rig.cpu(0), rig.gpu(0)}}, kAny));
       finish(rig);
       rig.expect_cpu(0, kFirst);
     }},
    {"staging rewritten while it is loaded", "M4",
     [](TestRig& rig) {
       rig.fill(0, kFirst);
       rig.load(kToDevice, 0, 0);
       rig.fill(0, kSecond);
       finish(rig);
       rig.expect_gpu(0, kFirst);
     }},
    {"staging freed while it is loaded", "M5",
     [](TestRig& rig) {
       void* staging = nullptr;
       ok(cudaHostAlloc(&staging, TestRig::kBlockBytes, cudaHostAllocDefault));
       rig.device().host_write(staging, TestRig::kBlockBytes);
       content::fill({static_cast<std::byte*>(staging), TestRig::kBlockBytes}, kFirst,
                     TestRig::kRunSeed);
       ok(cudaMemcpyAsync(rig.gpu(0), staging, TestRig::kBlockBytes, cudaMemcpyHostToDevice,
                          rig.stream(kToDevice)));
       ok(cudaFreeHost(staging));
       finish(rig);
       rig.expect_gpu(0, kFirst);
     }},
    {"end event recorded before the copy", "end-event",
     [](TestRig& rig) {
       rig.set_gpu(0, kFirst);
       rig.record(0, kToHost);
       rig.store(kToHost, 0, 0);
       ok(cudaEventSynchronize(rig.event(0)));
       rig.expect_cpu(0, kFirst);
       finish(rig);
     }},
    {"import event never waited for", "M6",
     [](TestRig& rig) {
       rig.set_cpu(0, kFirst);
       rig.load(kToDevice, 0, 0);
       rig.record(0, kToDevice);
       rig.attend(kCompute, 0, kFirst);
       ok(cudaStreamSynchronize(rig.stream(kCompute)));
       finish(rig);
     }},
    {"event recorded again before the wait", "M7",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.record(0, kCompute);
       rig.record(0, kElsewhere);
       rig.wait(kToHost, 0);
       rig.store(kToHost, 0, 0);
       finish(rig);
       rig.expect_cpu(0, kFirst);
     }},
    {"event waited for before its first record", "unrecorded",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.wait(kToHost, 0);
       rig.record(0, kCompute);
       rig.store(kToHost, 0, 0);
       finish(rig);
       rig.expect_cpu(0, kFirst);
     }},
    {"dependent entries in one batch", "batch",
     [](TestRig& rig) {
       rig.set_cpu(0, kFirst);
       ok(rig.batch(kToDevice, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(1), rig.gpu(0)}}));
       finish(rig);
       rig.expect_gpu(1, kFirst);
     }},
    {"two entries with one destination", "batch",
     [](TestRig& rig) {
       rig.set_cpu(0, kFirst);
       rig.set_cpu(1, kSecond);
       ok(rig.batch(kToDevice, {{rig.gpu(0), rig.cpu(0)}, {rig.gpu(0), rig.cpu(1)}}));
       finish(rig);
       rig.expect_gpu(0, kSecond);
     }},
    {"load in Any order of what is being stored", "M3-load",
     [](TestRig& rig) {
       rig.set_gpu(0, kFirst);
       rig.set_cpu(0, kOther);
       rig.store(kToHost, 0, 0);
       rig.record(0, kToHost);
       rig.wait(kToDevice, 0);
       ok(rig.batch(kToDevice, {{rig.gpu(1), rig.cpu(0)}}, kAny));
       finish(rig);
       rig.expect_gpu(1, kFirst);
     }},
    {"host slot stored to before its load ends", "slot",
     [](TestRig& rig) {
       rig.set_cpu(0, kFirst);
       rig.set_gpu(1, kOther);
       rig.load(kToDevice, 0, 0);
       rig.store(kToHost, 1, 0);
       finish(rig);
       rig.expect_gpu(0, kFirst);
     }},
    {"stored before it is loaded", "M11",
     [](TestRig& rig) {
       rig.set_cpu(0, kFirst);
       rig.load(kToDevice, 0, 0);
       rig.store(kToHost, 0, 1);
       finish(rig);
       rig.expect_cpu(1, kFirst);
     }},
    {"block computed again while it is stored", "reuse",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.record(0, kCompute);
       rig.wait(kToHost, 0);
       rig.store(kToHost, 0, 0);
       rig.compute(kCompute, 0, kOther);  // the block's next owner
       ok(cudaStreamSynchronize(rig.stream(kCompute)));
       finish(rig);
       rig.expect_cpu(0, kFirst);
     }},
};

/// Nothing is wrong with them.
const Scenario kRightScenarios[] = {
    {"store after compute", "",
     [](TestRig& rig) {
       rig.compute(kCompute, 0, kFirst);
       rig.record(0, kCompute);
       rig.wait(kToHost, 0);
       rig.store(kToHost, 0, 0);
       rig.record(1, kToHost);
       rig.wait(kCompute, 1);
       rig.compute(kCompute, 0, kOther);
       ok(cudaEventSynchronize(rig.event(1)));
       rig.expect_cpu(0, kFirst);
       rig.fill(0, kSecond);
       finish(rig);
       rig.expect_gpu(0, kOther);
     }},
    {"load after the last reader", "",
     [](TestRig& rig) {
       rig.set_gpu(0, kFirst);
       rig.fill(0, kOther);
       rig.attend(kCompute, 0, kFirst);
       rig.record(0, kCompute);
       rig.wait(kToDevice, 0);
       rig.record(0, kElsewhere);  // after the wait: does not concern it
       rig.load(kToDevice, 0, 0);
       rig.record(1, kToDevice);
       rig.wait(kCompute, 1);
       rig.attend(kCompute, 0, kOther);
       if (cudaEventQuery(rig.event(1)) == cudaErrorNotReady)
         ok(cudaEventSynchronize(rig.event(1)));
       rig.fill(0, kSecond);
       finish(rig);
     }},
    {"load in Any order of what was seen stored", "",
     [](TestRig& rig) {
       rig.set_gpu(0, kFirst);
       rig.store(kToHost, 0, 0);
       rig.record(0, kToHost);
       ok(cudaEventSynchronize(rig.event(0)));
       ok(rig.batch(kToDevice, {{rig.gpu(1), rig.cpu(0)}, {rig.gpu(2), rig.cpu(0)}}, kAny));
       rig.record(1, kToDevice);
       rig.wait(kCompute, 1);
       rig.attend(kCompute, 1, kFirst);
       rig.attend(kCompute, 2, kFirst);
       finish(rig);
     }},
};

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
    outcomes[std::string(to_text(schedule))].push_back(run(scenario, {.schedule = schedule}));
  }
  for (const Schedule schedule : {Schedule::kRandom, Schedule::kPriority}) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      outcomes[std::string(to_text(schedule))].push_back(
          run(scenario, {.schedule = schedule, .seed = seed}));
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
  for (const Scenario& scenario : kRacyScenarios) {
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
  for (const Scenario& scenario : kRightScenarios) {
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
  EXPECT_EQ(race.begin - race.base, 64U);
  EXPECT_EQ(race.end - race.base, 128U);
  EXPECT_EQ(to_text(race),
            "race: write of cudaMalloc #0 [64, 128) by launch (call 15, stream 1, \"step\" 3) and "
            "read of [64, 128) by cudaMemcpyBatchAsync (call 16, stream 2, entry 1, \"job\" 17) "
            "share [64, 128) unordered");
}

// The bugs that are not about order: an error code or a misuse reports each, and a program that
// ignores it has wrong bytes.

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
  EXPECT_EQ(rig.wrong().size(), 1U);  // M13: without a look at the code, poison passes for content
  copies.pop_back();
  EXPECT_EQ(rig.batch(0, copies), cudaSuccess);
}

}  // namespace
}  // namespace kvfence::virtual_device
