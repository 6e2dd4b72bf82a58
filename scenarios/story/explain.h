#pragma once

/// The story of a scenario as text: after each command a picture of the blocks, and at a divergence
/// both pictures with the difference marked and the history of the blocks concerned. For targets
/// whose observation holds a pool (scenarios/story/pool_picture.h) or a policy's lists
/// (scenarios/story/lists_picture.h); explain.cpp instantiates it.

#include <string>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"

namespace kvfence {

struct Explanation {
  std::string text;
  bool diverged = false;
};

/// Runs the scenario on both sides and tells what happened, up to the first divergence.
///
/// Requires: a valid configuration.
/// Cost:     linear in commands and in blocks; wide pools show the blocks that the scenario uses.
template <class Target>
Explanation explain_scenario(const Scenario<Target>& scenario, Implementation<Target>& expected,
                             Implementation<Target>& actual);

}  // namespace kvfence
