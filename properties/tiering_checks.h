#pragma once

/// The tiering target's side of properties/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/check.h"
#include "contract/tiering_target.h"
#include "properties/checks.h"
#include "properties/compiled_once.h"
#include "properties/tiering_generator.h"
#include "properties/tiering_invariants.h"
#include "properties/tiering_reach.h"

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
