// Goal: a replay over two tiers sends the commands that vLLM's connector sends, counts its hits
// exactly, and reports the first difference between two sides.
// Method: traffic small enough to follow by hand, a spy that records the commands or misbehaves,
// the committed excerpt in lockstep with its figures pinned, and the whole trace if available.

#include "scenarios/replay/offload_replay.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optimized/offload/offloading_manager.h"
#include "properties/core/lockstep.h"
#include "properties/offload/driver.h"
#include "properties/targets/checks.h"
#include "scenarios/replay/offload_optimum.h"
#include "scenarios/replay/replay_test_rig.h"
#include "scenarios/replay/unlisted_offloading_manager.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

OffloadRequests below_gpu(const std::vector<MooncakeRequest>& requests,
                          const OffloadReplayOptions& options) {
  const auto pool = block_pool_sides().make_optimized();
  return below_gpu_tier(requests, gpu_options_of(options), *pool);
}

Spy spy_on_reference() { return Spy(offload_sides().make_reference()); }

/// Refuses the command of that number, or answers a thousand hits.
Spy::Change refuse_at(std::size_t step) {
  return [step, count = std::size_t{0}](const Command&, Observation& observation) mutable {
    if (count++ == step) observation.as<offload::Observation>().error = ErrorCode::kNotReady;
  };
}
Spy::Change boast_at(std::size_t step) {
  return [step, count = std::size_t{0}](const Command&, Observation& observation) mutable {
    if (count++ == step) observation.as<offload::Observation>().num_hits.emplace() = 1'000;
  };
}

std::unique_ptr<Implementation> make_unlisted() {
  return make_driver<OffloadDriver, UnlistedOffloadingManager<optimized::OffloadingManager>>(
      "unlisted");
}

OffloadTierResult alone(const std::vector<OffloadRequest>& requests,
                        const OffloadReplayOptions& options, std::uint32_t cpu_blocks,
                        Implementation& manager) {
  return replay_offload_tier(requests, config_of(options, EvictionPolicy::kLRU, cpu_blocks),
                             options.state_every, manager, nullptr);
}

TEST(BelowGpuTier, CountsTheHitsOfEachRequest) {
  // Four usable blocks: [5 6 7 8] pushes the others out, [9 ...] never fits, [] has none.
  const auto requests =
      trace_of({{1, 2, 3}, {1, 2, 4}, {}, {9, 10, 11, 12, 13}, {5, 6, 7, 8}, {1}});
  OffloadReplayOptions options;
  options.gpu_blocks = 5;
  options.concurrency = 1;

  const OffloadRequests below = below_gpu(requests, options);

  ASSERT_EQ(below.requests.size(), 4U);
  EXPECT_EQ(below.requests[0].num_gpu_hits, 0U);
  EXPECT_EQ(below.requests[1].num_gpu_hits, 2U);
  EXPECT_EQ(below.requests[2].keys.size(), 4U);
  EXPECT_EQ(below.requests[3].keys.data(), requests[5].hash_ids.data());
  EXPECT_EQ(below.requests[3].num_gpu_hits, 0U);
  EXPECT_EQ(below.too_large, 1U);
  EXPECT_EQ(below.num_blocks, 11U);
  EXPECT_EQ(below.num_gpu_hits, 2U);
  EXPECT_EQ(below.num_asked(), 9U);
}

TEST(BelowGpuTier, TakesTheFirstRequestsOnly) {
  OffloadReplayOptions options;
  options.requests_max = 2;

  EXPECT_EQ(below_gpu(trace_of({{1}, {1}, {1}}), options).requests.size(), 2U);
}

TEST(BelowGpuTier, FindsARepeatedId) {
  EXPECT_FALSE(find_repeated_id(trace_of({{1, 2}, {}, {1, 2}}), "a.jsonl"));
  EXPECT_EQ(find_repeated_id(trace_of({{1, 2}, {3, 4, 3}}), "a.jsonl")->to_text(),
            "a.jsonl: found hash id 3 twice in request 2, expected ids that name the whole prefix "
            "up to their block");
}

const std::vector<std::uint32_t> kAB = {1, 2};
const std::vector<std::uint32_t> kABC = {1, 2, 3};

TEST(OffloadReplay, SendsTheCommandsOfTheConnector) {
  // All new; found after a GPU hit; found in full; nothing asked, since all blocks are GPU hits.
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kABC, 1}, {kABC, 0}, {kABC, 3}};
  Spy spy = spy_on_reference();

  const OffloadTierResult result = alone(requests, {}, 8, spy);

  const std::vector<std::string> expected = {
      "touch keys=[1 2]",
      "lookup keys=[1 2]",
      "prepare_store keys=[1 2]",
      "touch keys=[1 2]",
      "complete_store keys=[1 2]",
      "touch keys=[1 2 3]",
      "lookup keys=[2 3]",
      "prepare_load keys=[2]",
      "complete_load keys=[2]",
      "prepare_store keys=[3]",
      "touch keys=[1 2 3]",
      "complete_store keys=[3]",
      "touch keys=[1 2 3]",
      "lookup keys=[1 2 3]",
      "prepare_load keys=[1 2 3]",
      "complete_load keys=[1 2 3]",
      "touch keys=[1 2 3]",
      "prepare_store keys=[1 2 3]",
      "take_events",
  };
  EXPECT_EQ(spy.lines, expected);
  EXPECT_EQ(result.commands, expected.size());
  EXPECT_EQ(result.asked, 7U);
  EXPECT_EQ(result.found, 4U);
  EXPECT_EQ(result.stored, 3U);
  EXPECT_EQ(result.evicted, 0U);
  EXPECT_FALSE(result.divergence);
}

TEST(OffloadReplay, AsksKeyByKeyWithTheOtherRelease) {
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kABC, 1}};
  OffloadReplayOptions options;
  options.profile = Profile::kV023;
  options.enable_events = true;
  Spy spy = spy_on_reference();

  const OffloadTierResult result = alone(requests, options, 8, spy);

  const std::vector<std::string> expected = {
      "lookup_key key=1",      "touch keys=[1 2]",          "prepare_store keys=[1 2]",
      "touch keys=[1 2]",      "complete_store keys=[1 2]", "take_events",
      "lookup_key key=2",      "lookup_key key=3",          "touch keys=[1 2 3]",
      "prepare_load keys=[2]", "complete_load keys=[2]",    "prepare_store keys=[3]",
      "touch keys=[1 2 3]",    "complete_store keys=[3]",   "take_events",
      "take_events",
  };
  EXPECT_EQ(spy.lines, expected);
  EXPECT_EQ(result.found, 1U);
}

TEST(OffloadReplay, FindsLeadingBlocksOnly) {
  // Two slots: storing 3 evicts 2, the older block that is not the store's own. Then 3 comes after a
  // gap.
  const std::vector<std::uint32_t> only_c = {3};
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {only_c, 0}, {kABC, 0}};
  const auto manager = offload_sides().make_optimized();

  const OffloadTierResult result = alone(requests, {}, 2, *manager);

  EXPECT_EQ(result.asked, 6U);
  EXPECT_EQ(result.found, 1U);
  EXPECT_EQ(optimal_hits(requests, 2), 2U);
}

TEST(OffloadReplay, CountsRefusedStores) {
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kABC, 0}, {kAB, 0}};
  const auto manager = offload_sides().make_optimized();

  const OffloadTierResult result = alone(requests, {}, 1, *manager);

  EXPECT_EQ(result.refused, 3U);
  EXPECT_EQ(result.stored, 0U);
  EXPECT_FALSE(result.divergence);
}

TEST(OffloadReplay, StoresOnlyAfterTheThreshold) {
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kAB, 0}, {kAB, 0}};
  const auto manager = offload_sides().make_optimized();
  OffloadReplayOptions options;
  options.store_threshold = 3;

  EXPECT_EQ(alone(requests, options, 8, *manager).stored, 2U);
  options.store_threshold = 4;
  EXPECT_EQ(alone(requests, options, 8, *manager).stored, 0U);
}

TEST(OffloadReplay, ReportsAManagerThatMisbehaves) {
  struct Case {
    Spy::Change change;
    std::size_t dies_at;
    Divergence expected;
  };
  const std::vector<Case> cases = {
      {refuse_at(2), SIZE_MAX, {2, "traffic", "error", "none", "not_ready", {}}},
      {boast_at(1), SIZE_MAX, {1, "traffic", "num_hits", "at most 2", "1000", {}}},
      {{}, 1, {1, "implementation", {}, {}, {}, "spy: gone"}},
  };
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kAB, 0}};
  for (const Case& c : cases) {
    Spy spy(offload_sides().make_reference(), c.change);
    spy.dies_at = c.dies_at;

    const OffloadTierResult result = alone(requests, {}, 8, spy);

    ASSERT_TRUE(result.divergence);
    EXPECT_EQ(result.divergence->oracle, c.expected.oracle);
    EXPECT_EQ(result.divergence->step, c.expected.step);
    if (c.expected.oracle == "traffic") {
      EXPECT_EQ(result.divergence->field, c.expected.field);
      EXPECT_EQ(result.divergence->expected, c.expected.expected);
      EXPECT_EQ(result.divergence->actual, c.expected.actual);
    } else {
      EXPECT_EQ(result.divergence->message, c.expected.message);
    }
    EXPECT_FALSE(result.scenario);
    EXPECT_EQ(result.commands, c.expected.step + 1);
  }
}

TEST(OffloadReplay, KeepsTheScenarioOfADivergence) {
  const std::vector<OffloadRequest> requests = {{kAB, 0}, {kABC, 0}, {kABC, 0}};
  const auto reference = offload_sides().make_reference();
  Spy spy(offload_sides().make_reference(), boast_at(6));

  const OffloadTierResult result =
      replay_offload_tier(requests, config_of({}, EvictionPolicy::kARC, 2), 1, *reference, &spy);

  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->oracle, "lockstep");
  EXPECT_EQ(result.divergence->step, 6U);
  ASSERT_TRUE(result.scenario);
  EXPECT_EQ(result.scenario->steps.size(), 7U);
  EXPECT_EQ(result.scenario->config.as<offload::Config>().policy, EvictionPolicy::kARC);
  Spy same(offload_sides().make_reference(), boast_at(6));
  Lockstep lockstep(offload_checks(), *reference, same);
  const std::optional<Divergence> again = run_scenario(lockstep, *result.scenario);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step, 6U);
}

TEST(OffloadReplay, StopsAfterADivergenceOfASweep) {
  const auto requests = trace_of({{1, 2}, {1, 2}});
  OffloadReplayOptions options;
  options.cpu_blocks = {4, 8};
  const auto reference = offload_sides().make_reference();
  Spy spy(offload_sides().make_reference(), boast_at(1));

  const OffloadReplayResult result =
      replay_offload_tiers(below_gpu(requests, options), options, *reference, &spy);

  ASSERT_EQ(result.points.size(), 1U);
  EXPECT_EQ(result.points[0].results.size(), 1U);
  ASSERT_NE(result.diverged(), nullptr);
  EXPECT_EQ(result.diverged()->divergence->field, "num_hits");
}

TEST(OffloadReplay, ReportsItsProgress) {
  const auto requests = trace_of({{1}, {2}});
  OffloadReplayOptions options;
  options.cpu_blocks = {4, 8};
  const auto manager = offload_sides().make_optimized();
  std::vector<std::size_t> reported;

  replay_offload_tiers(below_gpu(requests, options), options, *manager, nullptr,
                       [&](std::size_t done, std::size_t total) {
                         EXPECT_EQ(total, 8U);
                         reported.push_back(done);
                       });

  EXPECT_EQ(reported, (std::vector<std::size_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(OffloadReplay, ValidatesItsOptions) {
  EXPECT_FALSE(validate(OffloadReplayOptions{}));
  const std::vector<std::pair<OffloadReplayOptions, const char*>> cases = {
      {{.state_every = 0}, "found state_every=0, expected at least 1"},
      {{.policies = {}}, "found no policy, expected lru, arc or both"},
      {{.policies = {EvictionPolicy::kARC, EvictionPolicy::kARC}},
       "found policy arc twice, expected each once"},
      {{.cpu_blocks = {}}, "found no capacity, expected at least one"},
      {{.cpu_blocks = {8, 4, 8}}, "found cpu_blocks=8 twice, expected each once"},
      {{.cpu_blocks = {kCpuBlocksMax + 1}},
       "found cpu_blocks=268435457, expected at most 268435456"},
      {{.cpu_blocks = {0}}, nullptr},
      {{.gpu_blocks = 0}, nullptr},
      {{.concurrency = 0}, nullptr},
  };
  for (const auto& [options, expected] : cases) {
    const auto error = validate(options);
    ASSERT_TRUE(error) << (expected ? expected : "");
    if (expected) {
      EXPECT_EQ(error->to_text(), expected);
    }
  }
}

OffloadReplayResult excerpt_in_lockstep(OffloadReplayOptions options) {
  options.enable_events = true;
  const auto requests = excerpt();
  const auto reference = offload_sides().make_reference();
  const auto optimized = offload_sides().make_optimized();
  OffloadReplayResult result =
      replay_offload_tiers(below_gpu(requests, options), options, *reference, optimized.get());
  if (result.diverged() != nullptr) ADD_FAILURE() << result.diverged()->divergence->message;
  result.traffic.requests.clear();  // views of what is gone
  return result;
}

/// The blocks found at each capacity: by LRU, by ARC, by the optimum.
using Found = std::vector<std::vector<std::uint64_t>>;

Found found_of(const OffloadReplayResult& result) {
  Found rows;
  for (const OffloadPoint& point : result.points) {
    auto& row = rows.emplace_back();
    for (const OffloadTierResult& tier : point.results) row.push_back(tier.found);
    row.push_back(point.optimum);
  }
  return rows;
}

TEST(ConversationExcerpt, IsPinnedInLockstep) {
  OffloadReplayOptions options;
  options.gpu_blocks = 500;
  options.cpu_blocks = {50, 200, 500, 1'000, 2'000, 5'000};

  const OffloadReplayResult result = excerpt_in_lockstep(options);

  EXPECT_EQ(result.traffic.num_blocks, 16'495U);
  EXPECT_EQ(result.found_max + result.traffic.num_gpu_hits, 2'783U);
  EXPECT_EQ(found_of(result), (Found{{0, 0, 211},
                                     {0, 0, 689},
                                     {0, 0, 1289},
                                     {39, 39, 1817},
                                     {115, 189, 2184},
                                     {885, 896, 2184}}));
  for (const OffloadPoint& point : result.points) {
    for (const OffloadTierResult& tier : point.results) {
      EXPECT_EQ(tier.asked, result.traffic.num_asked());
      // Blocks that were stored and not evicted fill the tier.
      EXPECT_EQ(tier.stored - tier.evicted, point.cpu_blocks);
    }
  }
}

TEST(ConversationExcerpt, AgreesWithAThresholdAndTheOtherRelease) {
  OffloadReplayOptions options;
  options.gpu_blocks = 500;
  options.cpu_blocks = {300};
  options.profile = Profile::kV023;
  options.store_threshold = 2;

  const OffloadReplayResult result = excerpt_in_lockstep(options);

  EXPECT_EQ(found_of(result), (Found{{16, 16, 889}}));
}

TEST(ConversationExcerpt, HasTheSameFiguresWithoutItsLists) {
  OffloadReplayOptions options;
  options.cpu_blocks = {300, 1'000};
  const auto listed = offload_sides().make_optimized();
  const auto unlisted = make_unlisted();

  const auto requests = excerpt();
  const OffloadRequests traffic = below_gpu(requests, options);
  const OffloadReplayResult expected = replay_offload_tiers(traffic, options, *listed, nullptr);
  const OffloadReplayResult actual = replay_offload_tiers(traffic, options, *unlisted, nullptr);

  for (std::size_t k = 0; k < 2; ++k) {
    for (std::size_t policy = 0; policy < 2; ++policy) {
      const OffloadTierResult& a = expected.points.at(k).results.at(policy);
      const OffloadTierResult& b = actual.points.at(k).results.at(policy);
      EXPECT_GT(a.evicted, 0U);
      EXPECT_EQ(a.found, b.found);
      EXPECT_EQ(a.stored, b.stored);
      EXPECT_EQ(a.evicted, b.evicted);
      EXPECT_EQ(a.refused, b.refused);
    }
  }
}

TEST(ConversationExcerpt, FindsWhatTheTwoTiersTogetherCanHold) {
  // A CPU tier that never evicts, below any GPU tier.
  const auto requests = excerpt();
  for (const std::uint32_t gpu_blocks : {500U, 5'000U}) {
    OffloadReplayOptions options;
    options.gpu_blocks = gpu_blocks;
    options.cpu_blocks = {20'000};
    const auto manager = make_unlisted();
    const OffloadReplayResult result =
        replay_offload_tiers(below_gpu(requests, options), options, *manager, nullptr);

    EXPECT_EQ(result.traffic.too_large, 0U);
    for (const OffloadTierResult& tier : result.points.at(0).results) {
      EXPECT_EQ(tier.found, result.found_max);
      EXPECT_EQ(tier.found + result.traffic.num_gpu_hits, 2'783U);
      EXPECT_EQ(tier.stored, 13'712U);
    }
  }
}

TEST(OffloadReplay, HasTheFiguresOfTheWholeTrace) {
  const auto requests = whole_trace();
  if (!requests) GTEST_SKIP() << kNoWholeTrace;
  OffloadReplayOptions options;

  const OffloadRequests traffic = below_gpu(*requests, options);
  EXPECT_EQ(traffic.num_gpu_hits, 15'854U);
  EXPECT_EQ(optimal_hits(traffic.requests, 2'000), 58'028U);
  EXPECT_EQ(optimal_hits(traffic.requests, 10'000), 89'856U);
  // The reference scans, so only a small tier is fast enough.
  options.cpu_blocks = {500};
  const auto reference = offload_sides().make_reference();
  const auto manager = offload_sides().make_optimized();
  const OffloadReplayResult result =
      replay_offload_tiers(traffic, options, *reference, manager.get());
  ASSERT_EQ(result.diverged(), nullptr);
  EXPECT_EQ(found_of(result), (Found{{0, 626, 24'504}}));
}

}  // namespace
}  // namespace kvfence
