#include "properties/engine/checks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/core/check.h"
#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/engine/files/generator.h"
#include "properties/engine/files/goals.h"
#include "properties/engine/files/rules.h"
#include "properties/engine/multi/generator.h"
#include "properties/engine/multi/goals.h"
#include "properties/engine/multi/rules.h"
#include "properties/engine/nixl/generator.h"
#include "properties/engine/nixl/goals.h"
#include "properties/engine/nixl/rules.h"
#include "properties/engine/offloading/generator.h"
#include "properties/engine/offloading/goals.h"
#include "properties/engine/offloading/rules.h"
#include "properties/engine/on_device/generator.h"
#include "properties/engine/on_device/goals.h"
#include "properties/engine/on_device/rules.h"
#include "properties/engine/rules.h"
#include "properties/engine/scheduler/generator.h"
#include "properties/engine/scheduler/goals.h"
#include "properties/engine/simple/generator.h"
#include "properties/engine/simple/goals.h"
#include "properties/engine/simple/rules.h"

namespace kvfence {
namespace {

using engine::Assembly;

constexpr std::size_t kNumAssemblies = std::size(engine::kAssemblies);

std::size_t assembly_of(const Setup& setup) {
  return static_cast<std::size_t>(setup.as<EngineSetup>().assembly);
}

const Checks& checks_at(std::size_t assembly) { return checks_of(static_cast<Assembly>(assembly)); }

/// Where commands can be refused with a code that other assemblies never see. A code that does not
/// stand here can be met in each assembly whose commands are drawn badly, too.
struct OnlyIn {
  ErrorCode code;
  std::initializer_list<Assembly> assemblies;
};
const OnlyIn kOnlyIn[] = {
    // A report stands in the update, and is checked, where the connector is the scripted one.
    {ErrorCode::kUnknownBlock, {Assembly::kScheduler}},
    {ErrorCode::kSingleGroupOnly, {Assembly::kScheduler}},
    {ErrorCode::kNotLoading, {Assembly::kScheduler}},
    {ErrorCode::kListedTwice, {Assembly::kScheduler}},
    {ErrorCode::kNotFinished, {Assembly::kScheduler, Assembly::kPrefillDecode}},
    {ErrorCode::kNotInProfile, {Assembly::kOffloading, Assembly::kOffloadingOnDevice}},
    {ErrorCode::kUnknownKey, {Assembly::kSynchronous}},
    {ErrorCode::kUnknownJob, {Assembly::kOffloading, Assembly::kSimple, Assembly::kPrefillDecode}},
    // Not on a device, where the model samples.
    {ErrorCode::kWrongTokenCount,
     {Assembly::kScheduler, Assembly::kOffloading, Assembly::kSimple, Assembly::kSynchronous,
      Assembly::kPrefillDecode}},
};

/// Whether a suite of an assembly has to reach a refusal with the code.
bool is_met(Assembly assembly, ErrorCode code) {
  // Rooms of the connectors, and of one on a device, reach them.
  if (assembly == Assembly::kMulti || assembly == Assembly::kOnDevice) return false;
  for (const OnlyIn& only : kOnlyIn) {
    if (only.code != code) continue;
    return std::find(only.assemblies.begin(), only.assemblies.end(), assembly) !=
           only.assemblies.end();
  }
  return true;
}

template <class Generator, class Rules>
Checks room(Assembly assembly, GoalSuite goals) {
  Checks checks = checks_of<EngineTarget, Generator, Rules>(std::move(goals));
  std::erase_if(checks.goals, [&](const Goal& goal) {
    return goal.refusal != ErrorCode::kNone && !is_met(assembly, goal.refusal);
  });
  return checks;
}

Checks make_room(Assembly assembly) {
  switch (assembly) {
    case Assembly::kScheduler:  // the core rules are all that it needs
      return room<engine::scheduler::Generator, void>(assembly, engine::scheduler::goals());
    case Assembly::kOffloading:
      return room<engine::offloading::Generator, engine::offloading::Invariants>(
          assembly, engine::offloading::goals());
    case Assembly::kOffloadingOnDevice:
      return room<engine::on_device::Generator, engine::on_device::Invariants>(
          assembly, engine::on_device::goals());
    case Assembly::kOnDevice:
      return room<engine::on_device::GeneratorOfOthers, engine::on_device::Invariants>(
          assembly, engine::on_device::goals_of_others());
    case Assembly::kSimple:
      return room<engine::simple::Generator, engine::simple::Invariants>(assembly,
                                                                         engine::simple::goals());
    case Assembly::kSynchronous:
      return room<engine::files::Generator, engine::files::Invariants>(assembly,
                                                                       engine::files::goals());
    case Assembly::kPrefillDecode:
      return room<engine::nixl::Generator, engine::nixl::Invariants>(assembly,
                                                                     engine::nixl::goals());
    case Assembly::kMulti:
      return room<engine::multi::Generator, engine::multi::Invariants>(assembly,
                                                                       engine::multi::goals());
  }
  KVFENCE_CHECK(false, "an assembly outside its enumeration");
}

/// The core rules, then those of the room.
class RulesOfEngine final : public RuleChecker {
 public:
  explicit RulesOfEngine(const Setup& setup)
      : core_(setup.as<EngineSetup>()),
        room_(room_checks(setup.as<EngineSetup>().assembly).make_rules(setup)) {}
  std::optional<Divergence> check(const Command& command, const Observation* before,
                                  const Observation& observation, const World& world,
                                  std::size_t step) override {
    const auto found =
        core_.check(command.as<engine::Command>(),
                    before ? &detail::typed_observation<EngineTarget>(*before) : nullptr,
                    detail::typed_observation<EngineTarget>(observation),
                    typed_world<engine::World>(world), step);
    return found || !room_ ? found : room_->check(command, before, observation, world, step);
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
    for (const auto& [name, rule] : room_checks(info.assembly).rules) {
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
  checks.make_counts_of = [](std::span<const Goal>) -> std::unique_ptr<GoalCounts> {
    return std::make_unique<CountsOfAssemblies>();
  };
  return checks;
}

}  // namespace

const Checks& room_checks(Assembly assembly) {
  static const std::array<Checks, kNumAssemblies> kRooms = [] {
    std::array<Checks, kNumAssemblies> all{};
    for (std::size_t number = 0; number < all.size(); ++number) {
      all[number] = make_room(static_cast<Assembly>(number));
    }
    return all;
  }();
  return kRooms[static_cast<std::size_t>(assembly)];
}

const Checks& checks_of(Assembly assembly) {
  static const std::array<Checks, kNumAssemblies> kChecks = [] {
    std::array<Checks, kNumAssemblies> all{};
    for (std::size_t number = 0; number < all.size(); ++number) {
      const Checks& room = room_checks(static_cast<Assembly>(number));
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
