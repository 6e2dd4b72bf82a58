#pragma once

/// Makes a failing scenario as small and plain as it gets while it still fails: fewer commands
/// first, then plainer arguments and configuration, then names and numbers changed in several
/// commands at once, which no change of a single argument can reach.
///
/// Generic over the target: it knows members, types and domains from the declarations alone.
/// Deterministic. It ends because every accepted step is smaller in one total order (ScenarioSize
/// in shrink.cpp).

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "contract/core/scenario.h"
#include "properties/core/any_scenario.h"

namespace kvfence {

struct ShrinkOptions {
  std::size_t tries_max = 20'000;           ///< runs of the predicate
  std::optional<std::size_t> failing_step;  ///< index of the command that failed, where known
  /// Only where an expectation is what fails: a step keeps or loses its expectation as a whole.
  bool keep_expectations = false;
  /// Told after every try.
  std::function<void(std::size_t tries, std::size_t num_commands)> progress;
};

template <class Target>
struct ShrinkResult {
  Scenario<Target> scenario;
  std::size_t tries = 0;
  std::size_t accepted = 0;
  bool reproduced = false;   ///< false: it did not fail when run again; the scenario is as given
  bool at_fixpoint = false;  ///< false: the tries ran out first
};

/// The same of a scenario whose target is not known.
struct AnyShrinkResult {
  std::unique_ptr<AnyScenario> scenario;
  std::size_t tries = 0;
  std::size_t accepted = 0;
  bool reproduced = false;
  bool at_fixpoint = false;
};

/// still_fails gets scenarios made by clone() of the one given.
AnyShrinkResult shrink_any(std::unique_ptr<AnyScenario> failing,
                           const std::function<bool(const AnyScenario&)>& still_fails,
                           const ShrinkOptions& options);

/// The smallest scenario found for which still_fails(const Scenario<Target>&) holds; the predicate
/// has to run it from the start, and should ask for the same kind of failure.
///
/// Cost: at most options.tries_max runs; a scenario is printed once for each.
template <class Target>
ShrinkResult<Target> shrink(
    Scenario<Target> failing,
    const std::type_identity_t<std::function<bool(const Scenario<Target>&)>>& still_fails,
    const ShrinkOptions& options = {}) {
  using Known = ScenarioOf<Target>;
  AnyShrinkResult result = shrink_any(
      std::make_unique<Known>(std::move(failing)),
      [&](const AnyScenario& tried) {
        return still_fails(static_cast<const Known&>(tried).scenario);
      },
      options);
  return {std::move(static_cast<Known&>(*result.scenario).scenario), result.tries, result.accepted,
          result.reproduced, result.at_fixpoint};
}

}  // namespace kvfence
