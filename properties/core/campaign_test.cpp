#include "properties/core/campaign.h"

#include <cstdint>
#include <optional>

#include "contract/core/scenario.h"
#include "contract/pool/block_pool_target.h"
#include "properties/core/prop_test_support.h"
#include "properties/targets/checks.h"

namespace kvfence {
namespace {

constexpr auto kToTheEnd = [](const CampaignProgress&) { return true; };

Scenario episode(std::uint64_t seed, std::uint64_t number) {
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  Lockstep lockstep(block_pool_checks(), *reference, *optimized);
  Choices choices = episode_choices(seed, number);
  Scenario scenario(BlockPoolTarget::description());
  const Setup setup = *draw_setup(block_pool_checks(), choices);
  EXPECT_FALSE(run_episode(lockstep, setup, choices, 100, scenario));
  return scenario;
}

CampaignResult run_against_planted(const CampaignOptions& options) {
  const auto reference = block_pool_sides().make_reference();
  const auto planted = block_pool_sides().make_planted("free_reverses_list");
  return run_campaign(block_pool_checks(), *reference, *planted, options, kToTheEnd);
}

TEST(Campaign, AnEpisodeIsDecidedByItsSeedAndNumber) {
  EXPECT_EQ(episode(1, 5), episode(1, 5));
  EXPECT_FALSE(episode(1, 5) == episode(1, 6));
  EXPECT_FALSE(episode(1, 5) == episode(2, 5));
}

TEST(Campaign, StopsAtEachOfItsBounds) {
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  CampaignOptions options;
  options.episode_commands = 10;
  options.commands_max = 95;
  const auto by_commands =
      run_campaign(block_pool_checks(), *reference, *optimized, options, kToTheEnd);
  EXPECT_EQ(by_commands.progress.commands, 95u);
  EXPECT_EQ(by_commands.progress.episodes, 10u);
  options.episodes_max = 3;
  const auto by_episodes =
      run_campaign(block_pool_checks(), *reference, *optimized, options, kToTheEnd);
  EXPECT_EQ(by_episodes.progress.commands, 30u);
  const auto by_caller = run_campaign(block_pool_checks(), *reference, *optimized, options,
                                      [](const CampaignProgress&) { return false; });
  EXPECT_EQ(by_caller.progress.episodes, 1u);
}

TEST(Campaign, AFailureComesWithTheScenarioUpToTheFailingCommand) {
  const auto result = run_against_planted({});
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->scenario.steps.size(), result.failure->divergence.step + 1);

  const auto reference = block_pool_sides().make_reference();
  const auto planted = block_pool_sides().make_planted("free_reverses_list");
  Lockstep lockstep(block_pool_checks(), *reference, *planted);
  const std::optional<Divergence> again = run_scenario(lockstep, result.failure->scenario);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step, result.failure->divergence.step);
  EXPECT_EQ(again->field, result.failure->divergence.field);
}

TEST(Campaign, AFailingEpisodeRunsAloneByItsNumber) {
  const auto result = run_against_planted({});
  ASSERT_TRUE(result.failure);
  CampaignOptions options;
  options.first_episode = result.failure->episode;
  options.episodes_max = 1;
  const auto alone = run_against_planted(options);
  ASSERT_TRUE(alone.failure);
  EXPECT_EQ(alone.failure->scenario, result.failure->scenario);
}

}  // namespace
}  // namespace kvfence
