#pragma once

/// The block_pool target's side of properties/checks.h.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/block_pool_target.h"
#include "contract/check.h"
#include "properties/block_pool_generator.h"
#include "properties/block_pool_invariants.h"
#include "properties/block_pool_reach.h"
#include "properties/checks.h"

namespace kvfence {

template <>
struct Checks<BlockPoolTarget> {
  using Invariants = block_pool::Invariants;
  using Reach = block_pool::Reach;
  using Generator = block_pool::Generator;

  static Invariants make_invariants(const block_pool::Config& config) {
    const Parsed<BlockPoolConfig> parsed = make_block_pool_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const block_pool::Invariant& invariant : block_pool::kInvariants) {
      rows.emplace_back(invariant.name, invariant.rule);
    }
    return rows;
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const block_pool::ReachGoal& goal : block_pool::kReachGoals) {
      rows.emplace_back(goal.name, goal.doc);
    }
    return rows;
  }

  static std::optional<std::string> resolve(const block_pool::World& world,
                                            std::string_view symbol) {
    return world.requests().resolve(symbol);
  }

  static std::optional<std::string> symbol_of(const block_pool::World& world,
                                              std::string_view bytes) {
    return world.requests().symbol_of(bytes);
  }
};

}  // namespace kvfence
