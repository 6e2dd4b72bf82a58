#include "properties/engine/on_device/checks.h"

#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/on_device/generator.h"
#include "properties/engine/on_device/goals.h"
#include "properties/engine/on_device/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EngineTarget::Config;
  using Setup = EngineTarget::Setup;
  using Generator = engine::on_device::Generator;
  using Rules = engine::on_device::Invariants;
  using Goals = engine::on_device::Reach;
  static constexpr auto& kRules = engine::on_device::kInvariants;
  static constexpr auto& kGoals = engine::on_device::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& on_device_checks() {
  static const Checks kChecks = checks_of<EngineTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
