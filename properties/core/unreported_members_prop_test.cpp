// Rules on an implementation in a child process that does not report every member.
// Method: the reference as that child shows a value of one member from some commands ago. No rule
// may report anything, whatever the member holds; a rule with wrong `needs` does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/target.h"
#include "properties/core/campaign.h"
#include "properties/core/lockstep.h"
#include "properties/core/prop_test_support.h"

namespace kvfence {
namespace {

constexpr std::uint64_t kCommandsPerMember = 4'000;

/// A correct side except for one member, which it declares as unreported.
class Reticent final : public Implementation {
 public:
  Reticent(const CheckedPart& part, std::string_view hidden)
      : side_(part.sides->make_reference()), hidden_(hidden) {
    for (const std::string_view member : observation_names(part.sides->target())) {
      (member == hidden ? described_.unreported : described_.reported).emplace_back(member);
    }
  }

  std::string name() const override { return "reticent"; }
  std::optional<SelfDescription> described() const override { return described_; }
  std::optional<ImplementationFailure> reset(const kvfence::Setup& setup) override {
    world_ = setup.target().make_world(setup);
    shown_.assign(1, default_observation(setup.target()));
    return side_->reset(setup);
  }
  std::size_t window() const override { return 256; }
  std::optional<ImplementationFailure> submit(const kvfence::Command& command,
                                              Observe observe) override {
    constexpr std::size_t kCommandsAgo = 3;
    world_->apply(command);
    shown_.push_back(shown_.back());
    if (shown_.size() > kCommandsAgo + 1) shown_.pop_front();
    return side_->apply(command, *world_, observe, shown_.back());
  }
  std::optional<ImplementationFailure> collect(kvfence::Observation& observation) override {
    observation = shown_.back();
    const auto then = find_member(shown_.front().declared(), hidden_);
    const auto now = find_member(observation.declared(), hidden_);
    std::string expected;
    if (now && !now->assign(then->value(), expected)) now->reset();
    return std::nullopt;
  }
  std::optional<ImplementationFailure> apply(const kvfence::Command& command, const kvfence::World&,
                                             Observe observe,
                                             kvfence::Observation& observation) override {
    auto failure = submit(command, observe);
    return failure ? failure : collect(observation);
  }

 private:
  std::unique_ptr<Implementation> side_;
  std::string hidden_;
  SelfDescription described_;
  std::unique_ptr<kvfence::World> world_;
  std::deque<kvfence::Observation> shown_;
};

std::optional<Divergence> found_without(const CheckedPart& part, const Checks& checks,
                                        std::string_view hidden) {
  const auto reference = part.sides->make_reference();
  Reticent child(part, hidden);
  CampaignOptions options;
  options.commands_max = kCommandsPerMember;
  options.lockstep.oracles = {.lockstep = false, .expectation = false};
  const CampaignResult result = run_campaign(checks, *reference, child, options,
                                             [](const CampaignProgress&) { return true; });
  if (!result.failure) return std::nullopt;
  return result.failure->divergence;
}

class UnreportedMembersProp : public ::testing::TestWithParam<const CheckedPart*> {};
INSTANTIATE_TEST_SUITE_P(Every, UnreportedMembersProp, ::testing::ValuesIn(every_part()),
                         name_of_part);

TEST_P(UnreportedMembersProp, NoRuleJudgesByThem) {
  const CheckedPart& part = *GetParam();
  const Checks& checks = *part.checks;
  for (const std::string_view member : observation_names(part.sides->target())) {
    if (member == "error") continue;
    // Then no rule runs.
    if (checks.unjudged_without({std::string(member)}).size() == checks.rules.size()) continue;
    const auto found = found_without(part, checks, member);
    EXPECT_FALSE(found) << "without " << member << ": " << found->oracle << ", " << found->field
                        << ": expected " << found->expected << ", actual " << found->actual;
  }
}

TEST(UnreportedMembers, ARuleWithWrongNeedsReports) {
  const CheckedPart& pool = *find_part("block_pool");
  Checks checks = *pool.checks;
  for (CheckedRule& each : checks.rules) {
    if (each.name == "ref_cnt_counts_holders") each.needs = "blocks";
  }
  const auto found = found_without(pool, checks, "ref_cnts");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->oracle, "ref_cnt_counts_holders");
}

TEST(UnreportedMembers, NeedsAreMembers) {
  for (const CheckedPart* part : every_part()) {
    const auto names = observation_names(part->sides->target());
    for (const CheckedRule& each : part->checks->rules) {
      std::istringstream words{std::string(each.needs)};
      for (std::string word; words >> word;) {
        EXPECT_NE(std::ranges::find(names, word), names.end()) << each.name << " needs " << word;
      }
    }
  }
}

}  // namespace
}  // namespace kvfence
