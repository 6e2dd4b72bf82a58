#include "properties/core/campaign.h"

#include <algorithm>
#include <utility>

#include "contract/core/check.h"

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

Parsed<Setup> draw_setup(const Checks& checks, Choices& choices,
                         const std::vector<Field>& overrides) {
  constexpr int kDrawsMax = 64;
  constexpr std::string_view kFile = "--config";
  InputError error;
  for (int draw = 0; draw < kDrawsMax; ++draw) {
    Config config = checks.draw_config(choices);
    if (auto wrong = assign_fields_of(config.declared(), overrides, kFile)) {
      error = std::move(*wrong);
      continue;
    }
    Parsed<Setup> setup = checks.target->prepare(std::move(config), kFile, {});
    if (setup) return setup;
    error = setup.error();
  }
  return error;
}

std::optional<Divergence> run_episode(Lockstep& lockstep, const Setup& setup, Choices& choices,
                                      std::size_t num_commands, Scenario& scenario) {
  scenario.target = &setup.target();
  scenario.config = setup.config();
  scenario.steps.clear();
  if (auto divergence = lockstep.start(setup)) return divergence;
  const std::unique_ptr<Generator> generator = lockstep.checks().make_generator(setup, choices);
  for (std::size_t index = 0; index < num_commands && !choices.exhausted(); ++index) {
    scenario.steps.push_back(
        {generator->next(choices, lockstep.last_expected(), lockstep.world())});
    if (auto divergence = lockstep.step(scenario.steps.back().command)) return divergence;
  }
  return lockstep.finish();
}

std::vector<GoalCount> goal_counts_of(const Checks& checks, const GoalCounts& counts) {
  std::vector<GoalCount> all;
  for (std::size_t index = 0; index < checks.goals.size(); ++index) {
    all.push_back({checks.goals[index], counts.count_of(index)});
  }
  return all;
}

CampaignResult run_campaign(const Checks& checks, Implementation& expected, Implementation& actual,
                            const CampaignOptions& options,
                            const std::function<bool(const CampaignProgress&)>& keep_going) {
  CampaignResult result;
  Lockstep lockstep(checks, expected, actual, options.lockstep);
  Scenario scenario(*checks.target);
  for (std::uint64_t episode = options.first_episode;
       result.progress.episodes < options.episodes_max &&
       result.progress.commands < options.commands_max;
       ++episode) {
    Choices choices = episode_choices(options.seed, episode);
    const Parsed<Setup> setup = draw_setup(checks, choices, options.config_overrides);
    if (!setup) {
      result.config_error = setup.error();
      break;
    }
    const std::uint64_t left = options.commands_max - result.progress.commands;
    const auto num_commands =
        static_cast<std::size_t>(std::min<std::uint64_t>(options.episode_commands, left));
    auto divergence = run_episode(lockstep, *setup, choices, num_commands, scenario);
    result.progress.commands += lockstep.num_commands();
    ++result.progress.episodes;
    if (divergence) {
      cut_after(scenario, *divergence);
      result.failure = {std::move(*divergence), std::move(scenario), episode};
      break;
    }
    if (!keep_going(result.progress)) break;
  }
  result.goals = goal_counts_of(checks, lockstep.goal_counts());
  return result;
}

}  // namespace kvfence
