#include "properties/engine/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/generator.h"
#include "properties/engine/goals.h"
#include "properties/engine/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::Generator;
  using Rules = engine::Invariants;
  using Goals = engine::Reach;
  static constexpr auto& kRules = engine::kInvariants;
  static constexpr auto& kGoals = engine::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& engine_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
