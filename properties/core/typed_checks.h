#pragma once

/// The Checks of a target from typed code: the seam between code that is compiled once and code
/// that knows the structs of one target.

#include <cstddef>
#include <initializer_list>
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

/// A generator of target T.
template <class T>
class GeneratorFor : public Generator {
 public:
  virtual typename T::Command next(Choices& choices, const typename T::Observation& now,
                                   const typename T::World& world) = 0;
  virtual std::optional<typename T::Command> next_of_tail(const typename T::Observation& now,
                                                          const typename T::World& world) = 0;

  Command next_command(Choices& choices, const Observation& now, const World& world) final {
    return erased(
        next(choices, detail::typed_observation<T>(now), typed_world<typename T::World>(world)));
  }
  std::optional<Command> next_command_of_tail(const Observation& now, const World& world) final {
    auto typed =
        next_of_tail(detail::typed_observation<T>(now), typed_world<typename T::World>(world));
    if (!typed) return std::nullopt;
    return erased(*std::move(typed));
  }

 protected:
  /// The last commands of a tail, one per call; then nothing, then the first one again.
  static std::optional<typename T::Command> next_of(std::initializer_list<typename T::Command> last,
                                                    std::size_t& num_given) {
    if (num_given < last.size()) return last.begin()[num_given++];
    num_given = 0;
    return std::nullopt;
  }

 private:
  static Command erased(typename T::Command typed) {
    Command command;
    command.reuse<typename T::Command>() = std::move(typed);
    return command;
  }
};

/// Rules of target T.
template <class T>
class RulesFor : public RuleChecker {
 public:
  virtual std::optional<Divergence> check(const typename T::Command& command,
                                          const typename T::Observation* before,
                                          const typename T::Observation& observation,
                                          const typename T::World& world) = 0;

  std::optional<Divergence> verdict(const Command& command, const Observation* before,
                                    const Observation& observation, const World& world) final {
    return judged(check(command.as<typename T::Command>(),
                        before ? &detail::typed_observation<T>(*before) : nullptr,
                        detail::typed_observation<T>(observation),
                        typed_world<typename T::World>(world)));
  }
};

/// T: the declarations of the target (contract/core/target.h).
/// make_rules: takes the typed setup, or the configuration and the typed setup.
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
    return make_generator(setup.config().as<typename T::Config>(), choices);
  };
  for (const Invariant& rule : rules) {
    checks.rules.push_back({std::string(rule.name), std::string(rule.rule), rule.needs});
  }
  checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
    const auto& typed = setup.as<typename T::Setup>();
    if constexpr (std::is_invocable_v<decltype(make_rules), decltype(typed)>) {
      return make_rules(typed);
    } else {
      return make_rules(setup.config().as<typename T::Config>(), typed);
    }
  };
  checks.goals = std::move(goals.goals);
  for (const Goal& refusal : refusal_goals(*checks.target)) checks.goals.push_back(refusal);
  checks.make_counts_of = goals.make_counts;
  return checks;
}

}  // namespace kvfence
