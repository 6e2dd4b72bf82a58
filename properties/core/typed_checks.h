#pragma once

/// What checks a target, in its types: the seam between code that is compiled once and code that
/// knows the structs of one target.

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "contract/core/target.h"
#include "properties/core/broken_rule.h"
#include "properties/core/checks.h"
#include "properties/core/difference.h"
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

/// Rules of target T. before(), shown() and world() are those of the command that is checked.
template <class T>
class RulesFor : public RuleChecker {
 public:
  using Target = T;
  using Command = typename T::Command;
  using Observation = typename T::Observation;
  using World = typename T::World;

  /// Like `verdict`, in types.
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& shown, const World& world) {
    try {
      check_inside(command, before, shown, world);
    } catch (BrokenRule& found) {
      if (!is_left_out(found.rule)) return divergence_of(std::move(found));
    }
    return std::nullopt;
  }
  /// The same inside another check, which a broken rule leaves, too.
  void check_inside(const Command& command, const Observation* before, const Observation& shown,
                    const World& world) {
    before_ = before;
    shown_ = &shown;
    world_ = &world;
    check_all(command);
  }

  std::optional<Divergence> verdict(const kvfence::Command& command,
                                    const kvfence::Observation* before,
                                    const kvfence::Observation& observation,
                                    const kvfence::World& world) final {
    return check(command.as<Command>(), before ? &detail::typed_observation<T>(*before) : nullptr,
                 detail::typed_observation<T>(observation), typed_world<World>(world));
  }

 protected:
  /// Checks every rule. A broken one leaves it (broken_rule.h).
  virtual void check_all(const Command& command) = 0;

  /// A part of check_all. If a rule that is switched off is broken, only the part ends.
  template <class Part>
  void judge(const Part& part) const {
    try {
      part();
    } catch (const BrokenRule& found) {
      if (!is_left_out(found.rule)) throw;
    }
  }

  /// What was shown before the command; null for the first one.
  const Observation* before() const { return before_; }
  const Observation& shown() const { return *shown_; }
  const World& world() const { return *world_; }

 private:
  /// The rule's name becomes the oracle, its text the message. Hashes of requests are shown as
  /// symbols.
  Divergence divergence_of(BrokenRule found) const {
    SymbolOf symbol_of;
    if constexpr (requires { world_->requests(); }) {
      symbol_of = [this](std::string_view bytes) { return world_->requests().symbol_of(bytes); };
    }
    auto& [field, expected, actual] = found.mismatch;
    Divergence divergence = detail::locate_difference(std::move(field), std::move(expected),
                                                      std::move(actual), symbol_of);
    divergence.oracle = found.rule.name;
    divergence.message = found.rule.rule;
    return divergence;
  }

  const Observation* before_ = nullptr;
  const Observation* shown_ = nullptr;
  const World* world_ = nullptr;
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
