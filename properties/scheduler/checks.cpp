#include "properties/scheduler/checks.h"

#include "contract/scheduler/scheduler_target.h"
#include "properties/core/typed_checks.h"
#include "properties/scheduler/generator.h"
#include "properties/scheduler/goals.h"
#include "properties/scheduler/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = SchedulerTarget::Config;
  using Setup = SchedulerTarget::Setup;
  using Generator = scheduler::Generator;
  using Rules = scheduler::Invariants;
  using Goals = scheduler::Reach;
  static constexpr auto& kRules = scheduler::kInvariants;
  static constexpr auto& kGoals = scheduler::kReachGoals;

  static Rules make_rules(const Config& config, const Setup& setup) {
    return Rules(setup, config.connector);
  }
};

}  // namespace

const Checks& scheduler_checks() {
  static const Checks kChecks = checks_of<SchedulerTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
