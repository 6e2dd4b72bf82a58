#pragma once

/// The Checks of a target from typed code: the seam between what is compiled once and what knows
/// the structs of one target.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "contract/core/target.h"
#include "properties/core/checks.h"

namespace kvfence {
namespace detail {

/// What typed code looks at: the observation itself, or a struct that is all of it.
template <class T>
const auto& typed_observation(const Observation& observation) {
  if constexpr (requires { typename T::Observation; }) {
    return observation.numbers.as<typename T::Observation>();
  } else {
    return observation;
  }
}

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
  explicit RulesOf(Typed typed) : typed_(std::move(typed)) {}
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step) override {
    return typed_.check(command.as<typename T::Command>(), typed_observation<T>(observation),
                        typed_world<typename T::World>(world), step);
  }

 private:
  Typed typed_;
};

template <class T, class Typed>
class GoalCountsOf final : public GoalCounts {
 public:
  void start([[maybe_unused]] const Setup& setup) override {
    if constexpr (requires { typed_.start(setup.config().as<typename T::Config>()); }) {
      typed_.start(setup.config().as<typename T::Config>());
    }
  }
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world) override {
    typed_.count(command.as<typename T::Command>(), typed_observation<T>(before),
                 typed_observation<T>(after), typed_world<typename T::World>(world));
  }
  std::uint64_t count_of(std::size_t goal) const override { return typed_.goal(goal).count; }

 private:
  Typed typed_;
};

}  // namespace detail

/// T: the declarations of the target (contract/core/target.h). Parts has
///   Generator  (config, choices); static draw_config(choices); next(choices, observation, world)
///   Rules      check(command, observation, world, step); kRules: each with name and rule; and
///              static Rules make_rules(config, setup). Without kRules there are none.
///   Goals      count(command, before, after, world), and start(config) where goals depend on it;
///              kGoals: each with name, doc, at_least, needs_state
template <class T, class Parts>
Checks checks_of() {
  Checks checks{};
  checks.target = &T::description();
  checks.make_rules = [](const Setup&) { return std::unique_ptr<RuleChecker>(); };
  if constexpr (requires { Parts::kRules; }) {
    for (const auto& rule : Parts::kRules) checks.rules.emplace_back(rule.name, rule.rule);
    checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
      return std::make_unique<detail::RulesOf<T, typename Parts::Rules>>(Parts::make_rules(
          setup.config().as<typename T::Config>(), setup.as<typename T::Setup>()));
    };
  }
  for (const auto& goal : Parts::kGoals) {
    checks.goals.push_back({goal.name, goal.doc, goal.at_least, goal.needs_state});
  }
  checks.draw_config = [](Choices& choices) {
    return Config(Parts::Generator::draw_config(choices));
  };
  checks.make_generator = [](const Setup& setup, Choices& choices) -> std::unique_ptr<Generator> {
    return std::make_unique<detail::GeneratorOf<T, typename Parts::Generator>>(setup, choices);
  };
  checks.make_goal_counts = []() -> std::unique_ptr<GoalCounts> {
    return std::make_unique<detail::GoalCountsOf<T, typename Parts::Goals>>();
  };
  return checks;
}

}  // namespace kvfence
