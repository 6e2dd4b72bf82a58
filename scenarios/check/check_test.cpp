// Goal: the package's check functions find the bugs of a user's component and report them.
// Method: the optimized side and its planted bugs stand for the user's component.

#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>

#include "contract/core/implementation.h"
#include "contract/pool/block_pool_target.h"
#include "optimized/eviction/cache_policy.h"
#include "optimized/kv_cache/kv_cache_manager.h"
#include "optimized/offload/offloading_manager.h"
#include "optimized/pool/block_pool.h"
#include "properties/targets/checks.h"
#include "scenarios/check/check.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

CheckOptions short_run() {
  CheckOptions options;
  options.commands_max = 5'000;
  return options;
}

void expect_agreement(const Parsed<Report>& report, const char* target) {
  ASSERT_TRUE(report) << report.error().to_text();
  EXPECT_TRUE(report->passed()) << to_text(*report);
  EXPECT_EQ(report->target, target);
  EXPECT_EQ(report->actual_name, "mine");
  EXPECT_EQ(report->commands, 5'000U);
}

const auto kMakePool = [](const BlockPoolConfig& config) { return optimized::BlockPool(config); };

TEST(Check, TakesAnyComponentOfTheConcepts) {
  expect_agreement(check(kMakePool, short_run()), "block_pool");
  expect_agreement(
      check([](const KVCacheManagerConfig& config) { return optimized::KVCacheManager(config); },
            short_run()),
      "kv_cache");
  expect_agreement(
      check([](const CachePolicyConfig& config) { return optimized::CachePolicy(config); },
            short_run()),
      "eviction");
  expect_agreement(check(
                       [](const OffloadingManagerConfig& config) {
                         return optimized::OffloadingManager(config);
                       },
                       short_run()),
                   "offload");
}

TEST(Check, TakesAnyImplementationBesideAReference) {
  for (const TargetSides* sides : {&tiering_sides(), &worker_sides()}) {
    const auto expected = sides->make_reference();
    const auto actual = sides->make_optimized();
    const auto report = check(*sides->checks, *expected, *actual, short_run());
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->passed()) << to_text(*report);
  }
}

/// The report on a planted bug of the pool.
Parsed<Report> check_planted(const CheckOptions& options) {
  const auto expected = block_pool_sides().make_reference();
  const auto actual = block_pool_sides().make_planted("hash_kept_on_reuse");
  return check(block_pool_checks(), *expected, *actual, options);
}

TEST(Check, ShrinksWhatItFinds) {
  const auto report = check_planted({});
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->passed());
  EXPECT_GT(report->commands_before_shrinking, 3U);
  EXPECT_LE(report->scenario.size(), 2 + 3U) << print(report->scenario);

  CheckOptions unshrunk;
  unshrunk.shrink = false;
  const auto whole = check_planted(unshrunk);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->commands_before_shrinking, 0U);
  EXPECT_GT(whole->scenario.size(), report->scenario.size());
}

TEST(Check, ShrinksWithinThePinnedConfiguration) {
  CheckOptions options;
  options.config_overrides = *fields_of("num_gpu_blocks=6 enable_kv_cache_events=false");
  const auto report = check_planted(options);
  ASSERT_TRUE(report && report->divergence);
  const std::string scenario = print(report->scenario);
  EXPECT_NE(scenario.find(" num_gpu_blocks=6 "), scenario.npos) << scenario;
  EXPECT_NE(scenario.find(" enable_kv_cache_events=false "), scenario.npos) << scenario;
}

TEST(Check, RunsTheScenarioOfAFailureAgain) {
  const auto found = check_planted({});
  ASSERT_TRUE(found && found->divergence);
  CheckOptions options;
  options.scenario = failing_document(*found);
  options.scenario_file = "found.kvs";
  const auto again = check_planted(options);
  ASSERT_TRUE(again && again->divergence);
  EXPECT_EQ(again->divergence->field, found->divergence->field);
  EXPECT_EQ(again->source, "found.kvs");
  const auto sound = check(kMakePool, options);
  ASSERT_TRUE(sound);
  EXPECT_TRUE(sound->passed());
  options.commands_max = 1;
  EXPECT_EQ(check(kMakePool, options)->commands, 1U);
}

TEST(Check, RefusesWhatDoesNotFit) {
  CheckOptions options;
  const auto fields = fields_of("no_such_setting=1");
  ASSERT_TRUE(fields);
  options.config_overrides = *fields;
  EXPECT_FALSE(check(kMakePool, options));
  EXPECT_FALSE(fields_of("not a setting"));

  CheckOptions of_scenario;
  of_scenario.scenario = *parse_document("target block_pool\nno_such_command\n");
  EXPECT_FALSE(check(kMakePool, of_scenario));
}

/// A user's pool that throws.
class ThrowingPool : public optimized::BlockPool {
 public:
  explicit ThrowingPool(const BlockPoolConfig& config) : BlockPool(config) {
    if (config.num_gpu_blocks < 6) throw UnsupportedConfig("a pool of few blocks");
  }
  ErrorCode touch(std::span<const BlockId> blocks) {
    if (blocks.size() > 1) throw std::runtime_error("two at once");
    return BlockPool::touch(blocks);
  }
};

TEST(Check, ReportsAnExceptionOfAComponent) {
  const auto make = [](const BlockPoolConfig& config) { return ThrowingPool(config); };
  const auto report = check(make, short_run());
  ASSERT_TRUE(report && report->divergence);
  EXPECT_EQ(report->divergence->message, "mine: threw an exception: two at once");
  const Parsed<Scenario> scenario =
      scenario_from_document(BlockPoolTarget::description(), report->scenario, "its scenario");
  ASSERT_TRUE(scenario) << scenario.error().to_text();
  EXPECT_EQ(scenario->steps.size(), 1U);
}

TEST(CheckDeathTest, AComponentThatEndsTheProgramDoesNotPass) {
  const auto make = [](const BlockPoolConfig& config) {
    if (config.num_gpu_blocks == 6) std::exit(0);
    return optimized::BlockPool(config);
  };
  EXPECT_EXIT(check(make, short_run()), testing::ExitedWithCode(1),
              "exit\\(\\) was called during a check; reproduce: seed 1, episode [0-9]+\n");
}

TEST(Check, DrawsAnotherConfigurationWhereAComponentHasNone) {
  const auto make = [](const BlockPoolConfig& config) {
    if (config.num_gpu_blocks < 6) throw UnsupportedConfig("a pool of few blocks");
    return optimized::BlockPool(config);
  };
  const auto report = check(make, short_run());
  expect_agreement(report, "block_pool");
  ASSERT_EQ(report->refusals.reasons().size(), 1U);
  EXPECT_EQ(report->refusals.reasons().front().why, "a pool of few blocks");
}

TEST(Check, EndsWhenItsCallerStopsIt) {
  CheckOptions options;
  options.keep_going = [](std::uint64_t, std::uint64_t) { return false; };
  const auto report = check(kMakePool, options);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->commands, options.episode_commands);
}

TEST(Check, FailsWhereAGoalIsNotReached) {
  CheckOptions options = short_run();
  options.commands_max = 10;
  options.goals_from_commands = 10;
  const auto report = check(kMakePool, options);
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->passed());
  EXPECT_FALSE(report->divergence);
}

}  // namespace
}  // namespace kvfence
