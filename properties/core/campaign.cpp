#include "properties/core/campaign.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"
#include "properties/draws/factors.h"

namespace kvfence {

std::uint64_t CampaignResult::count_of(std::string_view goal) const {
  for (const GoalCount& each : goals) {
    if (each.goal.name == goal) return each.count;
  }
  check_failed(__FILE__, __LINE__, "each.goal.name == goal",
               "a goal that the target does not have");
}

void cut_after(Scenario& scenario, const Divergence& divergence) {
  if (divergence.oracle == "implementation") return;
  scenario.steps.resize(std::min(scenario.steps.size(), divergence.step + 1));
}

namespace {

constexpr std::string_view kOverrides = "--config";
constexpr std::uint64_t kLongOnceIn = 512;
constexpr std::uint64_t kLongCommandsMin = 10'000;
constexpr std::uint32_t kLongStateEveryMin = 64;

/// Raises the members that say how many blocks a pool has, as far as the contract accepts it.
void enlarge_pools(const Target& target, Config& config, Choices& choices) {
  constexpr std::int64_t kBlocksMax = 10'000;
  for (std::size_t index = 0; index < config.declared().size(); ++index) {
    const std::string& name = config.declared()[index].declaration().name;
    if (name != "num_gpu_blocks" && name != "capacity") continue;
    Config larger = config;
    const Value value = config.declared()[index].value();
    const std::int64_t num_blocks = *value.get_if<std::int64_t>() << (4 + choices.below(8));
    std::string ignored;
    const Value enlarged(Value::Variant(std::min(num_blocks, kBlocksMax)));
    if (!larger.declared()[index].assign(enlarged, ignored)) continue;
    if (target.prepare(larger, {}, {})) config = std::move(larger);
  }
}

/// Sets a member of all records of one kind in the configuration: `offloading.eviction_policy=arc`.
std::optional<InputError> override_record(const DeclaredObject& config, const Field& field) {
  const std::size_t dot = field.key.find('.');
  const std::string_view word = std::string_view(field.key).substr(0, dot);
  const std::string_view member = std::string_view(field.key).substr(dot + 1);
  for (std::size_t index = 0; index < config.size(); ++index) {
    const Value value = config[index].value();
    const auto* const list = value.get_if<Value::List>();
    if (!list) continue;
    Value::List changed = *list;
    bool is_changed = false;
    for (Value& element : changed) {
      const auto* const record = element.get_if<Record>();
      if (!record || record->verb != word) continue;
      element = Value(Value::Variant(with_field(*record, std::string(member), field.value)));
      is_changed = true;
    }
    if (!is_changed) continue;
    std::string expected;
    if (config[index].assign(Value(Value::Variant(std::move(changed))), expected)) {
      return std::nullopt;
    }
    return InputError{std::string(kOverrides), field.position, field.key + "=" + print(field.value),
                      std::move(expected)};
  }
  return InputError{std::string(kOverrides), field.position, "'" + field.key + "'",
                    "a record (" + std::string(word) + " ...) in what is drawn"};
}

std::optional<InputError> override_all(const DeclaredObject& config,
                                       const std::vector<Field>& overrides) {
  std::vector<Field> plain;
  for (const Field& field : overrides) {
    if (field.key.find('.') == std::string::npos) plain.push_back(field);
  }
  if (auto wrong = assign_fields_of(config, plain, kOverrides)) return wrong;
  for (const Field& field : overrides) {
    if (field.key.find('.') == std::string::npos) continue;
    if (auto wrong = override_record(config, field)) return wrong;
  }
  return std::nullopt;
}

}  // namespace

Parsed<Setup> draw_setup(const Checks& checks, Choices& choices,
                         const std::vector<Field>& overrides, std::uint64_t episode) {
  // An override may fit only one configuration in many, such as those with one kind of connector.
  constexpr int kDrawsMax = 1024;
  InputError error;
  for (int draw = 0; draw < kDrawsMax; ++draw) {
    Config config = checks.draw_config(choices);
    if (is_long_episode(episode) && choices.once_in(2))
      enlarge_pools(*checks.target, config, choices);
    if (auto wrong = override_all(config.declared(), overrides)) {
      error = std::move(*wrong);
      continue;
    }
    Parsed<Setup> setup = checks.target->prepare(std::move(config), kOverrides, {});
    if (setup) return setup;
    error = setup.error();
  }
  return error;
}

namespace {

/// One episode in so many has a tail.
constexpr std::uint32_t kTailOnceIn = 6;

constexpr Goal kTailGoal = {"tails_to_the_end", "a tail of an episode released all that it held"};
constexpr Goal kTablesGoal = {
    "tables_compared", "the tables of the reference were as at the start, and were compared"};

}  // namespace

std::optional<Divergence> run_episode(Lockstep& lockstep, const Setup& setup, Choices& choices,
                                      std::size_t num_commands, Scenario& scenario,
                                      const std::function<void()>& before_draw,
                                      std::uint64_t* num_tails, std::optional<std::size_t> undone) {
  scenario.target = &setup.target();
  scenario.config = setup.config();
  scenario.steps.clear();
  // Early enough to come to its end; with bytes, at the latest when they are used up.
  bool has_tail = choices.once_in(kTailOnceIn);
  const std::size_t tail_at =
      has_tail ? choices.below(static_cast<std::uint32_t>(num_commands / 2 + 1)) : 0;
  if (auto divergence = lockstep.start(setup, has_tail)) return divergence;
  const std::unique_ptr<Generator> generator = lockstep.checks().make_generator(setup, choices);
  bool is_in_tail = false;
  for (std::size_t index = 0; index < num_commands; ++index) {
    if (has_tail && (index >= tail_at || choices.exhausted())) {
      has_tail = false;
      is_in_tail = true;
    }
    std::optional<Command> command;
    if (is_in_tail) {
      command = generator->next_command_of_tail(lockstep.last_expected(), lockstep.world());
      is_in_tail = command.has_value();
      if (!is_in_tail) {
        if (num_tails) ++*num_tails;
        if (auto divergence = lockstep.compare_tables()) return divergence;
      }
    }
    if (!command) {
      if (choices.exhausted()) break;
      if (before_draw) before_draw();
      command = generator->next_command(choices, lockstep.last_expected(), lockstep.world());
    }
    scenario.steps.push_back({*std::move(command)});
    if (index == undone) return std::nullopt;
    if (auto divergence = lockstep.step(scenario.steps.back().command)) return divergence;
  }
  return lockstep.finish();
}

std::vector<GoalCount> goal_counts_of(const Checks& checks, const GoalCounts& counts) {
  std::vector<GoalCount> all;
  for (std::size_t index = 0; index < checks.goals.size(); ++index) {
    if (!counts.could_reach(index)) continue;
    all.push_back({checks.goals[index], counts.count_of(index)});
  }
  return all;
}

bool is_long_episode(std::uint64_t episode) { return episode % kLongOnceIn == kLongOnceIn - 1; }

std::uint64_t commands_of_episode(std::uint64_t episode, std::uint64_t commands_of_most) {
  return is_long_episode(episode) ? std::max(commands_of_most, kLongCommandsMin) : commands_of_most;
}

std::uint32_t state_every_of_episode(std::uint64_t episode, std::uint32_t state_every_of_most) {
  return is_long_episode(episode) ? std::max(state_every_of_most, kLongStateEveryMin)
                                  : state_every_of_most;
}

std::uint64_t commands_of_episodes(std::uint64_t first, std::uint64_t count,
                                   std::uint64_t commands_of_most) {
  const std::uint64_t num_long = (first + count) / kLongOnceIn - first / kLongOnceIn;
  const std::uint64_t longer = commands_of_episode(kLongOnceIn - 1, commands_of_most);
  return count * commands_of_most + num_long * (longer - commands_of_most);
}

CampaignResult run_campaign(const Checks& checks, Implementation& expected, Implementation& actual,
                            const CampaignOptions& options,
                            const std::function<bool(const CampaignProgress&)>& keep_going) {
  CampaignResult result;
  Lockstep lockstep(checks, expected, actual, options.lockstep);
  Scenario scenario(*checks.target);
  std::uint64_t num_tails = 0;
  for (std::uint64_t number = options.share; number < options.episodes_max;
       number += options.num_shares) {
    const std::uint64_t episode = options.first_episode + number;
    const std::uint64_t commands_before =
        commands_of_episodes(options.first_episode, number, options.episode_commands);
    if (commands_before >= options.commands_max) break;
    if (options.lockstep.position) options.lockstep.position->episode = episode;
    Choices choices = episode_choices(options.seed, episode);
    const std::uint64_t left = options.commands_max - commands_before;
    const auto num_commands = static_cast<std::size_t>(
        std::min(commands_of_episode(episode, options.episode_commands), left));
    lockstep.observe_state_every(state_every_of_episode(episode, options.lockstep.state_every));
    std::optional<Divergence> divergence;
    for (int draw = 0; draw < kRefusedDrawsMax; ++draw) {
      const Parsed<Setup> setup = draw_setup(checks, choices, options.config_overrides, episode);
      if (!setup) {
        result.config_error = setup.error();
        return result;
      }
      divergence = run_episode(lockstep, *setup, choices, num_commands, scenario, {}, &num_tails);
      if (!divergence || divergence->oracle != "unsupported") break;
      result.refusals.add(divergence->message);
    }
    const bool is_stopped = divergence && divergence->oracle == "stopped";
    result.progress.commands += is_stopped ? lockstep.num_collected() : lockstep.num_commands();
    ++result.progress.episodes;
    if (is_stopped) break;
    if (divergence) {
      cut_after(scenario, *divergence);
      result.failure = {std::move(*divergence), std::move(scenario), episode,
                        commands_before + lockstep.num_commands()};
      break;
    }
    if (!keep_going(result.progress)) break;
  }
  result.goals = goal_counts_of(checks, lockstep.goal_counts());
  result.goals.push_back({kTailGoal, num_tails});
  if (const auto num_tables = lockstep.num_compared_tables()) {
    result.goals.push_back({kTablesGoal, *num_tables});
  }
  return result;
}

}  // namespace kvfence
