#pragma once

/// Makes a failing scenario as small and plain as possible while it still fails: fewer commands
/// first, then plainer arguments and configuration, then names and numbers changed in several
/// commands at once, which no change of a single argument can achieve.
///
/// Knows members, types and domains from the declarations alone. Deterministic. Terminates because
/// every accepted step is smaller in one total order (ScenarioSize in shrink.cpp).

#include <cstddef>
#include <functional>
#include <optional>

#include "contract/core/scenario.h"

namespace kvfence {

struct ShrinkOptions {
  std::size_t tries_max = 20'000;           ///< runs of the predicate
  std::optional<std::size_t> failing_step;  ///< index of the command that failed, where known
  /// Called after every try.
  std::function<void(std::size_t tries, std::size_t num_commands)> progress;
};

struct ShrinkResult {
  Scenario scenario;
  std::size_t tries = 0;
  std::size_t accepted = 0;
  bool reproduced = false;   ///< false: it did not fail when run again; the scenario is unchanged
  bool at_fixpoint = false;  ///< false: the tries ran out first
};

/// Whether a scenario, run from its start, fails in the same way.
using StillFails = std::function<bool(const Scenario& scenario, const Setup& setup)>;

/// The smallest scenario found for which still_fails holds, without expectations.
///
/// Cost: at most options.tries_max runs; a scenario is printed once for each.
ShrinkResult shrink(Scenario failing, const StillFails& still_fails,
                    const ShrinkOptions& options = {});

}  // namespace kvfence
