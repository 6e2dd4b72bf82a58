#pragma once

/// A random campaign: episodes of commands, each with a fresh configuration, decided by the seed
/// and the episode's number alone. Time is the caller's: a callback says when to stop.

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
  /// Of those episodes the share-th and each num_shares-th after it alone: what one of several
  /// processes does of a campaign, whose findings do not depend on how many there are.
  std::uint64_t share = 0;
  std::uint64_t num_shares = 1;
  /// What every drawn configuration has to have; `word.member` is a member of its (word ...) records.
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

/// One episode in 512 is long, for what builds up slowly: it has 10,000 commands or more, and
/// since the states of some parts grow with it, they are observed after every 64th. Half of them
/// have pools of up to 10,000 blocks.
bool is_long_episode(std::uint64_t episode);
std::uint64_t commands_of_episode(std::uint64_t episode, std::uint64_t commands_of_most);
std::uint32_t state_every_of_episode(std::uint64_t episode, std::uint32_t state_every_of_most);

/// Of so many episodes, beginning with `first`.
std::uint64_t commands_of_episodes(std::uint64_t first, std::uint64_t count,
                                   std::uint64_t commands_of_most);

/// Cuts a scenario after the command that diverged. A child that exited may have done so in any
/// command under way, so after a failed implementation all of them stay.
void cut_after(Scenario& scenario, const Divergence& divergence);

/// Configurations in a row that a side does not have, before it is taken to have nothing of what is
/// drawn.
inline constexpr int kRefusedDrawsMax = 1024;

/// Draws configurations until one fits the overrides: a pinned member may rule others out. What is
/// wrong with the last one, if none did. The episode is asked only whether it is long.
Parsed<Setup> draw_setup(const Checks& checks, Choices& choices,
                         const std::vector<Field>& overrides = {}, std::uint64_t episode = 0);

/// Runs an episode of this setup out of a stream of choices; `scenario` receives its configuration
/// and commands. `before_draw` is called before each command is drawn. A share of the episodes has
/// a tail, after which it goes on as before; those that came to their end are added to num_tails.
/// With `undone` it ends with the command of that index, which is drawn and not run.
std::optional<Divergence> run_episode(Lockstep& lockstep, const Setup& setup, Choices& choices,
                                      std::size_t num_commands, Scenario& scenario,
                                      const std::function<void()>& before_draw = {},
                                      std::uint64_t* num_tails = nullptr,
                                      std::optional<std::size_t> undone = std::nullopt);

/// Each goal of the checks that some run could reach, with its count.
std::vector<GoalCount> goal_counts_of(const Checks& checks, const GoalCounts& counts);

/// Runs episodes until a divergence, a bound, or keep_going(progress) == false (asked after every
/// episode); the position of the lockstep may end it within one.
CampaignResult run_campaign(const Checks& checks, Implementation& expected, Implementation& actual,
                            const CampaignOptions& options,
                            const std::function<bool(const CampaignProgress&)>& keep_going);

}  // namespace kvfence
