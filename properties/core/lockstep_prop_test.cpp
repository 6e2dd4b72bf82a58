// The optimized side of every target, and of every assembly of target engine, answers every command
// as its reference does, and the rules hold.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/sanitized.h"
#include "contract/core/scenario.h"
#include "contract/engine/engine_config.h"
#include "properties/core/campaign.h"
#include "properties/core/campaign_test_support.h"
#include "properties/core/lockstep.h"
#include "properties/core/prop_test_support.h"
#include "properties/draws/choices.h"
#include "properties/engine/checks.h"

namespace kvfence {
namespace {

constexpr std::size_t kCommandsMax = 200;

/// Commands in which a campaign reaches every goal; a sanitized one need not. Some goals of the two
/// offloading assemblies need one kind of layout, which few configurations have.
std::size_t campaign_commands(const CheckedPart& part) {
  if (kIsSanitized) return 10'000;
  if (part.checks == &checks_of(engine::Assembly::kOffloading)) return 150'000;
  if (part.checks == &checks_of(engine::Assembly::kOffloadingOnDevice)) return 300'000;
  if (part.checks == &checks_of(engine::Assembly::kOnDevice)) return 200'000;
  return 120'000;
}

void expect_reached(const std::vector<GoalCount>& goals) {
  if (kIsSanitized) return;
  for (const GoalCount& each : goals) {
    EXPECT_TRUE(each.is_reached()) << each.goal.name << " was not reached";
  }
}

class LockstepProp : public ::testing::TestWithParam<const CheckedPart*> {
 protected:
  /// A campaign in which nothing may fail.
  CampaignResult run_seeded(std::uint64_t seed, std::uint32_t state_every,
                            std::size_t commands_max) {
    CampaignOptions options;
    options.seed = seed;
    options.commands_max = commands_max;
    options.lockstep.state_every = state_every;
    CampaignResult result = run_agreeing_campaign(*GetParam()->sides, *GetParam()->checks, options);
    EXPECT_EQ(result.progress.commands, options.commands_max);
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Every, LockstepProp, ::testing::ValuesIn(every_part()), name_of_part);

TEST_P(LockstepProp, ReferenceAndOptimizedAgreeOnEveryEpisode) {
  const Checks& checks = *GetParam()->checks;
  const auto reference = GetParam()->sides->make_reference();
  const auto optimized = GetParam()->sides->make_optimized();
  Lockstep lockstep(checks, *reference, *optimized);
  std::size_t num_commands = 0;
  EXPECT_TRUE(holds("reference and optimized agree and the rules hold", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(4000);
    Choices choices = Choices::from_bytes(bytes);
    Scenario scenario(*checks.target);
    const kvfence::Setup setup = prepared(*checks.target, checks.draw_config(choices));
    const std::optional<Divergence> divergence =
        run_episode(lockstep, setup, choices, kCommandsMax, scenario);
    num_commands += lockstep.num_commands();
    if (divergence) {
      RC_LOG() << print(to_document(scenario));
      RC_FAIL(divergence->oracle + ": " + divergence->message + "\n" + divergence->field +
              "\n  expected " + divergence->expected + "\n  actual   " + divergence->actual);
    }
  }));
  RecordProperty("commands", std::to_string(num_commands));
  EXPECT_GT(num_commands, kCommandsMax);
}

TEST_P(LockstepProp, ASeededCampaignAgreesAndReachesEveryGoal) {
  expect_reached(run_seeded(1, 1, campaign_commands(*GetParam())).goals);
}

TEST_P(LockstepProp, AStateThatIsSeldomObservedShowsTheSameInTheEnd) {
  run_seeded(2, 7, campaign_commands(*GetParam()) / 2);
}

}  // namespace
}  // namespace kvfence
