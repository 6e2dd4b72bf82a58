// The optimized pool answers every command as the reference does, and the invariants hold.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/line.h"
#include "contract/scenario.h"
#include "properties/block_pool_checks.h"
#include "properties/campaign.h"
#include "properties/choices.h"
#include "properties/lockstep.h"
#include "properties/prop_test_support.h"

namespace kvfence {
namespace {

constexpr std::size_t kCommandsMax = 200;

void expect_all_reached(const block_pool::Reach& reach) {
  for (std::size_t index = 0; index < block_pool::Reach::num_goals(); ++index) {
    const block_pool::Reach::Goal goal = reach.goal(index);
    EXPECT_TRUE(goal.reached()) << goal.name << " was reached " << goal.count << " times of "
                                << goal.at_least << " (with the cases of RC_PARAMS in ctest)";
  }
}

TEST(BlockPoolLockstepProp, ReferenceAndOptimizedAgreeOnEveryEpisode) {
  const auto reference = ReferenceSide::make();
  const auto optimized = OptimizedSide::make();
  Lockstep<BlockPoolTarget> lockstep(*reference, *optimized);
  std::size_t num_commands = 0;
  EXPECT_TRUE(rc::check("reference and optimized agree and the invariants hold", [&] {
    const std::vector<std::uint8_t> bytes = *episode_bytes(2000);
    Choices choices = Choices::from_bytes(bytes);
    Scenario<BlockPoolTarget> scenario;
    const std::optional<Divergence> divergence =
        run_episode(lockstep, choices, kCommandsMax, scenario);
    num_commands += lockstep.num_commands();
    if (divergence) {
      RC_LOG() << print(to_document(scenario));
      RC_FAIL(divergence->oracle + ": " + divergence->message + "\n" + divergence->field +
              "\n  expected " + divergence->expected + "\n  actual   " + divergence->actual);
    }
  }));
  RecordProperty("commands", std::to_string(num_commands));
  expect_all_reached(lockstep.reach());
}

TEST(BlockPoolLockstepProp, ASeededCampaignAgreesAndReachesEveryGoal) {
  const auto reference = ReferenceSide::make();
  const auto optimized = OptimizedSide::make();
  CampaignOptions options;
  options.commands_max = 50'000;
  const CampaignResult<BlockPoolTarget> result =
      run_campaign(*reference, *optimized, options, [](const CampaignProgress&) { return true; });
  EXPECT_EQ(result.progress.commands, options.commands_max);
  if (result.failure) {
    ADD_FAILURE() << result.failure->divergence.oracle << ": " << result.failure->divergence.message
                  << "\n"
                  << print(to_document(result.failure->scenario));
  }
  expect_all_reached(result.reach);
}

TEST(BlockPoolLockstepProp, AStateThatIsSeldomObservedShowsTheSameInTheEnd) {
  const auto reference = ReferenceSide::make();
  const auto optimized = OptimizedSide::make();
  CampaignOptions options;
  options.commands_max = 50'000;
  options.lockstep.state_every = 16;
  const CampaignResult<BlockPoolTarget> result =
      run_campaign(*reference, *optimized, options, [](const CampaignProgress&) { return true; });
  EXPECT_FALSE(result.failure);
  EXPECT_GT(result.reach.count_of(block_pool::Reached::kEvictionOnAllocation), 0u);
}

}  // namespace
}  // namespace kvfence
