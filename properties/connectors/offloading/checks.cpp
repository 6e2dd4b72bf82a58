#include "properties/connectors/offloading/checks.h"

#include "contract/connectors/offloading/connector_target.h"
#include "properties/connectors/offloading/generator.h"
#include "properties/connectors/offloading/goals.h"
#include "properties/connectors/offloading/rules.h"
#include "properties/core/typed_checks.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = ConnectorTarget::Config;
  using Setup = ConnectorTarget::Setup;
  using Generator = connector::Generator;
  using Rules = connector::Invariants;
  using Goals = connector::Reach;
  static constexpr auto& kRules = connector::kInvariants;
  static constexpr auto& kGoals = connector::kReachGoals;

  static Rules make_rules(const Config& config, const Setup& setup) {
    return Rules(setup, config.transfers_may_fail);
  }
};

}  // namespace

const Checks& connector_checks() {
  static const Checks kChecks = checks_of<ConnectorTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
