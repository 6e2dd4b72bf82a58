#pragma once

/// The story of a block_pool scenario as text: after each command a picture of the blocks, and at a
/// divergence both pictures with the difference marked and the history of the blocks concerned.

#include <string>

#include "contract/block_pool_target.h"
#include "contract/implementation.h"
#include "contract/scenario.h"

namespace kvfence {

struct Explanation {
  std::string text;
  bool diverged = false;
};

/// Runs the scenario on both sides and tells what happened, up to the first divergence.
///
/// Requires: a valid configuration.
/// Cost:     linear in commands and in blocks; wide pools show the blocks that the scenario uses.
Explanation explain_scenario(const Scenario<BlockPoolTarget>& scenario,
                             Implementation<BlockPoolTarget>& expected,
                             Implementation<BlockPoolTarget>& actual);

}  // namespace kvfence
