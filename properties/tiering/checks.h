#pragma once

/// The tiering target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/tiering/tiering_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/tiering/generator.h"
#include "properties/tiering/rules.h"
#include "properties/tiering/goals.h"

namespace kvfence {

template <>
struct Checks<TieringTarget> : NoSymbols<tiering::World> {
  using Invariants = tiering::Invariants;
  using Reach = tiering::Reach;
  using Generator = tiering::Generator;

  static Invariants make_invariants(const tiering::Config& config) {
    const Parsed<OffloadingManagerConfig> parsed = make_tiering_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed, config.num_tiers, config.file_tiers);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(tiering::kInvariants, &tiering::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(tiering::kReachGoals, &tiering::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(TieringTarget)

}  // namespace kvfence
