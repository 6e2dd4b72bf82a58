#pragma once

/// The connector target's side of properties/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/check.h"
#include "contract/connector_target.h"
#include "properties/checks.h"
#include "properties/compiled_once.h"
#include "properties/connector_generator.h"
#include "properties/connector_invariants.h"
#include "properties/connector_reach.h"

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
