#pragma once

/// The synchronous_connector target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/connectors/synchronous/synchronous_connector_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/connectors/synchronous/generator.h"
#include "properties/connectors/synchronous/rules.h"
#include "properties/connectors/synchronous/goals.h"

namespace kvfence {

template <>
struct Checks<SynchronousConnectorTarget> : RequestSymbols<synchronous_connector::World> {
  using Invariants = synchronous_connector::Invariants;
  using Reach = synchronous_connector::Reach;
  using Generator = synchronous_connector::Generator;

  static Invariants make_invariants(const synchronous_connector::Config& config) {
    const Parsed<SynchronousConnectorSetup> parsed = make_synchronous_connector_setup(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(synchronous_connector::kInvariants,
                           &synchronous_connector::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(synchronous_connector::kReachGoals,
                           &synchronous_connector::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(SynchronousConnectorTarget)

}  // namespace kvfence
