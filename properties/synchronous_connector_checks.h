#pragma once

/// The synchronous_connector target's side of properties/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/check.h"
#include "contract/synchronous_connector_target.h"
#include "properties/checks.h"
#include "properties/compiled_once.h"
#include "properties/synchronous_connector_generator.h"
#include "properties/synchronous_connector_invariants.h"
#include "properties/synchronous_connector_reach.h"

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
