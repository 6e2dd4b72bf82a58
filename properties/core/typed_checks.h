#pragma once

/// The Checks of a target from typed code: the seam between what is compiled once and what knows
/// the structs of one target.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/core/goals.h"
#include "properties/draws/mixed_draws.h"

namespace kvfence {

/// Draws the commands of one episode of target T.
template <class T>
class GeneratorFor {
 public:
  virtual ~GeneratorFor() = default;
  /// The next command, given what an implementation showed after the last one and what the world
  /// has taken in. The caller runs every command that is drawn.
  virtual typename T::Command next(Choices& choices, const typename T::Observation& now,
                                   const typename T::World& world) = 0;
  /// The next command of a tail; nothing: there is nothing left (Generator::next_of_tail).
  virtual std::optional<typename T::Command> next_of_tail(const typename T::Observation& now,
                                                          const typename T::World& world) = 0;
};

/// Watches one implementation of target T.
template <class T>
class RulesFor : public SomeRules {
 public:
  virtual ~RulesFor() = default;
  /// Holds one observation against every rule; the first that is broken, or nothing. Called after
  /// every command of a run, with what was shown before it, null for the first one, and a world
  /// that has taken it in; nothing follows a divergence.
  virtual std::optional<Divergence> check(const typename T::Command& command,
                                          const typename T::Observation* before,
                                          const typename T::Observation& observation,
                                          const typename T::World& world, std::size_t step) = 0;
};

namespace detail {

template <class T>
class ErasedGenerator final : public Generator {
 public:
  explicit ErasedGenerator(std::unique_ptr<GeneratorFor<T>> typed) : typed_(std::move(typed)) {}
  Command next(Choices& choices, const Observation& now, const World& world) override {
    Command command;
    command.reuse<typename T::Command>() =
        typed_->next(choices, typed_observation<T>(now), typed_world<typename T::World>(world));
    return command;
  }
  std::optional<Command> next_of_tail(const Observation& now, const World& world) override {
    auto typed =
        typed_->next_of_tail(typed_observation<T>(now), typed_world<typename T::World>(world));
    if (!typed) return std::nullopt;
    Command command;
    command.reuse<typename T::Command>() = *std::move(typed);
    return command;
  }

 private:
  std::unique_ptr<GeneratorFor<T>> typed_;
};

template <class T>
class ErasedRules final : public RuleChecker {
 public:
  explicit ErasedRules(std::unique_ptr<RulesFor<T>> typed) : typed_(std::move(typed)) {}
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step) override {
    return typed_->judged(typed_->check(
        command.as<typename T::Command>(), before ? &typed_observation<T>(*before) : nullptr,
        typed_observation<T>(observation), typed_world<typename T::World>(world), step));
  }
  void leave_out(std::vector<std::string> rules) override { typed_->leave_out(std::move(rules)); }

 private:
  std::unique_ptr<RulesFor<T>> typed_;
};

}  // namespace detail

/// T: the declarations of the target (contract/core/target.h).
/// make_rules: of the typed setup, or of the configuration and that.
template <class T, auto draw_config, auto make_generator, auto make_rules>
Checks checks_of(std::span<const Invariant> rules, GoalSuite goals,
                 std::vector<NeverTogether> never_together = {}) {
  Checks checks{};
  checks.target = &T::description();
  checks.draw_config = mixed_draws(
      *checks.target, [](Choices& choices) { return Config(draw_config(choices)); },
      never_together);
  checks.never_together = std::move(never_together);
  checks.make_generator = [](const Setup& setup, Choices& choices) -> std::unique_ptr<Generator> {
    return std::make_unique<detail::ErasedGenerator<T>>(
        make_generator(setup.config().as<typename T::Config>(), choices));
  };
  for (const Invariant& rule : rules) {
    checks.rules.push_back({std::string(rule.name), std::string(rule.rule), rule.needs});
  }
  checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
    const auto& typed = setup.as<typename T::Setup>();
    if constexpr (std::is_invocable_v<decltype(make_rules), decltype(typed)>) {
      return std::make_unique<detail::ErasedRules<T>>(make_rules(typed));
    } else {
      return std::make_unique<detail::ErasedRules<T>>(
          make_rules(setup.config().as<typename T::Config>(), typed));
    }
  };
  checks.goals = std::move(goals.goals);
  for (const Goal& refusal : refusal_goals(*checks.target)) checks.goals.push_back(refusal);
  checks.make_counts_of = goals.make_counts;
  return checks;
}

}  // namespace kvfence
