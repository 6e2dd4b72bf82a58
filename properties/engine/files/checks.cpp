#include "properties/engine/files/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/files/generator.h"
#include "properties/engine/files/goals.h"
#include "properties/engine/files/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::files::Generator;
  using Rules = engine::files::Invariants;
  using Goals = engine::files::Reach;
  static constexpr auto& kRules = engine::files::kInvariants;
  static constexpr auto& kGoals = engine::files::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& files_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
