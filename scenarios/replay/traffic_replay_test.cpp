// Goal: the replay turns traffic into the right commands, and its figures are exact.
// Method: traces small enough to follow by hand, through tiny pools in lockstep; then the committed
// excerpt, whose figures are pinned, and the whole trace if available.

#include "scenarios/replay/traffic_replay.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "properties/core/lockstep.h"
#include "properties/targets/checks.h"
#include "scenarios/replay/replay_test_rig.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

TrafficReplayOptions tiny(std::uint32_t gpu_blocks, std::uint32_t concurrency) {
  TrafficReplayOptions options;
  options.gpu_blocks = gpu_blocks;
  options.concurrency = concurrency;
  options.state_every = 1;
  return options;
}

/// Through reference and optimized; the test fails if they differ.
TrafficReplayResult in_lockstep(const std::vector<MooncakeRequest>& requests,
                                const TrafficReplayOptions& options) {
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  TrafficReplayResult result = replay_traffic(requests, options, *reference, optimized.get());
  if (result.divergence) ADD_FAILURE() << result.divergence->message;
  EXPECT_EQ(result.scenario.has_value(), result.divergence.has_value());
  return result;
}

TrafficReplayResult optimized_alone(const std::vector<MooncakeRequest>& requests,
                                    const TrafficReplayOptions& options) {
  const auto optimized = block_pool_sides().make_optimized();
  return replay_traffic(requests, options, *optimized, nullptr);
}

TEST(TrafficReplay, CountsHitsAndEvictionsByHand) {
  // Four usable blocks, one request at a time; in the queue, the next to be handed out first.
  //   [1 2 3]    3 new: blocks 1 2 3. Freed tail first: 4 3 2 1.
  //   [1 2 4]    hits 1 2, new: block 4, which was empty. Then 3 4 2 1.
  //   [5 6 7 8]  4 new, each evicts: 3 4 2 1. Then 1 2 4 3.
  //   [1 2]      2 new, each evicts: 1 2.
  const auto requests = trace_of({{1, 2, 3}, {1, 2, 4}, {5, 6, 7, 8}, {1, 2}});

  const TrafficReplayResult result = in_lockstep(requests, tiny(5, 1));

  EXPECT_EQ(result.requests, 4U);
  EXPECT_EQ(result.blocks, 12U);
  EXPECT_EQ(result.hits, 2U);
  EXPECT_DOUBLE_EQ(result.hit_rate(), 2.0 / 12);
  EXPECT_EQ(result.evictions, 6U);
  EXPECT_EQ(result.too_large, 0U);
  EXPECT_EQ(result.peak_referenced, 5U);
  // declare, lookups, [touch,] get, cache, free: 5, 8, 5, 5.
  EXPECT_EQ(result.commands, 23U);
}

TEST(TrafficReplay, SamplesTheThreeNumbersAfterEachRequest) {
  const auto requests = trace_of({{1, 2, 3}, {1, 2, 4}, {5}});

  const TrafficReplayResult result = in_lockstep(requests, tiny(7, 2));

  EXPECT_EQ(result.samples, (std::vector<TrafficSample>{{1, 0, {3, 0, 4}, 3, 0, 0},
                                                        {2, 1000, {2, 0, 5}, 6, 2, 0},
                                                        {3, 2000, {1, 1, 5}, 7, 2, 0}}));
  EXPECT_DOUBLE_EQ(result.samples.back().hit_rate(), 2.0 / 7);
}

TEST(TrafficReplay, SendsTheCommandsOfAPrefixCache) {
  Spy spy(block_pool_sides().make_reference());

  replay_traffic(trace_of({{1, 2}, {1, 3}}), tiny(9, 2), spy, nullptr);

  const std::vector<std::string> expected = {
      "request id=r0 tokens=[1 2]",
      "get_cached_block request=r0 index=0 block_size=1 groups=[0]",
      "get_new_blocks num_blocks=2",
      "cache_full_blocks request=r0 blocks=[1 2] num_cached_blocks=0 num_full_blocks=2 "
      "block_size=1 group=0",
      "request id=r1 tokens=[1 3]",
      "get_cached_block request=r1 index=0 block_size=1 groups=[0]",
      "get_cached_block request=r1 index=1 block_size=1 groups=[0]",
      "touch blocks=[1]",
      "get_new_blocks num_blocks=1",
      "cache_full_blocks request=r1 blocks=[1 3] num_cached_blocks=1 num_full_blocks=2 "
      "block_size=1 group=0",
      "free_blocks blocks=[2 1]",
      "free_blocks blocks=[3 1]",
  };
  EXPECT_EQ(spy.lines, expected);
}

TEST(TrafficReplay, TakesNothingNewForAFullHit) {
  Spy spy(block_pool_sides().make_reference());

  EXPECT_EQ(replay_traffic(trace_of({{1, 2}, {1, 2}}), tiny(9, 1), spy, nullptr).hits, 2U);
  EXPECT_EQ(spy.count_of("get_new_blocks"), 1U);
  EXPECT_EQ(spy.count_of("cache_full_blocks"), 1U);
}

TEST(TrafficReplay, HoldsFreesAndEvictsByTheRules) {
  struct Case {
    const char* what;
    std::vector<std::vector<std::uint32_t>> traffic;
    std::uint32_t gpu_blocks;
    std::uint32_t concurrency;
    std::uint64_t hits;
    std::uint64_t evictions;
    std::uint32_t peak_referenced;
  };
  const std::vector<Case> cases = {
      // [9] takes the last block of the first chain; the two before it are hit again.
      {"tail first, so that the beginning survives", {{1, 2, 3}, {9}, {1, 2, 3}}, 4, 1, 2, 2, 4},
      {"one at a time", {{1}, {2}, {3}, {4}}, 9, 1, 0, 0, 2},
      {"two at a time", {{1}, {2}, {3}, {4}}, 9, 2, 0, 0, 3},
      {"all at a time", {{1}, {2}, {3}, {4}}, 9, 9, 0, 0, 5},
      {"running requests share blocks", {{1, 2}, {1, 2}}, 9, 2, 2, 0, 3},
      // [3 4] needs two of four usable blocks while [1 2 9] holds three: it ends, and loses its tail.
      {"the oldest ends where its blocks are needed", {{1, 2, 9}, {3, 4}}, 5, 8, 0, 1, 4},
      // [1 2 5] hits what the first request holds. Ending that one frees nothing, so the second ends
      // too and loses block 4.
      {"hits stay while older requests end", {{1, 2}, {3, 4}, {1, 2, 5}, {3, 4}}, 5, 8, 3, 2, 5},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const auto result = in_lockstep(trace_of(c.traffic), tiny(c.gpu_blocks, c.concurrency));
    EXPECT_EQ(result.hits, c.hits);
    EXPECT_EQ(result.evictions, c.evictions);
    EXPECT_EQ(result.peak_referenced, c.peak_referenced);
  }
}

TEST(TrafficReplay, SkipsWhatIsTooLarge) {
  const TrafficReplayResult result =
      in_lockstep(trace_of({{1, 2, 3, 4}, {1, 2, 3}, {}, {5, 6, 7, 8}}), tiny(4, 1));

  EXPECT_EQ(result.requests, 4U);
  EXPECT_EQ(result.too_large, 2U);
  EXPECT_EQ(result.blocks, 3U);
  EXPECT_EQ(result.hits, 0U);
}

TEST(TrafficReplay, ReplaysTheFirstRequestsOnly) {
  TrafficReplayOptions options = tiny(9, 1);
  options.requests_max = 2;

  const TrafficReplayResult result = in_lockstep(trace_of({{1}, {1}, {1}, {1}}), options);

  EXPECT_EQ(result.requests, 2U);
  EXPECT_EQ(result.hits, 1U);
}

TEST(TrafficReplay, BoundsTheSamplesAndTakesTheLast) {
  TrafficReplayOptions options = tiny(9, 1);
  options.samples_max = 3;
  const std::vector<std::vector<std::uint32_t>> hash_ids(10, {1});

  const TrafficReplayResult result = in_lockstep(trace_of(hash_ids), options);

  ASSERT_EQ(result.samples.size(), 3U);
  EXPECT_EQ(result.samples[0].requests_done, 4U);
  EXPECT_EQ(result.samples[1].requests_done, 8U);
  EXPECT_EQ(result.samples[2].requests_done, 10U);
}

TEST(TrafficReplay, ReportsItsProgress) {
  const auto optimized = block_pool_sides().make_optimized();
  std::vector<std::pair<std::size_t, std::size_t>> reported;

  replay_traffic(trace_of({{1}, {2}}), tiny(9, 1), *optimized, nullptr,
                 [&](std::size_t done, std::size_t total) { reported.emplace_back(done, total); });

  EXPECT_EQ(reported, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 2}, {2, 2}}));
}

TEST(TrafficReplay, CountsAnEvictionForEachBlockRemoved) {
  const auto requests =
      trace_of({{1, 2, 3}, {1, 4, 5}, {6, 7, 8, 9}, {1, 2, 3}, {6, 7}, {1, 4, 5, 10}});
  TrafficReplayOptions options = tiny(6, 2);
  options.enable_kv_cache_events = true;
  std::uint64_t num_removed = 0;
  Spy spy(block_pool_sides().make_reference(), [&](const Command&, Observation& observation) {
    const auto& events = observation.as<block_pool::Observation>().events;
    if (!events.has_value()) return;
    for (const KVCacheEvent& event : *events) {
      num_removed += std::holds_alternative<BlockRemoved>(event) ? 1 : 0;
    }
  });

  const TrafficReplayResult result = replay_traffic(requests, options, spy, nullptr);

  EXPECT_GT(result.evictions, 0U);
  EXPECT_EQ(result.evictions, num_removed);
  EXPECT_EQ(in_lockstep(requests, options).evictions, result.evictions);
}

TEST(TrafficReplay, KeepsTheScenarioOfADivergence) {
  const auto requests = trace_of({{1, 2, 3}, {9}, {1, 2, 3}, {4}, {5}});
  const auto reference = block_pool_sides().make_reference();
  const auto planted = block_pool_sides().make_planted("free_reverses_list");
  ASSERT_TRUE(planted);

  const TrafficReplayResult result =
      replay_traffic(requests, tiny(4, 1), *reference, planted.get());

  ASSERT_TRUE(result.divergence);
  ASSERT_TRUE(result.scenario);
  EXPECT_EQ(result.scenario->steps.size(), result.divergence->step + 1);
  EXPECT_TRUE(std::holds_alternative<block_pool::FreeBlocks>(
      result.scenario->steps.back().command.as<block_pool::Command>()));
  EXPECT_EQ(result.scenario->config.as<block_pool::Config>(), config_of(tiny(4, 1)));
  Lockstep lockstep(block_pool_checks(), *reference, *planted);
  const std::optional<Divergence> again = run_scenario(lockstep, *result.scenario);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step, result.divergence->step);
}

TEST(TrafficReplay, ReportsAnImplementationThatRefusesWellFormedTraffic) {
  std::size_t num_commands = 0;
  Spy spy(block_pool_sides().make_reference(), [&](const Command&, Observation& observation) {
    if (++num_commands == 3)
      observation.as<block_pool::Observation>().error = ErrorCode::kNoFreeBlocks;
  });

  const TrafficReplayResult result = replay_traffic(trace_of({{1}, {2}}), tiny(4, 1), spy, nullptr);

  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->oracle, "traffic");
  EXPECT_EQ(result.divergence->step, 2U);
  EXPECT_EQ(result.divergence->expected, "none");
  EXPECT_EQ(result.divergence->actual, "no_free_blocks");
  EXPECT_EQ(result.scenario->steps.size(), 3U);
}

TEST(TrafficReplay, ReportsAnImplementationThatFails) {
  Spy spy(block_pool_sides().make_reference());
  spy.dies_at = 1;

  const TrafficReplayResult result = replay_traffic(trace_of({{1}}), tiny(4, 1), spy, nullptr);

  ASSERT_TRUE(result.divergence);
  EXPECT_EQ(result.divergence->oracle, "implementation");
  EXPECT_EQ(result.divergence->message, "spy: gone");
  EXPECT_EQ(result.scenario->steps.size(), 2U);
}

TEST(TrafficReplay, ValidatesItsOptions) {
  EXPECT_FALSE(validate(TrafficReplayOptions{}));
  EXPECT_EQ(validate(tiny(9, 0))->to_text(), "found concurrency=0, expected at least 1");
  EXPECT_EQ(validate({.state_every = 0})->to_text(), "found state_every=0, expected at least 1");
  EXPECT_TRUE(validate({.gpu_blocks = 0}));
}

TEST(HitRateCurve, RisesWithThePool) {
  const auto requests = trace_of({{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {4, 5, 6}});
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  const std::vector<std::uint32_t> sizes = {4, 6, 9};
  std::vector<std::pair<std::size_t, std::size_t>> reported;

  const std::vector<HitRatePoint> curve = hit_rate_curve(
      requests, sizes, tiny(1, 1), *reference, optimized.get(),
      [&](std::size_t done, std::size_t total) { reported.emplace_back(done, total); });

  ASSERT_EQ(curve.size(), 3U);
  EXPECT_EQ(curve[0].result.hits, 0U);
  EXPECT_EQ(curve[1].result.hits, 4U);
  EXPECT_EQ(curve[2].result.hits, 6U);
  EXPECT_EQ(curve[2].result.evictions, 0U);
  ASSERT_EQ(reported.size(), 12U);
  EXPECT_EQ(reported.back(), std::pair(std::size_t{12}, std::size_t{12}));
}

TEST(HitRateCurve, StopsAfterADivergence) {
  const auto requests = trace_of({{1, 2, 3}, {4, 5, 6}});
  const auto reference = block_pool_sides().make_reference();
  const auto planted = block_pool_sides().make_planted("free_reverses_list");
  const std::vector<std::uint32_t> sizes = {4, 6, 9};

  const auto curve = hit_rate_curve(requests, sizes, tiny(1, 1), *reference, planted.get());

  ASSERT_EQ(curve.size(), 1U);
  EXPECT_TRUE(curve[0].result.divergence);
}

TEST(TrafficReplayOfTheExcerpt, HitsWhatAnUnboundedCacheHitsAtAnyConcurrency) {
  const MooncakeTotals totals = totals_of(excerpt());
  ASSERT_EQ(totals.num_blocks, 16'495U);
  ASSERT_EQ(totals.num_blocks - totals.num_distinct_blocks, 2'783U);

  for (const std::uint32_t concurrency : {1U, 16U, 600U}) {
    SCOPED_TRACE(concurrency);
    const TrafficReplayResult result = optimized_alone(excerpt(), tiny(20'000, concurrency));
    EXPECT_FALSE(result.divergence);
    EXPECT_EQ(result.blocks, 16'495U);
    EXPECT_EQ(result.hits, 2'783U);
    EXPECT_EQ(result.evictions, 0U);
  }
}

TEST(TrafficReplayOfTheExcerpt, IsPinnedInLockstepWhereThePoolIsFull) {
  TrafficReplayOptions options = tiny(1'000, 16);
  options.state_every = 16;

  const TrafficReplayResult result = in_lockstep(excerpt(), options);

  EXPECT_EQ(result.requests, 600U);
  EXPECT_EQ(result.blocks, 16'495U);
  EXPECT_EQ(result.hits, 638U);
  EXPECT_EQ(result.evictions, 14'858U);
  EXPECT_EQ(result.too_large, 0U);
  // Every block that missed was cached, and what was not evicted fills the pool.
  EXPECT_EQ(result.blocks - result.hits - result.evictions, 999U);
}

TEST(TrafficReplayOfTheExcerpt, HasTheSameFiguresWithTheOtherHashAndWithEvents) {
  TrafficReplayOptions options = tiny(1'000, 16);
  const TrafficReplayResult plain = optimized_alone(excerpt(), options);
  options.hash_algorithm = HashAlgorithm::kSha256Cbor;
  options.enable_kv_cache_events = true;
  options.profile = Profile::kV023;

  const TrafficReplayResult other = optimized_alone(excerpt(), options);

  EXPECT_FALSE(other.divergence);
  EXPECT_EQ(other.samples, plain.samples);
}

TEST(TrafficReplay, FullConversationTraceHitsAsPublished) {
  const auto requests = whole_trace();
  if (!requests) GTEST_SKIP() << kNoWholeTrace;
  ASSERT_EQ(requests->size(), 12'031U);

  for (const std::uint32_t concurrency : {1U, 16U}) {
    SCOPED_TRACE(concurrency);
    const TrafficReplayResult unbounded = optimized_alone(*requests, tiny(300'000, concurrency));
    EXPECT_EQ(unbounded.blocks, 288'500U);
    EXPECT_EQ(unbounded.hits, 105'710U);
    EXPECT_EQ(unbounded.evictions, 0U);
  }
  TrafficReplayOptions options = tiny(1'000, 16);
  options.state_every = 64;
  const TrafficReplayResult small = in_lockstep(*requests, options);
  EXPECT_EQ(small.hits, 12'845U);
  EXPECT_EQ(small.evictions, 274'656U);
}

}  // namespace
}  // namespace kvfence
