#include "properties/engine/offloading/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/offloading/generator.h"
#include "properties/engine/offloading/goals.h"
#include "properties/engine/offloading/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::offloading::Generator;
  using Rules = engine::offloading::Invariants;
  using Goals = engine::offloading::Reach;
  static constexpr auto& kRules = engine::offloading::kInvariants;
  static constexpr auto& kGoals = engine::offloading::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& offloading_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
