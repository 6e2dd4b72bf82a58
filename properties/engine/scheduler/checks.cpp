#include "properties/engine/scheduler/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/scheduler/generator.h"
#include "properties/engine/scheduler/goals.h"

namespace kvfence {
namespace {

/// The core rules are all that a scheduler needs (properties/engine/rules.h).
struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::scheduler::Generator;
  using Goals = engine::scheduler::Reach;
  static constexpr auto& kGoals = engine::scheduler::kReachGoals;
};

}  // namespace

const Checks& scheduler_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
