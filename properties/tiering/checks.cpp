#include "properties/tiering/checks.h"

#include "contract/tiering/tiering_target.h"
#include "properties/core/typed_checks.h"
#include "properties/tiering/generator.h"
#include "properties/tiering/goals.h"
#include "properties/tiering/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = TieringTarget::Config;
  using Setup = TieringTarget::Setup;
  using Generator = tiering::Generator;
  using Rules = tiering::Invariants;
  using Goals = tiering::Reach;
  static constexpr auto& kRules = tiering::kInvariants;
  static constexpr auto& kGoals = tiering::kReachGoals;

  static Rules make_rules(const Config& config, const Setup& setup) {
    return Rules(setup, config.num_tiers, config.file_tiers);
  }
};

}  // namespace

const Checks& tiering_checks() {
  static const Checks kChecks = checks_of<TieringTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
