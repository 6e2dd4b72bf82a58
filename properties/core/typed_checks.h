#pragma once

/// What checks a target, in its types: the seam between code that is compiled once and code that
/// knows the structs of one target.

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "contract/core/target.h"
#include "properties/core/checks.h"
#include "properties/core/divergence.h"
#include "properties/core/goals.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// A generator of target T.
template <class T>
class GeneratorFor : public Generator {
 public:
  using Target = T;

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
  using Target = T;

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

/// How a room draws the configurations and commands of target T.
template <class T>
struct GeneratorSuite {
  typename T::Config (*draw_config)(Choices& choices);
  std::unique_ptr<GeneratorFor<T>> (*make)(const typename T::Config& config, Choices& choices);
};

template <class Made, class T = typename Made::Target>
GeneratorSuite<T> generator_suite(typename T::Config (*draw_config)(Choices& choices)) {
  return {draw_config,
          [](const auto& config, Choices& choices) -> std::unique_ptr<GeneratorFor<T>> {
            return std::make_unique<Made>(config, choices);
          }};
}

/// The rules of a room: what the command line and the documentation list, and what checks them.
/// From: the typed setup, or Setup where the rules need the configuration, too.
template <class T, class From = typename T::Setup>
struct RuleSuite {
  std::span<const Invariant> rows;
  std::unique_ptr<RulesFor<T>> (*make)(const From& from);
};

template <class Made, class From = typename Made::Target::Setup, class T = typename Made::Target>
RuleSuite<T, From> rule_suite(std::span<const Invariant> rows) {
  return {rows, [](const From& from) -> std::unique_ptr<RulesFor<T>> {
            return std::make_unique<Made>(from);
          }};
}

}  // namespace kvfence
