#include "properties/engine/multi/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/multi/generator.h"
#include "properties/engine/multi/goals.h"
#include "properties/engine/multi/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::multi::Generator;
  using Rules = engine::multi::Invariants;
  using Goals = engine::multi::Reach;
  static constexpr auto& kRules = engine::multi::kInvariants;
  static constexpr auto& kGoals = engine::multi::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& multi_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
