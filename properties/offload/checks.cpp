#include "properties/offload/checks.h"

#include "contract/offload/offload_target.h"
#include "properties/core/typed_checks.h"
#include "properties/offload/generator.h"
#include "properties/offload/goals.h"
#include "properties/offload/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = OffloadTarget::Config;
  using Setup = OffloadTarget::Setup;
  using Generator = offload::Generator;
  using Rules = offload::Invariants;
  using Goals = offload::Reach;
  static constexpr auto& kRules = offload::kInvariants;
  static constexpr auto& kGoals = offload::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& offload_checks() {
  static const Checks kChecks = checks_of<OffloadTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
