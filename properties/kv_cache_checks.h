#pragma once

/// The kv_cache target's side of properties/checks.h.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/check.h"
#include "contract/kv_cache_target.h"
#include "properties/checks.h"
#include "properties/kv_cache_generator.h"
#include "properties/kv_cache_invariants.h"
#include "properties/kv_cache_reach.h"

namespace kvfence {

template <>
struct Checks<KVCacheTarget> {
  using Invariants = kv_cache::Invariants;
  using Reach = kv_cache::Reach;
  using Generator = kv_cache::Generator;

  static Invariants make_invariants(const kv_cache::Config& config) {
    const Parsed<KVCacheManagerConfig> parsed = make_kv_cache_manager_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const kv_cache::Invariant& invariant : kv_cache::kInvariants) {
      rows.emplace_back(invariant.name, invariant.rule);
    }
    return rows;
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const kv_cache::ReachGoal& goal : kv_cache::kReachGoals) {
      rows.emplace_back(goal.name, goal.doc);
    }
    return rows;
  }

  static std::optional<std::string> resolve(const kv_cache::World& world, std::string_view symbol) {
    return world.requests().resolve(symbol);
  }

  static std::optional<std::string> symbol_of(const kv_cache::World& world,
                                              std::string_view bytes) {
    return world.requests().symbol_of(bytes);
  }
};

}  // namespace kvfence
