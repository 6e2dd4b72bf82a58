#pragma once

/// The scheduler target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/scheduler/scheduler_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/scheduler/generator.h"
#include "properties/scheduler/rules.h"
#include "properties/scheduler/goals.h"

namespace kvfence {

template <>
struct Checks<SchedulerTarget> : RequestSymbols<scheduler::World> {
  using Invariants = scheduler::Invariants;
  using Reach = scheduler::Reach;
  using Generator = scheduler::Generator;

  static Invariants make_invariants(const scheduler::Config& config) {
    const Parsed<SchedulerConfig> parsed = make_scheduler_config(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed, config.connector);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(scheduler::kInvariants, &scheduler::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(scheduler::kReachGoals, &scheduler::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(SchedulerTarget)

}  // namespace kvfence
