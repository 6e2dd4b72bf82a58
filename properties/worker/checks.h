#pragma once

/// The worker target's side of properties/core/checks.h.

#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/worker/worker_target.h"
#include "properties/core/checks.h"
#include "properties/core/compiled_once.h"
#include "properties/worker/generator.h"
#include "properties/worker/rules.h"
#include "properties/worker/goals.h"

namespace kvfence {

template <>
struct Checks<WorkerTarget> : NoSymbols<worker::World> {
  using Invariants = worker::Invariants;
  using Reach = worker::Reach;
  using Generator = worker::Generator;

  static Invariants make_invariants(const worker::Config& config) {
    const Parsed<worker::Options> parsed = make_worker_options(config);
    KVFENCE_CHECK(parsed, "invariants for a configuration that was not validated");
    return Invariants(*parsed);
  }

  static std::vector<std::pair<std::string, std::string>> invariants() {
    return names_and_texts(worker::kInvariants, &worker::Invariant::rule);
  }

  static std::vector<std::pair<std::string, std::string>> goals() {
    return names_and_texts(worker::kReachGoals, &worker::ReachGoal::doc);
  }
};

KVFENCE_COMPILED_ONCE(WorkerTarget)

}  // namespace kvfence
