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

#include "contract/core/lists.h"
#include "contract/engine/engine_target.h"
#include "properties/core/typed_checks.h"
#include "properties/draws/mixed_draws.h"
#include "properties/engine/never_together.h"
#include "properties/engine/rooms.h"

namespace kvfence {
namespace {

using engine::Assembly;

constexpr std::size_t kNumAssemblies = std::size(engine::kAssemblies);

std::size_t assembly_of(const Setup& setup) {
  return static_cast<std::size_t>(setup.as<EngineSetup>().assembly);
}

const Checks& checks_at(std::size_t assembly) { return checks_of(static_cast<Assembly>(assembly)); }

/// The assemblies in which alone a command can be refused with a code. A code that is not listed
/// can occur in every assembly that also draws bad commands.
struct OnlyIn {
  ErrorCode code;
  std::initializer_list<Assembly> assemblies;
};
const OnlyIn kOnlyIn[] = {
    // With the scripted connector the update command has the report, and it is checked.
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

/// Whether the suite of an assembly must contain a refusal with the code.
bool is_met(Assembly assembly, ErrorCode code) {
  // The suites of the other connectors' assemblies contain them.
  if (assembly == Assembly::kMulti || assembly == Assembly::kOnDevice) return false;
  for (const OnlyIn& only : kOnlyIn) {
    if (only.code != code) continue;
    return contains(only.assemblies, assembly);
  }
  return true;
}

/// What a room has (properties/engine/rooms.h).
struct Room {
  Config (*draw_config)(Choices& choices);
  GoalSuite (*goals)();
  RuleSuite<EngineTarget> (*rules)() = nullptr;  // null: it has the core rules only
};

template <engine::Config (*draw_config)(Choices& choices)>
Config draw(Choices& choices) {
  return Config(draw_config(choices));
}

/// By Assembly.
const Room kRooms[] = {
    {draw<engine::scheduler::draw_config>, engine::scheduler::goals},
    {draw<engine::offloading::draw_config>, engine::offloading::goals, engine::offloading::rules},
    {draw<engine::on_device::draw_config>, engine::on_device::goals, engine::on_device::rules},
    {draw<engine::on_device::draw_config_of_others>, engine::on_device::goals_of_others,
     engine::on_device::rules},
    {draw<engine::simple::draw_config>, engine::simple::goals, engine::simple::rules},
    {draw<engine::files::draw_config>, engine::files::goals, engine::files::rules},
    {draw<engine::nixl::draw_config>, engine::nixl::goals, engine::nixl::rules},
    {draw<engine::multi::draw_config>, engine::multi::goals, engine::multi::rules},
};
static_assert(std::size(kRooms) == kNumAssemblies);

/// The core rules if asked for, then those of the room.
class RulesOfEngine final : public engine::Rules {
 public:
  RulesOfEngine(const EngineSetup& setup, bool has_core) {
    if (has_core) rules_.push_back(engine::core_rules().make(setup));
    const Room& room = kRooms[static_cast<std::size_t>(setup.assembly)];
    if (room.rules) rules_.push_back(room.rules().make(setup));
  }
  void check_all(const engine::Command& command) override {
    for (const auto& rules : rules_) rules->check_inside(command, before(), shown(), world());
  }

 private:
  std::vector<std::unique_ptr<engine::Rules>> rules_;
};

template <bool has_core>
std::unique_ptr<RuleChecker> make_rules(const Setup& setup) {
  return std::make_unique<RulesOfEngine>(setup.as<EngineSetup>(), has_core);
}

/// Draws for a configuration of any assembly.
std::unique_ptr<Generator> make_generator(const Setup& setup, Choices& choices) {
  const auto& config = setup.config().as<engine::Config>();
  return engine::make_generator(config, choices, engine::draws_of(config, choices));
}

/// The checks of an assembly, with the core rules or with only those of its room.
template <bool has_core>
Checks make_room(Assembly assembly) {
  const Room& room = kRooms[static_cast<std::size_t>(assembly)];
  Checks checks{};
  checks.target = &EngineTarget::description();
  checks.never_together = never_together(std::string("engine.") + std::string(to_text(assembly)));
  checks.draw_config = mixed_draws(*checks.target, room.draw_config, checks.never_together);
  checks.make_generator = make_generator;
  if (has_core) checks.add_rules(engine::core_rules().rows);
  if (room.rules) checks.add_rules(room.rules().rows);
  checks.make_rules = make_rules<has_core>;
  GoalSuite goals = room.goals();
  checks.goals = std::move(goals.goals);
  for (const Goal& refusal : refusal_goals(*checks.target)) {
    if (is_met(assembly, refusal.refusal)) checks.goals.push_back(refusal);
  }
  checks.make_counts_of = goals.make_counts;
  return checks;
}

template <bool has_core>
const Checks& room_at(Assembly assembly) {
  static const std::array<Checks, kNumAssemblies> kAll = [] {
    std::array<Checks, kNumAssemblies> all{};
    for (std::size_t number = 0; number < all.size(); ++number) {
      all[number] = make_room<has_core>(static_cast<Assembly>(number));
    }
    return all;
  }();
  return kAll[static_cast<std::size_t>(assembly)];
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
  /// The assembly of a goal; `goal` becomes its index there.
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
  checks.add_rules(engine::core_rules().rows);
  for (const engine::AssemblyInfo& info : engine::kAssemblies) {
    const std::string prefix = std::string(info.name) + ".";
    for (const CheckedRule& each : room_checks(info.assembly).rules) {
      checks.rules.push_back({prefix + each.name, each.rule, each.needs});
    }
    for (Goal goal : checks_of(info.assembly).goals) {
      goal.name = names.emplace_back(prefix + std::string(goal.name));
      checks.goals.push_back(goal);
    }
  }
  checks.draw_config = [](Choices& choices) {
    return checks_at(choices.below(kNumAssemblies)).draw_config(choices);
  };
  checks.make_generator = make_generator;
  checks.make_rules = make_rules</*has_core=*/true>;
  checks.make_counts_of = [](std::span<const Goal>) -> std::unique_ptr<GoalCounts> {
    return std::make_unique<CountsOfAssemblies>();
  };
  return checks;
}

}  // namespace

engine::DrawsList engine::draws_of(const Config& config, Choices& choices) {
  DrawsList draws;
  if (config.num_speculative_tokens > 0) draws.push_back(make_draft_draws(config));
  const Assembly assembly = assembly_of(config);
  if (assembly == Assembly::kScheduler) {
    draws.push_back(scheduler::make_draws(config, choices));
    if (config.has_connector()) draws.push_back(scheduler::make_scripted_draws(config, choices));
    return draws;
  }
  for (std::uint32_t number = 0; number < config.engines; ++number) {
    const auto role = static_cast<EngineRole>(number);
    if (config.has_device()) {
      draws.push_back(on_device::make_draws(config, choices, role));
      continue;
    }
    if (config.connector<ScriptedRecord>()) {
      draws.push_back(multi::make_scripted_draws(config, choices, role));
    }
    if (config.connector<offloading::Record>()) {
      draws.push_back(offloading::make_draws(config, choices, role));
    }
    if (config.connector<simple::Record>()) {
      draws.push_back(simple::make_draws(config, choices, role));
    }
  }
  if (config.connector<nixl::Record>()) draws.push_back(nixl::make_draws(config, choices));
  if (config.connector<files::ExampleRecord>() || config.connector<files::DecodeBenchRecord>()) {
    draws.push_back(files::make_draws(config, choices));
  }
  return draws;
}

const Checks& room_checks(Assembly assembly) { return room_at</*has_core=*/false>(assembly); }

const Checks& checks_of(Assembly assembly) { return room_at</*has_core=*/true>(assembly); }

const Checks& engine_checks() {
  static const Checks kChecks = make_checks();
  return kChecks;
}

}  // namespace kvfence
