#include "properties/engine/checks.h"

#include <array>
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "properties/engine/files/checks.h"
#include "properties/engine/multi/checks.h"
#include "properties/engine/nixl/checks.h"
#include "properties/engine/offloading/checks.h"
#include "properties/engine/on_device/checks.h"
#include "properties/engine/rules.h"
#include "properties/engine/scheduler/checks.h"
#include "properties/engine/simple/checks.h"

namespace kvfence {
namespace {

constexpr std::size_t kNumAssemblies = std::size(engine::kAssemblies);

std::size_t assembly_of(const Setup& setup) {
  return static_cast<std::size_t>(setup.as<EngineSetup>().assembly);
}

const Checks& checks_at(std::size_t assembly) {
  return checks_of(static_cast<engine::Assembly>(assembly));
}

/// What the room of an assembly adds to the core rules, and its generator and goals.
const Checks& room_of(std::size_t assembly) {
  switch (static_cast<engine::Assembly>(assembly)) {
    case engine::Assembly::kScheduler:
      return scheduler_checks();
    case engine::Assembly::kOffloading:
      return offloading_checks();
    case engine::Assembly::kOffloadingOnDevice:
      return on_device_checks();
    case engine::Assembly::kSimple:
      return simple_checks();
    case engine::Assembly::kSynchronous:
      return files_checks();
    case engine::Assembly::kPrefillDecode:
      return nixl_checks();
    case engine::Assembly::kMulti:
      return multi_checks();
  }
  KVFENCE_CHECK(false, "an assembly outside its enumeration");
}

/// The core rules, then those of the room.
class RulesOfEngine final : public RuleChecker {
 public:
  explicit RulesOfEngine(const Setup& setup)
      : core_(setup.as<EngineSetup>()), room_(room_of(assembly_of(setup)).make_rules(setup)) {}
  std::optional<Divergence> check(const Command& command, const Observation& observation,
                                  const World& world, std::size_t step) override {
    const auto found =
        core_.check(command.as<engine::Command>(), observation.numbers.as<engine::Observation>(),
                    typed_world<engine::World>(world), step);
    return found || !room_ ? found : room_->check(command, observation, world, step);
  }

 private:
  engine::CoreRules core_;
  std::unique_ptr<RuleChecker> room_;  ///< null: it has no rules
};

std::unique_ptr<RuleChecker> make_rules(const Setup& setup) {
  return std::make_unique<RulesOfEngine>(setup);
}

void add_core_rules(Checks& checks) {
  for (const Invariant& rule : engine::kCoreInvariants) {
    checks.rules.emplace_back(rule.name, rule.rule);
  }
}

/// Counts of each assembly, one after the other.
class CountsOfAssemblies final : public GoalCounts {
 public:
  void start(const Setup& setup) override {
    current_ = kvfence::assembly_of(setup);
    if (!counts_[current_]) counts_[current_] = checks_at(current_).make_goal_counts();
    counts_[current_]->start(setup);
  }
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world) override {
    counts_[current_]->count(command, before, after, world);
  }
  std::uint64_t count_of(std::size_t goal) const override {
    const std::size_t assembly = find(goal);
    return counts_[assembly] ? counts_[assembly]->count_of(goal) : 0;
  }
  bool could_reach(std::size_t goal) const override { return counts_[find(goal)] != nullptr; }

 private:
  /// The assembly of a goal, which gets its place there.
  static std::size_t find(std::size_t& goal) {
    std::size_t assembly = 0;
    while (goal >= checks_at(assembly).goals.size()) goal -= checks_at(assembly++).goals.size();
    return assembly;
  }

  std::array<std::unique_ptr<GoalCounts>, kNumAssemblies> counts_;
  std::size_t current_ = 0;
};

Checks make_checks() {
  static std::deque<std::string> names;  // what goals point to
  Checks checks{};
  checks.target = &EngineTarget::description();
  add_core_rules(checks);
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    const std::string prefix = std::string(info.name) + ".";
    const auto room = static_cast<std::size_t>(info.assembly);
    for (const auto& [name, rule] : room_of(room).rules) {
      checks.rules.emplace_back(prefix + name, rule);
    }
    for (Goal goal : checks_of(info.assembly).goals) {
      goal.name = names.emplace_back(prefix + std::string(goal.name));
      checks.goals.push_back(goal);
    }
  }
  checks.draw_config = [](Choices& choices) {
    return checks_at(choices.below(kNumAssemblies)).draw_config(choices);
  };
  checks.make_generator = [](const Setup& setup, Choices& choices) {
    return checks_at(assembly_of(setup)).make_generator(setup, choices);
  };
  checks.make_rules = make_rules;
  checks.make_goal_counts = []() -> std::unique_ptr<GoalCounts> {
    return std::make_unique<CountsOfAssemblies>();
  };
  return checks;
}

}  // namespace

const Checks& checks_of(engine::Assembly assembly) {
  static const std::array<Checks, kNumAssemblies> kChecks = [] {
    std::array<Checks, kNumAssemblies> all{};
    for (std::size_t number = 0; number < all.size(); ++number) {
      const Checks& room = room_of(number);
      all[number] = room;
      all[number].rules.clear();
      add_core_rules(all[number]);
      all[number].rules.insert(all[number].rules.end(), room.rules.begin(), room.rules.end());
      all[number].make_rules = make_rules;
    }
    return all;
  }();
  return kChecks[static_cast<std::size_t>(assembly)];
}

const Checks& engine_checks() {
  static const Checks kChecks = make_checks();
  return kChecks;
}

}  // namespace kvfence
