#pragma once

/// The eviction target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/eviction/eviction_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/eviction/generator.h"
#include "properties/eviction/rules.h"
#include "properties/eviction/goals.h"

namespace kvfence {

template <>
struct Checks<EvictionTarget> : NoSymbols<eviction::World> {
  using Invariants = eviction::Invariants;
  using Reach = eviction::Reach;
  using Generator = eviction::Generator;

  static Invariants make_invariants(const eviction::Config& config) {
    const Parsed<CachePolicyConfig> parsed = make_cache_policy_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(eviction::kInvariants, &eviction::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(eviction::kReachGoals, &eviction::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(EvictionTarget)

}  // namespace kvfence
