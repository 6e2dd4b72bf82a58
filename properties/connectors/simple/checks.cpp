#include "properties/connectors/simple/checks.h"

#include "contract/connectors/simple/simple_offload_target.h"
#include "properties/connectors/simple/generator.h"
#include "properties/connectors/simple/goals.h"
#include "properties/connectors/simple/rules.h"
#include "properties/core/typed_checks.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = SimpleOffloadTarget::Config;
  using Setup = SimpleOffloadTarget::Setup;
  using Generator = simple_offload::Generator;
  using Rules = simple_offload::Invariants;
  using Goals = simple_offload::Reach;
  static constexpr auto& kRules = simple_offload::kInvariants;
  static constexpr auto& kGoals = simple_offload::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& simple_offload_checks() {
  static const Checks kChecks = checks_of<SimpleOffloadTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
