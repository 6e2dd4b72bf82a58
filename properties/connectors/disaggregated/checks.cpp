#include "properties/connectors/disaggregated/checks.h"

#include "contract/connectors/disaggregated/disaggregated_target.h"
#include "properties/connectors/disaggregated/generator.h"
#include "properties/connectors/disaggregated/goals.h"
#include "properties/connectors/disaggregated/rules.h"
#include "properties/core/typed_checks.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = DisaggregatedTarget::Config;
  using Setup = DisaggregatedTarget::Setup;
  using Generator = disaggregated::Generator;
  using Rules = disaggregated::Invariants;
  using Goals = disaggregated::Reach;
  static constexpr auto& kRules = disaggregated::kInvariants;
  static constexpr auto& kGoals = disaggregated::kReachGoals;

  static Rules make_rules(const Config& config, const Setup& setup) {
    return Rules(setup, config.transport_may_fail);
  }
};

}  // namespace

const Checks& disaggregated_checks() {
  static const Checks kChecks = checks_of<DisaggregatedTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
