// Goal: the replay turns traffic into the right commands, and its figures are exact.
// Method: traces small enough to follow by hand, through tiny pools in lockstep; then the committed
// excerpt, whose figures are pinned, and the whole trace where it is at hand.

#include "scenarios/replay/traffic_replay.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "properties/core/lockstep.h"
#include "properties/targets/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

std::vector<MooncakeRequest> trace_of(const std::vector<std::vector<std::uint32_t>>& hash_ids) {
  std::vector<MooncakeRequest> requests;
  for (const std::vector<std::uint32_t>& ids : hash_ids) {
    requests.push_back({requests.size() * 1000,
                        static_cast<std::uint32_t>(ids.size()) * kMooncakeBlockTokens, 1, ids});
  }
  return requests;
}

TrafficReplayOptions tiny(std::uint32_t gpu_blocks, std::uint32_t concurrency) {
  TrafficReplayOptions options;
  options.gpu_blocks = gpu_blocks;
  options.concurrency = concurrency;
  options.state_every = 1;
  return options;
}

/// Through reference and optimized; the test fails where they part.
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

/// Passes everything on and keeps what went through; may be told to misbehave at a command.
class Spy final : public Implementation {
 public:
  explicit Spy(std::unique_ptr<Implementation> implementation)
      : implementation_(std::move(implementation)) {}

  std::string name() const override { return "spy"; }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    commands.clear();
    return implementation_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    if (commands.size() == dies_at) return ImplementationFailure{"gone"};
    commands.push_back(command);
    auto failure = implementation_->apply(command, world, observe, observation);
    if (commands.size() == refuses_at + 1) observation.error = ErrorCode::kNoFreeBlocks;
    const auto& events = observation.numbers.as<block_pool::Observation>().events;
    if (!events.has_value()) return failure;
    for (const KVCacheEvent& event : *events) {
      num_removed += std::holds_alternative<BlockRemoved>(event) ? 1 : 0;
    }
    return failure;
  }

  template <class Alternative>
  std::vector<Alternative> all() const {
    std::vector<Alternative> found;
    for (const Command& command : commands) {
      if (const auto* alternative = std::get_if<Alternative>(&command.as<block_pool::Command>())) {
        found.push_back(*alternative);
      }
    }
    return found;
  }

  std::vector<Command> commands;
  std::uint64_t num_removed = 0;
  std::size_t dies_at = SIZE_MAX - 1;
  std::size_t refuses_at = SIZE_MAX - 1;

 private:
  std::unique_ptr<Implementation> implementation_;
};

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
  const auto requests = trace_of({{1, 2}, {1, 3}});
  Spy spy(block_pool_sides().make_reference());

  replay_traffic(requests, tiny(9, 2), spy, nullptr);

  std::vector<std::string> lines;
  for (const Command& command : spy.commands) lines.push_back(print(to_line(command)));
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
  EXPECT_EQ(lines, expected);
}

TEST(TrafficReplay, TakesNothingNewForAFullHit) {
  const auto requests = trace_of({{1, 2}, {1, 2}});
  Spy spy(block_pool_sides().make_reference());

  const TrafficReplayResult result = replay_traffic(requests, tiny(9, 1), spy, nullptr);

  EXPECT_EQ(result.hits, 2U);
  EXPECT_EQ(spy.all<block_pool::GetNewBlocks>().size(), 1U);
  EXPECT_EQ(spy.all<block_pool::CacheFullBlocks>().size(), 1U);
}

TEST(TrafficReplay, FreesTailFirstSoThatTheBeginningSurvives) {
  // [9] takes the last block of the first chain; the two before it are hit again.
  const TrafficReplayResult result = in_lockstep(trace_of({{1, 2, 3}, {9}, {1, 2, 3}}), tiny(4, 1));

  EXPECT_EQ(result.hits, 2U);
  EXPECT_EQ(result.evictions, 2U);
}

TEST(TrafficReplay, HoldsAsManyRequestsAsTheConcurrencySays) {
  const auto requests = trace_of({{1}, {2}, {3}, {4}});

  EXPECT_EQ(in_lockstep(requests, tiny(9, 1)).peak_referenced, 2U);
  EXPECT_EQ(in_lockstep(requests, tiny(9, 2)).peak_referenced, 3U);
  EXPECT_EQ(in_lockstep(requests, tiny(9, 9)).peak_referenced, 5U);
}

TEST(TrafficReplay, SharesTheBlocksOfRunningRequests) {
  EXPECT_EQ(in_lockstep(trace_of({{1, 2}, {1, 2}}), tiny(9, 2)).peak_referenced, 3U);
}

TEST(TrafficReplay, EndsTheOldestWhereItsBlocksAreNeeded) {
  // [3 4] needs two of four usable blocks while [1 2 9] holds three: it ends, and loses its tail.
  const TrafficReplayResult result = in_lockstep(trace_of({{1, 2, 9}, {3, 4}}), tiny(5, 8));

  EXPECT_EQ(result.evictions, 1U);
  EXPECT_EQ(result.samples.back().counts, (BlockCounts{0, 2, 3}));
}

TEST(TrafficReplay, KeepsItsHitsWhileOlderRequestsEnd) {
  // [1 2 5] hits what the first request holds. Ending that one frees nothing, so the second ends
  // too and loses block 4.
  const TrafficReplayResult result =
      in_lockstep(trace_of({{1, 2}, {3, 4}, {1, 2, 5}, {3, 4}}), tiny(5, 8));

  EXPECT_EQ(result.hits, 3U);
  EXPECT_EQ(result.evictions, 2U);
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

TEST(TrafficReplay, TellsItsProgress) {
  const auto optimized = block_pool_sides().make_optimized();
  std::vector<TrafficProgress> told;

  replay_traffic(trace_of({{1}, {2}}), tiny(9, 1), *optimized, nullptr,
                 [&](const TrafficProgress& progress) { told.push_back(progress); });

  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].requests_done, 1U);
  EXPECT_EQ(told[0].commands, 4U);
  EXPECT_EQ(told[1].requests_done, 2U);
  EXPECT_EQ(told[1].requests_total, 2U);
}

TEST(TrafficReplay, CountsAnEvictionForEachBlockRemoved) {
  const auto requests =
      trace_of({{1, 2, 3}, {1, 4, 5}, {6, 7, 8, 9}, {1, 2, 3}, {6, 7}, {1, 4, 5, 10}});
  TrafficReplayOptions options = tiny(6, 2);
  options.enable_kv_cache_events = true;
  Spy spy(block_pool_sides().make_reference());

  const TrafficReplayResult result = replay_traffic(requests, options, spy, nullptr);

  EXPECT_GT(result.evictions, 0U);
  EXPECT_EQ(result.evictions, spy.num_removed);
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
  Spy spy(block_pool_sides().make_reference());
  spy.refuses_at = 2;

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
  TrafficReplayOptions options;
  options.concurrency = 0;
  EXPECT_EQ(validate(options)->to_text(), "found concurrency=0, expected at least 1");
  options = {};
  options.state_every = 0;
  EXPECT_EQ(validate(options)->to_text(), "found state_every=0, expected at least 1");
  options = {};
  options.gpu_blocks = 0;
  EXPECT_TRUE(validate(options));
  options = {};
  options.hash_algorithm = "md5";
  EXPECT_TRUE(validate(options));
}

TEST(HitRateCurve, RisesWithThePool) {
  const auto requests = trace_of({{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {4, 5, 6}});
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  const std::vector<std::uint32_t> sizes = {4, 6, 9};
  std::vector<TrafficProgress> told;

  const std::vector<HitRatePoint> curve =
      hit_rate_curve(requests, sizes, tiny(1, 1), *reference, optimized.get(),
                     [&](const TrafficProgress& progress) { told.push_back(progress); });

  ASSERT_EQ(curve.size(), 3U);
  EXPECT_EQ(curve[0].result.hits, 0U);
  EXPECT_EQ(curve[1].result.hits, 4U);
  EXPECT_EQ(curve[2].result.hits, 6U);
  EXPECT_EQ(curve[2].result.evictions, 0U);
  ASSERT_EQ(told.size(), 12U);
  EXPECT_EQ(told.back().requests_done, 12U);
  EXPECT_EQ(told.back().requests_total, 12U);
}

TEST(HitRateCurve, StopsBehindADivergence) {
  const auto requests = trace_of({{1, 2, 3}, {4, 5, 6}});
  const auto reference = block_pool_sides().make_reference();
  const auto planted = block_pool_sides().make_planted("free_reverses_list");
  const std::vector<std::uint32_t> sizes = {4, 6, 9};

  const auto curve = hit_rate_curve(requests, sizes, tiny(1, 1), *reference, planted.get());

  ASSERT_EQ(curve.size(), 1U);
  EXPECT_TRUE(curve[0].result.divergence);
}

class TrafficReplayOfTheExcerpt : public testing::Test {
 protected:
  void SetUp() override {
    Parsed<std::vector<MooncakeRequest>> read =
        read_mooncake_trace_file(KVFENCE_TRAFFIC_DIR "/mooncake_conversation_excerpt.jsonl");
    ASSERT_TRUE(read) << read.error().to_text();
    requests_ = std::move(*read);
  }

  std::vector<MooncakeRequest> requests_;
};

TEST_F(TrafficReplayOfTheExcerpt, HitsWhatAnUnboundedCacheHitsAtAnyConcurrency) {
  const MooncakeTotals totals = totals_of(requests_);
  ASSERT_EQ(totals.num_blocks, 16'495U);
  ASSERT_EQ(totals.num_blocks - totals.num_distinct_blocks, 2'783U);

  for (const std::uint32_t concurrency : {1U, 16U, 600U}) {
    SCOPED_TRACE(concurrency);
    const TrafficReplayResult result = optimized_alone(requests_, tiny(20'000, concurrency));
    EXPECT_FALSE(result.divergence);
    EXPECT_EQ(result.blocks, 16'495U);
    EXPECT_EQ(result.hits, 2'783U);
    EXPECT_EQ(result.evictions, 0U);
  }
}

TEST_F(TrafficReplayOfTheExcerpt, IsPinnedInLockstepWhereThePoolIsFull) {
  TrafficReplayOptions options = tiny(1'000, 16);
  options.state_every = 16;

  const TrafficReplayResult result = in_lockstep(requests_, options);

  EXPECT_EQ(result.requests, 600U);
  EXPECT_EQ(result.blocks, 16'495U);
  EXPECT_EQ(result.hits, 638U);
  EXPECT_EQ(result.evictions, 14'858U);
  EXPECT_EQ(result.too_large, 0U);
  // Every block that missed was cached, and what was not evicted fills the pool.
  EXPECT_EQ(result.blocks - result.hits - result.evictions, 999U);
}

TEST_F(TrafficReplayOfTheExcerpt, HasTheSameFiguresWithTheOtherHashAndWithEvents) {
  TrafficReplayOptions options = tiny(1'000, 16);
  const TrafficReplayResult plain = optimized_alone(requests_, options);
  options.hash_algorithm = "sha256_cbor";
  options.enable_kv_cache_events = true;
  options.profile = "v0.23";

  const TrafficReplayResult other = optimized_alone(requests_, options);

  EXPECT_FALSE(other.divergence);
  EXPECT_EQ(other.samples, plain.samples);
}

// The published trace is not part of the repository: scenarios/traffic/README.md says where it is.
TEST(TrafficReplay, FullConversationTraceHitsAsPublished) {
  const char* folder = std::getenv("KVFENCE_TRACES");
  if (folder == nullptr) {
    GTEST_SKIP() << "KVFENCE_TRACES names no folder with mooncake_conversation_trace.jsonl";
  }
  const auto requests =
      read_mooncake_trace_file(std::string(folder) + "/mooncake_conversation_trace.jsonl");
  ASSERT_TRUE(requests) << requests.error().to_text();
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
