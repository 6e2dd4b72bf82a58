#pragma once

/// The disaggregated target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/connectors/disaggregated/generator.h"
#include "properties/connectors/disaggregated/rules.h"
#include "properties/connectors/disaggregated/goals.h"

namespace kvfence {

template <>
struct Checks<DisaggregatedTarget> : RequestSymbols<disaggregated::World> {
  using Invariants = disaggregated::Invariants;
  using Reach = disaggregated::Reach;
  using Generator = disaggregated::Generator;

  static Invariants make_invariants(const disaggregated::Config& config) {
    const Parsed<DisaggregatedSetup> parsed = make_disaggregated_setup(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed, config.transport_may_fail);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(disaggregated::kInvariants, &disaggregated::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(disaggregated::kReachGoals, &disaggregated::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(DisaggregatedTarget)

}  // namespace kvfence
