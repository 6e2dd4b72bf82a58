#pragma once

/// A random campaign: episodes of commands, each with a fresh configuration, decided by the seed
/// and the episode's number alone. Time is the caller's: a callback says when to stop.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/choices.h"
#include "properties/core/lockstep.h"

namespace kvfence {

struct CampaignOptions {
  std::uint64_t seed = 1;
  std::uint64_t first_episode = 0;
  std::uint64_t commands_max = UINT64_MAX;  ///< over all episodes
  std::uint64_t episodes_max = UINT64_MAX;
  std::uint32_t episode_commands = 200;
  std::vector<Field> config_overrides;  ///< what every drawn configuration has to have
  LockstepOptions lockstep;
};

struct CampaignProgress {
  std::uint64_t commands = 0;
  std::uint64_t episodes = 0;
};

template <class Target>
struct CampaignFailure {
  Divergence divergence;
  Scenario<Target> scenario;  ///< the episode up to and including the failing command
  std::uint64_t episode = 0;
};

template <class Target>
struct CampaignResult {
  CampaignProgress progress;
  std::optional<CampaignFailure<Target>> failure;
  std::optional<InputError> config_error;  ///< an override that does not fit; nothing more was run
  typename Checks<Target>::Reach reach;
};

/// The choices of one episode. Mixing keeps neighbouring seeds and episodes apart.
inline Choices episode_choices(std::uint64_t seed, std::uint64_t episode) {
  return Choices::from_seed((seed * 0xD134'2543'DE82'EF95) ^ (episode * 0x2545'F491'4F6C'DD1D));
}

/// Cuts a scenario behind the command that diverged. A child that died may have died of any command
/// under way, so behind a failed implementation all of them stay.
template <class Target>
void cut_behind(Scenario<Target>& scenario, const Divergence& divergence) {
  if (divergence.oracle == "implementation") return;
  scenario.steps.resize(std::min(scenario.steps.size(), divergence.step + 1));
}

/// Puts overrides into a drawn configuration; what is wrong with the result, if anything is.
template <class Target>
std::optional<InputError> override_config(typename Target::Config& config,
                                          const std::vector<Field>& overrides) {
  if (auto error = assign_fields(config, overrides, "--config")) return error;
  return Target::validate(config, "--config", {});
}

/// Draws configurations until one fits the overrides: a pinned member may rule others out. What is
/// wrong with the last one, if none did.
template <class Target>
std::optional<InputError> draw_overridden_config(Choices& choices,
                                                 const std::vector<Field>& overrides,
                                                 typename Target::Config& config) {
  constexpr int kDrawsMax = 64;
  std::optional<InputError> error;
  for (int draw = 0; draw < kDrawsMax; ++draw) {
    config = Checks<Target>::Generator::draw_config(choices);
    error = override_config<Target>(config, overrides);
    if (!error) break;
  }
  return error;
}

/// Runs an episode of scenario.config out of a stream of choices; scenario.steps receives its
/// commands.
template <class Target>
std::optional<Divergence> run_configured_episode(Lockstep<Target>& lockstep, Choices& choices,
                                                 std::size_t num_commands,
                                                 Scenario<Target>& scenario) {
  using Generator = typename Checks<Target>::Generator;
  scenario.steps.clear();
  if (auto divergence = lockstep.start(scenario.config)) return divergence;
  Generator generator(scenario.config, choices);
  for (std::size_t index = 0; index < num_commands && !choices.exhausted(); ++index) {
    scenario.steps.push_back(
        {generator.next(choices, lockstep.last_expected(), lockstep.world()), std::nullopt, {}});
    if (auto divergence = lockstep.step(scenario.steps.back().command)) return divergence;
  }
  return lockstep.finish();
}

/// The same with a configuration out of the stream.
template <class Target>
std::optional<Divergence> run_episode(Lockstep<Target>& lockstep, Choices& choices,
                                      std::size_t num_commands, Scenario<Target>& scenario) {
  scenario.config = Checks<Target>::Generator::draw_config(choices);
  return run_configured_episode(lockstep, choices, num_commands, scenario);
}

/// Runs episodes until a divergence, a bound, or keep_going(progress) == false (asked after every
/// episode).
template <class Target>
CampaignResult<Target> run_campaign(
    Implementation<Target>& expected, Implementation<Target>& actual,
    const CampaignOptions& options,
    const std::function<bool(const CampaignProgress&)>& keep_going) {
  CampaignResult<Target> result;
  Lockstep<Target> lockstep(expected, actual, options.lockstep);
  Scenario<Target> scenario;
  for (std::uint64_t episode = options.first_episode;
       result.progress.episodes < options.episodes_max &&
       result.progress.commands < options.commands_max;
       ++episode) {
    Choices choices = episode_choices(options.seed, episode);
    result.config_error =
        draw_overridden_config<Target>(choices, options.config_overrides, scenario.config);
    if (result.config_error) break;
    const std::uint64_t left = options.commands_max - result.progress.commands;
    const auto num_commands =
        static_cast<std::size_t>(std::min<std::uint64_t>(options.episode_commands, left));
    auto divergence = run_configured_episode(lockstep, choices, num_commands, scenario);
    result.progress.commands += lockstep.num_commands();
    ++result.progress.episodes;
    if (divergence) {
      cut_behind(scenario, *divergence);
      result.failure = {std::move(*divergence), std::move(scenario), episode};
      break;
    }
    if (!keep_going(result.progress)) break;
  }
  result.reach = lockstep.reach();
  return result;
}

}  // namespace kvfence
