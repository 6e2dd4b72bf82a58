#pragma once

/// A random campaign: episodes of commands, each with a new configuration. The seed and the number
/// of the episode determine it. A callback of the caller says when to stop.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "contract/core/implementation.h"
#include "contract/core/scenario.h"
#include "properties/core/checks.h"
#include "properties/core/lockstep.h"
#include "properties/core/refusals.h"
#include "properties/draws/choices.h"

namespace kvfence {

struct CampaignOptions {
  std::uint64_t seed = 1;
  std::uint64_t first_episode = 0;
  std::uint64_t commands_max = UINT64_MAX;  ///< over all episodes
  std::uint64_t episodes_max = UINT64_MAX;
  std::uint32_t episode_commands = 200;  ///< of most episodes (commands_of_episode)
  /// Runs only the share-th episode and every num_shares-th after it: the part of one of several
  /// processes. The findings of a campaign do not depend on their number.
  std::uint64_t share = 0;
  std::uint64_t num_shares = 1;
  /// Members that every configuration has to have; `word.member` is a member of (word ...) records.
  std::vector<Field> config_overrides;
  LockstepOptions lockstep;
};

struct CampaignProgress {
  std::uint64_t commands = 0;
  std::uint64_t episodes = 0;
};

struct CampaignFailure {
  Divergence divergence;
  Scenario scenario;  ///< the episode up to and including the failing command
  std::uint64_t episode = 0;
  std::uint64_t commands = 0;  ///< of the campaign, all shares, up to and including the failing one
};

/// How often a goal was reached.
struct GoalCount {
  Goal goal;
  std::uint64_t count = 0;
  bool is_reached() const { return count > 0; }
};

struct CampaignResult {
  CampaignProgress progress;
  std::optional<CampaignFailure> failure;
  std::optional<InputError> config_error;  ///< an override that does not fit; nothing more was run
  Refusals refusals;                       ///< another configuration was drawn in their place
  std::vector<GoalCount> goals;

  /// Requires: a goal of the target.
  std::uint64_t count_of(std::string_view goal) const;
};

/// The choices of one episode. Mixing keeps neighbouring seeds and episodes apart.
inline Choices episode_choices(std::uint64_t seed, std::uint64_t episode) {
  return Choices::from_seed((seed * 0xD134'2543'DE82'EF95) ^ (episode * 0x2545'F491'4F6C'DD1D));
}

/// One episode in 512 is long, for states that build up slowly. It has 10,000 commands or more.
/// Since some states grow with it, the state is observed after every 64th command. Half of them
/// have pools of up to 10,000 blocks.
bool is_long_episode(std::uint64_t episode);
std::uint64_t commands_of_episode(std::uint64_t episode, std::uint64_t commands_of_most);
std::uint32_t state_every_of_episode(std::uint64_t episode, std::uint32_t state_every_of_most);

/// The commands of so many episodes, beginning with `first`.
std::uint64_t commands_of_episodes(std::uint64_t first, std::uint64_t count,
                                   std::uint64_t commands_of_most);

/// Cuts a scenario after the command that diverged. A child may have exited in any command under
/// way, so all of these stay if an implementation failed.
void cut_after(Scenario& scenario, const Divergence& divergence);

/// If a side refuses so many configurations in a row, it is assumed to support none.
inline constexpr int kRefusedDrawsMax = 1024;

/// Draws configurations until one fits the overrides: a pinned member may rule others out. If none
/// fits, returns what is wrong with the last one. `episode` only decides whether it is a long one.
Parsed<Setup> draw_setup(const Checks& checks, Choices& choices,
                         const std::vector<Field>& overrides = {}, std::uint64_t episode = 0);

/// Runs an episode of this setup from a stream of choices; `scenario` receives its configuration
/// and commands. `before_draw` is called before each command is drawn. Some episodes have a tail,
/// after which they go on as before; completed tails are added to num_tails. With `undone` the
/// episode ends with the command of that index, which is drawn and not run.
std::optional<Divergence> run_episode(Lockstep& lockstep, const Setup& setup, Choices& choices,
                                      std::size_t num_commands, Scenario& scenario,
                                      const std::function<void()>& before_draw = {},
                                      std::uint64_t* num_tails = nullptr,
                                      std::optional<std::size_t> undone = std::nullopt);

/// Each goal of the checks that some run could reach, with its count.
std::vector<GoalCount> goal_counts_of(const Checks& checks, const GoalCounts& counts);

/// Runs episodes until a divergence, a bound, or keep_going(progress) == false (called after every
/// episode). The position of the lockstep may end it within an episode.
CampaignResult run_campaign(const Checks& checks, Implementation& expected, Implementation& actual,
                            const CampaignOptions& options,
                            const std::function<bool(const CampaignProgress&)>& keep_going);

}  // namespace kvfence
