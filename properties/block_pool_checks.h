#pragma once

/// The block_pool target's side of properties/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/block_pool_target.h"
#include "contract/check.h"
#include "properties/block_pool_generator.h"
#include "properties/block_pool_invariants.h"
#include "properties/block_pool_reach.h"
#include "properties/checks.h"
#include "properties/compiled_once.h"

namespace kvfence {

template <>
struct Checks<BlockPoolTarget> : RequestSymbols<block_pool::World> {
  using Invariants = block_pool::Invariants;
  using Reach = block_pool::Reach;
  using Generator = block_pool::Generator;

  static Invariants make_invariants(const block_pool::Config& config) {
    const Parsed<BlockPoolConfig> parsed = make_block_pool_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(block_pool::kInvariants, &block_pool::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(block_pool::kReachGoals, &block_pool::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(BlockPoolTarget)

}  // namespace kvfence
