#pragma once

/// The simple_offload target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/connectors/simple/simple_offload_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/connectors/simple/generator.h"
#include "properties/connectors/simple/rules.h"
#include "properties/connectors/simple/goals.h"

namespace kvfence {

template <>
struct Checks<SimpleOffloadTarget> : RequestSymbols<simple_offload::World> {
  using Invariants = simple_offload::Invariants;
  using Reach = simple_offload::Reach;
  using Generator = simple_offload::Generator;

  static Invariants make_invariants(const simple_offload::Config& config) {
    const Parsed<SimpleOffloadSetup> parsed = make_simple_offload_setup(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(simple_offload::kInvariants, &simple_offload::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(simple_offload::kReachGoals, &simple_offload::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(SimpleOffloadTarget)

}  // namespace kvfence
