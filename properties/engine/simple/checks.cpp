#include "properties/engine/simple/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/simple/generator.h"
#include "properties/engine/simple/goals.h"
#include "properties/engine/simple/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::simple::Generator;
  using Rules = engine::simple::Invariants;
  using Goals = engine::simple::Reach;
  static constexpr auto& kRules = engine::simple::kInvariants;
  static constexpr auto& kGoals = engine::simple::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& simple_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
