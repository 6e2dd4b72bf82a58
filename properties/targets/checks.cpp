#include "properties/targets/checks.h"

#include <memory>
#include <type_traits>
#include <utility>

#include "properties/core/goals.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/mixed_draws.h"
#include "properties/targets/never_together.h"
#include "properties/targets/rooms.h"

namespace kvfence {
namespace {

/// T: the declarations of the target (contract/core/target.h). The others: its room's (rooms.h).
template <class T, auto generators, auto rules, auto goals>
const Checks& checks_of() {
  static const Checks kChecks = [] {
    Checks checks{};
    checks.target = &T::description();
    checks.never_together = never_together(T::kName);
    checks.draw_config = mixed_draws(
        *checks.target, [](Choices& choices) { return Config(generators().draw_config(choices)); },
        checks.never_together);
    checks.make_generator = [](const Setup& setup, Choices& choices) -> std::unique_ptr<Generator> {
      return generators().make(setup.config().as<typename T::Config>(), choices);
    };
    checks.add_rules(rules().rows);
    checks.make_rules = [](const Setup& setup) -> std::unique_ptr<RuleChecker> {
      if constexpr (std::is_invocable_v<decltype(rules().make), const Setup&>) {
        return rules().make(setup);
      } else {
        return rules().make(setup.as<typename T::Setup>());
      }
    };
    GoalSuite suite = goals();
    checks.goals = std::move(suite.goals);
    for (const Goal& refusal : refusal_goals(*checks.target)) checks.goals.push_back(refusal);
    checks.make_counts_of = suite.make_counts;
    return checks;
  }();
  return kChecks;
}

}  // namespace

const Checks& block_pool_checks() {
  return checks_of<BlockPoolTarget, block_pool::generators, block_pool::rules, block_pool::goals>();
}

const Checks& kv_cache_checks() {
  return checks_of<KVCacheTarget, kv_cache::generators, kv_cache::rules, kv_cache::goals>();
}

const Checks& eviction_checks() {
  return checks_of<EvictionTarget, eviction::generators, eviction::rules, eviction::goals>();
}

const Checks& offload_checks() {
  return checks_of<OffloadTarget, offload::generators, offload::rules, offload::goals>();
}

const Checks& tiering_checks() {
  return checks_of<TieringTarget, tiering::generators, tiering::rules, tiering::goals>();
}

const Checks& worker_checks() {
  return checks_of<WorkerTarget, worker::generators, worker::rules, worker::goals>();
}

}  // namespace kvfence
