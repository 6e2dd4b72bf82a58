#include "properties/eviction/checks.h"

#include "contract/eviction/eviction_target.h"
#include "properties/core/typed_checks.h"
#include "properties/eviction/generator.h"
#include "properties/eviction/goals.h"
#include "properties/eviction/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = EvictionTarget::Config;
  using Setup = EvictionTarget::Setup;
  using Generator = eviction::Generator;
  using Rules = eviction::Invariants;
  using Goals = eviction::Reach;
  static constexpr auto& kRules = eviction::kInvariants;
  static constexpr auto& kGoals = eviction::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& eviction_checks() {
  static const Checks kChecks = checks_of<EvictionTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
