// Goal: an implementation and its witness are one as long as they agree, and the first difference
// between them is reported; one that is not needed is not asked. Method: engines of which one
// copies bytes and one symbols; then one of them with a planted bug, and one that dies.

#include "properties/core/confirmed_implementation.h"

#include <memory>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "properties/core/campaign_test_support.h"
#include "properties/engine/checks.h"
#include "scenarios/targets/targets.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCommands = 20'000;

bool always(const Setup&) { return true; }
bool never(const Setup&) { return false; }

CampaignResult campaign(Implementation& actual) {
  const auto reference = engine_sides().make_reference();
  CampaignOptions options;
  options.commands_max = kCommands;
  return run_campaign(checks_of(engine::Assembly::kOffloadingOnDevice), *reference, actual, options,
                      [](const CampaignProgress&) { return true; });
}

/// Dies of its first command.
class Dying final : public Implementation {
 public:
  std::string name() const override { return "dying"; }
  std::optional<ImplementationFailure> reset(const Setup&) override { return std::nullopt; }
  std::optional<ImplementationFailure> apply(const Command&, const World&, Observe,
                                             Observation&) override {
    return ImplementationFailure{"gone"};
  }
};

TEST(ConfirmedImplementation, ThreeEnginesAgree) {
  // The optimized one has a witness, and the reference is another.
  ConfirmedImplementation actual(engine_sides().make_optimized(), engine_sides().make_reference(),
                                 &always);
  EXPECT_EQ(actual.name(), "optimized");

  const auto result = campaign(actual);

  EXPECT_FALSE(result.failure) << result.failure->divergence.message;
  EXPECT_EQ(result.progress.commands, kCommands);
}

TEST(ConfirmedImplementation, ADifferenceIsAFailureThatSaysWhereItIs) {
  ConfirmedImplementation actual(engine_sides().make_planted("store_ignores_compute"),
                                 engine_sides().make_reference(), &always);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  const Divergence& found = result.failure->divergence;
  EXPECT_EQ(found.oracle, "implementation");
  EXPECT_EQ(found.message.find("optimized with store_ignores_compute: beside it reference has "),
            0U)
      << found.message;
}

TEST(ConfirmedImplementation, AWitnessThatDiesIsNamed) {
  ConfirmedImplementation actual(engine_sides().make_optimized(), std::make_unique<Dying>(),
                                 &always);

  const auto result = campaign(actual);

  ASSERT_TRUE(result.failure);
  EXPECT_EQ(result.failure->divergence.message, "optimized: dying beside it: gone");
}

TEST(ConfirmedImplementation, AWitnessThatIsNotNeededIsNotAsked) {
  ConfirmedImplementation actual(engine_sides().make_optimized(), std::make_unique<Dying>(),
                                 &never);

  const auto result = campaign(actual);

  EXPECT_FALSE(result.failure) << result.failure->divergence.message;
  EXPECT_EQ(result.progress.commands, kCommands);
}

}  // namespace
}  // namespace kvfence
