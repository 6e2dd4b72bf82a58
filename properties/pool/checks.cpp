#include "properties/pool/checks.h"

#include "contract/pool/block_pool_target.h"
#include "properties/core/typed_checks.h"
#include "properties/pool/generator.h"
#include "properties/pool/goals.h"
#include "properties/pool/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = BlockPoolTarget::Config;
  using Setup = BlockPoolTarget::Setup;
  using Generator = block_pool::Generator;
  using Rules = block_pool::Invariants;
  using Goals = block_pool::Reach;
  static constexpr auto& kRules = block_pool::kInvariants;
  static constexpr auto& kGoals = block_pool::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& block_pool_checks() {
  static const Checks kChecks = checks_of<BlockPoolTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
