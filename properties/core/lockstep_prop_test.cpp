// The optimized side of every target answers every command as its reference does, and the
// invariants hold.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/core/line.h"
#include "contract/core/sanitized.h"
#include "contract/core/scenario.h"
#include "properties/core/campaign.h"
#include "properties/core/choices.h"
#include "properties/core/lockstep.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

constexpr std::size_t kCommandsMax = 200;

/// Commands in which a campaign reaches every goal; a sanitized one need not.
template <class Target>
constexpr std::size_t kCampaignCommands = 50'000;
/// Some of its goals belong to one kind of layout, and most of its configurations have others.
template <>
constexpr std::size_t kCampaignCommands<ConnectorTarget> = 150'000;
template <>
constexpr std::size_t kCampaignCommands<EngineTarget> = 300'000;

/// All goals, or those that are counted without the state in every observation.
template <class Reach>
void expect_reached(const Reach& reach, bool with_state) {
  if (kIsSanitized) return;
  for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
    const auto goal = reach.goal(index);
    if (goal.needs_state && !with_state) continue;
    EXPECT_TRUE(goal.reached()) << goal.name << " was reached " << goal.count << " times of "
                                << goal.at_least << " (with the cases of RC_PARAMS in ctest)";
  }
}

template <class Target>
class LockstepProp : public ::testing::Test {
 protected:
  /// A campaign in which nothing may go wrong.
  CampaignResult<Target> run_seeded(std::uint32_t state_every) {
    CampaignOptions options;
    options.commands_max = kIsSanitized ? 10'000 : kCampaignCommands<Target>;
    options.lockstep.state_every = state_every;
    CampaignResult<Target> result = run_campaign(*reference_, *optimized_, options,
                                                 [](const CampaignProgress&) { return true; });
    EXPECT_EQ(result.progress.commands, options.commands_max);
    if (result.failure) {
      const Divergence& divergence = result.failure->divergence;
      ADD_FAILURE() << divergence.oracle << ": " << divergence.message << "\n"
                    << print(to_document(result.failure->scenario));
    }
    return result;
  }

  std::unique_ptr<Implementation<Target>> reference_ = Implementations<Target>::make_reference();
  std::unique_ptr<Implementation<Target>> optimized_ = Implementations<Target>::make_optimized();
};

TYPED_TEST_SUITE(LockstepProp, EveryTarget, );

TYPED_TEST(LockstepProp, ReferenceAndOptimizedAgreeOnEveryEpisode) {
  Lockstep<TypeParam> lockstep(*this->reference_, *this->optimized_);
  std::size_t num_commands = 0;
  EXPECT_TRUE(holds("reference and optimized agree and the invariants hold", [&] {
    const std::vector<std::uint8_t> bytes = draw_episode_bytes(2000);
    Choices choices = Choices::from_bytes(bytes);
    Scenario<TypeParam> scenario;
    const std::optional<Divergence> divergence =
        run_episode(lockstep, choices, kCommandsMax, scenario);
    num_commands += lockstep.num_commands();
    if (divergence) {
      RC_LOG() << print(to_document(scenario));
      RC_FAIL(divergence->oracle + ": " + divergence->message + "\n" + divergence->field +
              "\n  expected " + divergence->expected + "\n  actual   " + divergence->actual);
    }
  }));
  this->RecordProperty("commands", std::to_string(num_commands));
  expect_reached(lockstep.reach(), /*with_state=*/true);
}

TYPED_TEST(LockstepProp, ASeededCampaignAgreesAndReachesEveryGoal) {
  expect_reached(this->run_seeded(1).reach, /*with_state=*/true);
}

TYPED_TEST(LockstepProp, AStateThatIsSeldomObservedShowsTheSameInTheEnd) {
  expect_reached(this->run_seeded(16).reach, /*with_state=*/false);
}

}  // namespace
}  // namespace kvfence
