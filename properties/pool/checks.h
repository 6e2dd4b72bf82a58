#pragma once

/// The block_pool target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/pool/block_pool_target.h"
#include "contract/core/check.h"
#include "properties/pool/generator.h"
#include "properties/pool/rules.h"
#include "properties/pool/goals.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"

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
