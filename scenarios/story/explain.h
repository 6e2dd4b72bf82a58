#pragma once

/// Explains a scenario as text: after each command a picture of the target's state
/// (scenarios/story/explain_picture.h), and at a divergence both pictures with the difference
/// marked and the history of the blocks concerned.

#include <optional>
#include <string>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/divergence.h"
#include "properties/core/oracles.h"

namespace kvfence {

struct Explanation {
  std::string text;
  std::optional<Divergence> divergence;
};

/// Runs the scenario on both sides and reports what happened, up to the first divergence that these
/// oracles see.
///
/// Requires: a valid configuration; the checks of the scenario's target.
/// Cost:     linear in commands and in blocks; wide pools show the blocks that the scenario uses.
Explanation explain_scenario(const Scenario& scenario, const Checks& checks,
                             Implementation& expected, Implementation& actual,
                             const Oracles& oracles = {});

}  // namespace kvfence
