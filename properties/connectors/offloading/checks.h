#pragma once

/// The connector target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/connectors/offloading/connector_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/connectors/offloading/generator.h"
#include "properties/connectors/offloading/rules.h"
#include "properties/connectors/offloading/goals.h"

namespace kvfence {

template <>
struct Checks<ConnectorTarget> : RequestSymbols<connector::World> {
  using Invariants = connector::Invariants;
  using Reach = connector::Reach;
  using Generator = connector::Generator;

  static Invariants make_invariants(const connector::Config& config) {
    const Parsed<ConnectorSetup> parsed = make_connector_setup(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed, config.transfers_may_fail);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(connector::kInvariants, &connector::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(connector::kReachGoals, &connector::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(ConnectorTarget)

}  // namespace kvfence
