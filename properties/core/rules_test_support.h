#pragma once

/// What the tests of rules share, for the table of any target.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "properties/core/divergence.h"
#include "properties/core/typed_checks.h"

namespace kvfence {

/// Expects that the rule of this id was found broken in that member of the observation, with two
/// sides that differ.
template <class Invariants>
void expect_broken(const Invariants& invariants, const std::optional<Divergence>& found,
                   std::string_view id, std::string_view field) {
  ASSERT_TRUE(found) << id << " saw nothing";
  const auto rule = std::find_if(invariants.begin(), invariants.end(),
                                 [&](const auto& invariant) { return invariant.id == id; });
  ASSERT_NE(rule, invariants.end());
  EXPECT_EQ(found->oracle, rule->name);
  EXPECT_EQ(found->message, rule->rule);
  EXPECT_EQ(found->field, field);
  EXPECT_NE(found->expected, found->actual);
}

/// Expects that the ids are the prefix and 1, 2, 3, ..., that names are unique, and each has a
/// rule.
template <class Invariants>
void expect_numbered_and_named_once(const Invariants& invariants, const std::string& prefix) {
  std::set<std::string_view> names;
  for (std::size_t index = 0; index < invariants.size(); ++index) {
    EXPECT_EQ(invariants[index].id, prefix + std::to_string(index + 1));
    EXPECT_TRUE(names.insert(invariants[index].name).second) << invariants[index].name;
    EXPECT_FALSE(invariants[index].rule.empty()) << invariants[index].name;
  }
}
template <class Invariants>
void expect_numbered_and_named_once(const Invariants& invariants, char letter) {
  expect_numbered_and_named_once(invariants, std::string(1, letter));
}

/// The rules of target T over a run that a test writes by hand.
template <class T>
class WatchedRun {
 public:
  using Command = typename T::Command;
  using Observation = typename T::Observation;
  using World = typename T::World;
  using MakeRules = std::function<std::unique_ptr<RulesFor<T>>()>;

  explicit WatchedRun(MakeRules make_rules) : make_rules_(std::move(make_rules)) {}

  /// The verdict on an answer; world: has taken the command in. The run does not change.
  std::optional<Divergence> verdict(const Command& command, const Observation& shown,
                                    const World& world) const {
    const auto rules = make_rules_();
    const Observation* before = nullptr;
    for (const Step& step : steps_) {
      rules->check(step.command, before, step.shown, step.world);
      before = &step.shown;
    }
    return rules->check(command, before, shown, world);
  }

  /// Continues after a right answer.
  void pass(const Command& command, const Observation& shown, const World& world) {
    const auto found = verdict(command, shown, world);
    if (found) {
      ADD_FAILURE() << "step " << steps_.size() << ": " << found->oracle << ": " << found->message
                    << "\n  " << found->field << ": expected " << found->expected << ", actual "
                    << found->actual;
    }
    steps_.push_back({command, shown, world});
  }

 private:
  struct Step {
    Command command;
    Observation shown;
    World world;
  };

  MakeRules make_rules_;
  std::vector<Step> steps_;
};

}  // namespace kvfence
