#pragma once

/// The kv_cache target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/rules.h"
#include "properties/kv_cache/goals.h"

namespace kvfence {

template <>
struct Checks<KVCacheTarget> : RequestSymbols<kv_cache::World> {
  using Invariants = kv_cache::Invariants;
  using Reach = kv_cache::Reach;
  using Generator = kv_cache::Generator;

  static Invariants make_invariants(const kv_cache::Config& config) {
    const Parsed<KVCacheManagerConfig> parsed = make_kv_cache_manager_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(kv_cache::kInvariants, &kv_cache::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(kv_cache::kReachGoals, &kv_cache::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(KVCacheTarget)

}  // namespace kvfence
