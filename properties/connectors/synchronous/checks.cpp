#include "properties/connectors/synchronous/checks.h"

#include "contract/connectors/synchronous/synchronous_connector_target.h"
#include "properties/connectors/synchronous/generator.h"
#include "properties/connectors/synchronous/goals.h"
#include "properties/connectors/synchronous/rules.h"
#include "properties/core/typed_checks.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = SynchronousConnectorTarget::Config;
  using Setup = SynchronousConnectorTarget::Setup;
  using Generator = synchronous_connector::Generator;
  using Rules = synchronous_connector::Invariants;
  using Goals = synchronous_connector::Reach;
  static constexpr auto& kRules = synchronous_connector::kInvariants;
  static constexpr auto& kGoals = synchronous_connector::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& synchronous_connector_checks() {
  static const Checks kChecks = checks_of<SynchronousConnectorTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
