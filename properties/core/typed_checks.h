#pragma once

/// The Checks of a target from typed code: the seam between what is compiled once and what knows
/// the structs of one target.

#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/core/goals.h"

namespace kvfence {
namespace detail {

template <class T, class Typed>
class GeneratorOf final : public Generator {
 public:
  GeneratorOf(const Setup& setup, Choices& choices)
      : typed_(setup.config().as<typename T::Config>(), choices) {}
  Command next(Choices& choices, const Observation& now, const World& world) override {
    Command command;
    command.reuse<typename T::Command>() =
        typed_.next(choices, typed_observation<T>(now), typed_world<typename T::World>(world));
    return command;
  }

 private:
  Typed typed_;
};

template <class T, class Typed>
class RulesOf final : public RuleChecker {
 public:
  explicit RulesOf(const Setup& setup) : typed_(make(setup)) {}
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step) override {
    const auto& typed_command = command.as<typename T::Command>();
    const auto& shown = typed_observation<T>(observation);
    const auto& typed_world_of_it = typed_world<typename T::World>(world);
    const auto* const shown_before = before ? &typed_observation<T>(*before) : nullptr;
    if constexpr (requires {
                    typed_.check(typed_command, shown_before, shown, typed_world_of_it, step);
                  }) {
      return typed_.check(typed_command, shown_before, shown, typed_world_of_it, step);
    } else {
      return typed_.check(typed_command, shown, typed_world_of_it, step);
    }
  }

 private:
  static Typed make(const Setup& setup) {
    const auto& typed = setup.as<typename T::Setup>();
    if constexpr (std::is_constructible_v<Typed, decltype(typed)>) {
      return Typed(typed);
    } else {
      return Typed(setup.config().as<typename T::Config>(), typed);
    }
  }

  Typed typed_;
};

}  // namespace detail

/// T: the declarations of the target (contract/core/target.h).
/// Generator: (config, choices); static draw_config(choices); next(choices, observation, world)
/// Rules: (setup), or (config, setup); check(command, observation, world, step), with the
/// observation before it behind the command where they want it; kRules, each with name and rule.
/// void: the target has none.
template <class T, class Generator, class Rules>
Checks checks_of(GoalSuite goals) {
  Checks checks{};
  checks.target = &T::description();
  checks.draw_config = [](Choices& choices) { return Config(Generator::draw_config(choices)); };
  checks.make_generator = [](const Setup& setup,
                             Choices& choices) -> std::unique_ptr<kvfence::Generator> {
    return std::make_unique<detail::GeneratorOf<T, Generator>>(setup, choices);
  };
  if constexpr (std::is_void_v<Rules>) {
    checks.make_rules = [](const Setup&) { return std::unique_ptr<RuleChecker>(); };
  } else {
    for (const auto& rule : Rules::kRules) checks.rules.emplace_back(rule.name, rule.rule);
    checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
      return std::make_unique<detail::RulesOf<T, Rules>>(setup);
    };
  }
  checks.goals = std::move(goals.goals);
  for (const Goal& refusal : refusal_goals(*checks.target)) checks.goals.push_back(refusal);
  checks.make_counts_of = goals.make_counts;
  return checks;
}

}  // namespace kvfence
