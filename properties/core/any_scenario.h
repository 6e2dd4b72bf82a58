#pragma once

/// A scenario of any target, as commands with declared members: what a shrinker edits, and so what
/// is compiled once and not once a target.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "contract/core/declare.h"
#include "contract/core/scenario.h"

namespace kvfence {

/// Steps are counted from 0.
class AnyScenario {
 public:
  virtual ~AnyScenario() = default;
  virtual std::unique_ptr<AnyScenario> clone() const = 0;

  virtual std::size_t num_steps() const = 0;
  /// Erases [begin, end), as far as the list goes.
  virtual void erase_steps(std::size_t begin, std::size_t end) = 0;
  /// Which of the target's commands the step holds.
  virtual std::size_t kind(std::size_t step) const = 0;
  virtual bool same_command(std::size_t a, std::size_t b) const = 0;
  virtual bool has_expectation(std::size_t step) const = 0;
  virtual void drop_expectation(std::size_t step) = 0;

  /// Whether the target accepts the configuration.
  virtual bool is_valid() const = 0;
  virtual std::string text() const = 0;

  /// Holds until the scenario changes its steps; of a const scenario to look at only.
  virtual DeclaredObject config() const = 0;
  virtual DeclaredObject command(std::size_t step) const = 0;

 protected:
  AnyScenario() = default;
  AnyScenario(const AnyScenario&) = default;
  AnyScenario& operator=(const AnyScenario&) = default;
};

template <class Target>
class ScenarioOf final : public AnyScenario {
 public:
  explicit ScenarioOf(Scenario<Target> given) : scenario(std::move(given)) {}

  std::unique_ptr<AnyScenario> clone() const override {
    return std::make_unique<ScenarioOf>(*this);
  }
  std::size_t num_steps() const override { return scenario.steps.size(); }
  void erase_steps(std::size_t begin, std::size_t end) override {
    const auto at = [&](std::size_t step) {
      return scenario.steps.begin() +
             static_cast<std::ptrdiff_t>(std::min(step, scenario.steps.size()));
    };
    scenario.steps.erase(at(begin), at(end));
  }
  std::size_t kind(std::size_t step) const override { return scenario.steps[step].command.index(); }
  bool same_command(std::size_t a, std::size_t b) const override {
    return scenario.steps[a].command == scenario.steps[b].command;
  }
  bool has_expectation(std::size_t step) const override {
    return scenario.steps[step].expectation.has_value();
  }
  void drop_expectation(std::size_t step) override { scenario.steps[step].expectation.reset(); }

  bool is_valid() const override { return !Target::validate(scenario.config, {}, {}); }
  std::string text() const override { return print(to_document(scenario)); }

  DeclaredObject config() const override { return object_of(scenario.config); }
  DeclaredObject command(std::size_t step) const override {
    return std::visit([](const auto& alternative) { return object_of(alternative); },
                      scenario.steps[step].command);
  }

  Scenario<Target> scenario;
};

/// A scenario's numbers, lists and names, wherever they stand: what a change that several commands
/// have to make together is written with. In each, step counts from 1; 0 is the configuration. The
/// members of the configuration come first, then those of each command in order; behind a list of
/// declared structs each of their members. Where the scenario may change, what is visited may too.

void for_each_member(const AnyScenario& scenario,
                     const std::function<void(const MemberRef&, std::size_t step)>& visit);

/// Lists of numbers.
void for_each_list(
    const AnyScenario& scenario,
    const std::function<void(std::vector<std::uint32_t>& list, Domain, std::size_t step)>& visit);

/// Numbers of 32 bits, those in lists and their records included.
void for_each_number(
    const AnyScenario& scenario,
    const std::function<void(std::uint32_t& number, Domain, std::size_t step)>& visit);

/// Names of requests, those in lists included.
void for_each_request(const AnyScenario& scenario,
                      const std::function<void(std::string& name, std::size_t step)>& visit);

}  // namespace kvfence
