#include "properties/engine/nixl/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/nixl/generator.h"
#include "properties/engine/nixl/goals.h"
#include "properties/engine/nixl/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::nixl::Generator;
  using Rules = engine::nixl::Invariants;
  using Goals = engine::nixl::Reach;
  static constexpr auto& kRules = engine::nixl::kInvariants;
  static constexpr auto& kGoals = engine::nixl::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& nixl_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
