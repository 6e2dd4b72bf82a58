#include "properties/worker/checks.h"

#include "contract/worker/worker_target.h"
#include "properties/core/typed_checks.h"
#include "properties/worker/generator.h"
#include "properties/worker/goals.h"
#include "properties/worker/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = WorkerTarget::Config;
  using Setup = WorkerTarget::Setup;
  using Generator = worker::Generator;
  using Rules = worker::Invariants;
  using Goals = worker::Reach;
  static constexpr auto& kRules = worker::kInvariants;
  static constexpr auto& kGoals = worker::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& worker_checks() {
  static const Checks kChecks = checks_of<WorkerTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
