#include "properties/kv_cache/checks.h"

#include "contract/kv_cache/kv_cache_target.h"
#include "properties/core/typed_checks.h"
#include "properties/kv_cache/generator.h"
#include "properties/kv_cache/goals.h"
#include "properties/kv_cache/rules.h"

namespace kvfence {
namespace {

struct Parts {
  using Config = KVCacheTarget::Config;
  using Setup = KVCacheTarget::Setup;
  using Generator = kv_cache::Generator;
  using Rules = kv_cache::Invariants;
  using Goals = kv_cache::Reach;
  static constexpr auto& kRules = kv_cache::kInvariants;
  static constexpr auto& kGoals = kv_cache::kReachGoals;

  static Rules make_rules(const Config&, const Setup& setup) { return Rules(setup); }
};

}  // namespace

const Checks& kv_cache_checks() {
  static const Checks kChecks = checks_of<KVCacheTarget, Parts>();
  return kChecks;
}

}  // namespace kvfence
