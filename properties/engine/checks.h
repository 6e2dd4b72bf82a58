#pragma once

/// The engine target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/engine/generator.h"
#include "properties/engine/rules.h"
#include "properties/engine/goals.h"

namespace kvfence {

template <>
struct Checks<EngineTarget> : RequestSymbols<engine::World> {
  using Invariants = engine::Invariants;
  using Reach = engine::Reach;
  using Generator = engine::Generator;

  static Invariants make_invariants(const engine::Config& config) {
    const Parsed<EngineSetup> parsed = make_engine_setup(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(engine::kInvariants, &engine::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(engine::kReachGoals, &engine::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(EngineTarget)

}  // namespace kvfence
