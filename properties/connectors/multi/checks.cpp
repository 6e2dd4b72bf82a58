#include "properties/connectors/multi/checks.h"

#include "contract/connectors/multi/multi_connector_target.h"
#include "properties/connectors/multi/generator.h"
#include "properties/connectors/multi/goals.h"
#include "properties/connectors/multi/rules.h"
#include "properties/core/typed_checks.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = MultiConnectorTarget::Config;
  using Setup = MultiConnectorTarget::Setup;
  using Generator = multi_connector::Generator;
  using Rules = multi_connector::Invariants;
  using Goals = multi_connector::Reach;
  static constexpr auto& kRules = multi_connector::kInvariants;
  static constexpr auto& kGoals = multi_connector::kReachGoals;

  static Rules make_rules(const Config& config, const Setup&) { return Rules(config); }
};

}  // namespace

const Checks& multi_connector_checks() {
  static const Checks kChecks = checks_of<MultiConnectorTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
