#pragma once

/// The offload target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/offload/offload_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/offload/generator.h"
#include "properties/offload/rules.h"
#include "properties/offload/goals.h"

namespace kvfence {

template <>
struct Checks<OffloadTarget> : NoSymbols<offload::World> {
  using Invariants = offload::Invariants;
  using Reach = offload::Reach;
  using Generator = offload::Generator;

  static Invariants make_invariants(const offload::Config& config) {
    const Parsed<OffloadingManagerConfig> parsed = make_offloading_manager_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(offload::kInvariants, &offload::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(offload::kReachGoals, &offload::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(OffloadTarget)

}  // namespace kvfence
