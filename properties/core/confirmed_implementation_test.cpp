// Goal: if an answer is in doubt, a witness decides whether the implementation contradicts itself;
// else it does not run. Method: engines with a planted bug, whose witness has the same bug or none,
// or fails.

#include "properties/core/confirmed_implementation.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCommands = 20'000;
constexpr std::string_view kBug = "store_ignores_compute";

bool always(const Setup&) { return true; }
bool never(const Setup&) { return false; }

std::unique_ptr<ReplayedImplementation> with_bug() {
  return std::make_unique<ReplayedImplementation>([] { return engine_sides().make_planted(kBug); });
}

CampaignResult campaign(Implementation& actual) {
  const auto reference = engine_sides().make_reference();
  CampaignOptions options;
  options.commands_max = kCommands;
  return run_campaign(checks_of(engine::Assembly::kOffloadingOnDevice), *reference, actual, options,
                      [](const CampaignProgress&) { return true; });
}

/// Fails at its first command.
class Failing final : public Implementation {
 public:
  std::string name() const override { return "dying"; }
  std::optional<ImplementationFailure> reset(const Setup&) override { return std::nullopt; }
  std::optional<ImplementationFailure> apply(const Command&, const World&, Observe,
                                             Observation&) override {
    return ImplementationFailure{"gone"};
  }
};

std::unique_ptr<Implementation> make_failing() { return std::make_unique<Failing>(); }

/// The difference between the reference and the buggy engine without a witness.
Divergence difference_without_witness() {
  const auto result = campaign(*with_bug());
  EXPECT_TRUE(result.failure);
  return result.failure ? result.failure->divergence : Divergence();
}

TEST(ConfirmedImplementation, AWitnessWithAnotherAnswerMakesItAFailureWithThePlace) {
  ConfirmedImplementation actual(with_bug(), engine_sides().make_reference, &always);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  const Divergence& found = result.failure->divergence;
  EXPECT_EQ(found.oracle, "implementation");
  EXPECT_EQ(found.message.find("optimized with store_ignores_compute: beside it reference has "),
            0U)
      << found.message;
  EXPECT_EQ(found.step, difference_without_witness().step);
}

TEST(ConfirmedImplementation, AWitnessWithTheSameAnswerLeavesTheDifference) {
  ConfirmedImplementation actual(
      with_bug(), [] { return engine_sides().make_planted(kBug); }, &always);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->divergence, difference_without_witness());
}

TEST(ConfirmedImplementation, ACopyIsInDoubtLikeItsOriginal) {
  ConfirmedImplementation original(with_bug(), engine_sides().make_reference, &always);
  const CampaignResult result = campaign(original);
  ASSERT_TRUE(result.failure);
  const Scenario& scenario = result.failure->scenario;
  const kvfence::Setup setup = prepared(*scenario.target, scenario.config);
  const auto world = scenario.target->make_world(setup);
  Observation shown;
  ASSERT_FALSE(original.reset(setup));
  for (const Step& step : scenario.steps) {
    world->apply(step.command);
    ASSERT_FALSE(original.apply(step.command, *world, Observe::kState, shown));
  }

  const auto copy = original.clone();

  const auto of_copy = copy->contradicted(shown);
  const auto of_original = original.contradicted(shown);
  ASSERT_TRUE(of_copy && of_original);
  EXPECT_EQ(of_copy->message, of_original->message);
}

TEST(ConfirmedImplementation, AWitnessThatFailsDecidesNothing) {
  ConfirmedImplementation actual(with_bug(), &make_failing, &always);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->divergence, difference_without_witness());
}

TEST(ConfirmedImplementation, AWitnessThatIsNotNeededDoesNotRun) {
  bool is_made = false;
  ConfirmedImplementation actual(
      with_bug(),
      [&is_made] {
        is_made = true;
        return make_failing();
      },
      &never);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->divergence, difference_without_witness());
  EXPECT_FALSE(is_made);
}

}  // namespace
}  // namespace kvfence
