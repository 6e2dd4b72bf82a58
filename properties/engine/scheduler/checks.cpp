#include "properties/engine/scheduler/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/scheduler/generator.h"
#include "properties/engine/scheduler/goals.h"
#include "properties/engine/scheduler/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::scheduler::Generator;
  using Rules = engine::scheduler::Invariants;
  using Goals = engine::scheduler::Reach;
  static constexpr auto& kRules = engine::scheduler::kInvariants;
  static constexpr auto& kGoals = engine::scheduler::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& scheduler_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
