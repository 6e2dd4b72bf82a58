#include "properties/core/campaign.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

/// A pool that does not support every configuration.
class PickyPool final : public Implementation {
 public:
  PickyPool(std::optional<Profile> missing_profile) : missing_(missing_profile) {}
  std::string name() const override { return "picky"; }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    const auto& config = setup.config().as<block_pool::Config>();
    if (!missing_ || config.profile == missing_) {
      return ImplementationFailure{"no " + std::string(to_text(config.profile)),
                                   ImplementationFailure::Kind::kUnsupported};
    }
    return inner_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    return inner_->apply(command, world, observe, observation);
  }

 private:
  std::optional<Profile> missing_;  ///< nothing: all of them
  std::unique_ptr<Implementation> inner_ = block_pool_sides().make_optimized();
};

TEST(Campaign, DrawsAnotherConfigurationInPlaceOfOneThatIsRefused) {
  const auto reference = block_pool_sides().make_reference();
  PickyPool picky(Profile::kV023);
  CampaignOptions options;
  options.commands_max = 2'000;
  const auto result = run_campaign(block_pool_checks(), *reference, picky, options, kToTheEnd);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(result.progress.commands, 2'000u);
  ASSERT_EQ(result.refusals.reasons().size(), 1u);
  EXPECT_EQ(result.refusals.reasons().front().why, "no v0.23");
  EXPECT_GT(result.refusals.count(), 0u);
}

TEST(Campaign, EndsIfEveryConfigurationIsRefused) {
  const auto reference = block_pool_sides().make_reference();
  PickyPool picky({});
  const auto result = run_campaign(block_pool_checks(), *reference, picky, {}, kToTheEnd);
  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->divergence.oracle, "unsupported");
  EXPECT_EQ(result.progress.commands, 0u);
}

/// Asks its run to stop in the n-th command.
class Watched final : public Implementation {
 public:
  Watched(RunPosition& position, std::uint64_t command) : position_(position), left_(command) {}
  std::string name() const override { return inner_->name(); }
  std::optional<ImplementationFailure> reset(const Setup& setup) override {
    return inner_->reset(setup);
  }
  std::optional<ImplementationFailure> apply(const Command& command, const World& world,
                                             Observe observe, Observation& observation) override {
    if (--left_ == 0) position_.must_stop = true;
    return inner_->apply(command, world, observe, observation);
  }

 private:
  RunPosition& position_;
  std::uint64_t left_;
  std::unique_ptr<Implementation> inner_ = block_pool_sides().make_optimized();
};

TEST(Campaign, StopsWithinAnEpisodeOnRequest) {
  const auto reference = block_pool_sides().make_reference();
  RunPosition position;
  Watched watched(position, 130);
  CampaignOptions options;
  options.episode_commands = 100;
  options.lockstep.position = &position;
  const auto result = run_campaign(block_pool_checks(), *reference, watched, options, kToTheEnd);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(result.progress.commands, 130u);
  EXPECT_EQ(result.progress.episodes, 2u);
}

TEST(Campaign, OneEpisodeIn512IsLong) {
  EXPECT_EQ(commands_of_episode(0, 200), 200u);
  EXPECT_EQ(commands_of_episode(511, 200), 10'000u);
  EXPECT_EQ(commands_of_episode(511, 30'000), 30'000u);
  for (const std::uint64_t first : {0U, 500U, 511U, 512U}) {
    std::uint64_t sum = 0;
    for (std::uint64_t count = 0; count < 1'200; ++count) {
      EXPECT_EQ(commands_of_episodes(first, count, 200), sum);
      sum += commands_of_episode(first + count, 200);
    }
  }
  const auto reference = block_pool_sides().make_reference();
  const auto optimized = block_pool_sides().make_optimized();
  CampaignOptions options;
  options.first_episode = 510;
  options.episodes_max = 3;
  const auto result = run_campaign(block_pool_checks(), *reference, *optimized, options, kToTheEnd);
  EXPECT_FALSE(result.failure);
  EXPECT_EQ(result.progress.commands, 10'400u);
}

TEST(Refusals, CountsFurtherReasonsTogether) {
  Refusals refusals;
  for (std::uint64_t number = 0; number < 40; ++number) refusals.add(std::to_string(number));
  refusals.add("3", 2);
  EXPECT_EQ(refusals.reasons().size(), Refusals::kReasonsMax + 1);
  EXPECT_EQ(refusals.count(), 42u);
  Refusals both;
  both.add(refusals);
  both.add(refusals);
  EXPECT_EQ(both.count(), 84u);
  EXPECT_EQ(both.reasons().back().count, 2 * (40 - Refusals::kReasonsMax));
  // The remaining reasons that another process counted together stay one reason in any order.
  Refusals late;
  late.add(refusals.reasons().back().why);
  late.add(refusals);
  late.add("40");
  EXPECT_EQ(late.reasons().size(), Refusals::kReasonsMax);
  EXPECT_EQ(late.count(), 44u);
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
