#pragma once

/// The multi_connector target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/connectors/multi/multi_connector_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/connectors/multi/generator.h"
#include "properties/connectors/multi/rules.h"
#include "properties/connectors/multi/goals.h"

namespace kvfence {

template <>
struct Checks<MultiConnectorTarget> : NoSymbols<multi_connector::World> {
  using Invariants = multi_connector::Invariants;
  using Reach = multi_connector::Reach;
  using Generator = multi_connector::Generator;

  static Invariants make_invariants(const multi_connector::Config& config) {
    return Invariants(config);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(multi_connector::kInvariants, &multi_connector::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(multi_connector::kReachGoals, &multi_connector::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(MultiConnectorTarget)

}  // namespace kvfence
