#pragma once

/// The checks of a target of one component, from what its room provides.

#include <memory>
#include <type_traits>
#include <utility>

#include "properties/core/checks.h"
#include "properties/core/goals.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/mixed_draws.h"

namespace kvfence {

/// T: the declarations of the target (contract/core/target.h). The others: functions of its room
/// (properties/targets/rooms.h).
template <class T, auto generators, auto rules, auto goals>
const Checks& checks_of() {
  static const Checks kChecks = [] {
    Checks checks{};
    checks.target = &T::description();
    checks.draw_config =
        mixed_draws(*checks.target,
                    [](Choices& choices) { return Config(generators().draw_config(choices)); }, {});
    checks.make_generator = [](const Setup& setup, Choices& choices) -> std::unique_ptr<Generator> {
      return generators().make(setup.config().as<typename T::Config>(), choices);
    };
    checks.add_rules(rules().rows);
    checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
      if constexpr (std::is_invocable_v<decltype(rules().make), const Setup&>) {
        return rules().make(setup);
      } else {
        return rules().make(setup.as<typename T::Setup>());
      }
    };
    GoalSuite suite = goals();
    checks.goals = std::move(suite.goals);
    for (const Goal& refusal : refusal_goals(*checks.target)) checks.goals.push_back(refusal);
    checks.make_counts_of = suite.make_counts;
    return checks;
  }();
  return kChecks;
}

}  // namespace kvfence
