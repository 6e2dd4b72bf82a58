#pragma once

/// For tests of a target's rules: true episodes of an implementation, in each of which one
/// observation is changed as a mistake of some kind would change it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "contract/core/target.h"
#include "properties/core/campaign.h"
#include "properties/core/checks.h"

namespace kvfence {

/// Changes an observation; false: there is nothing to lie about.
using ErasedLie =
    std::function<bool(const Command& command, const Config& config, Observation& shown)>;

/// Removes from every observation the members that the rules must not see.
using ErasedHide = std::function<void(Observation& shown)>;

/// The same for typed code.
template <class T>
using Lie = std::function<bool(const typename T::Command& command, const typename T::Config& config,
                               typename T::Observation& shown)>;
template <class T>
using Hide = std::function<void(typename T::Observation& shown)>;

/// How often each rule caught the lie, until the wanted one did. Each episode has the lie once and
/// ends commands_after later.
inline std::map<std::string, int> caught_by(const Checks& checks, Implementation& side,
                                            const ErasedLie& lie, int commands_after,
                                            const ErasedHide& hide, std::string_view wanted) {
  constexpr std::uint64_t kEpisodesMax = 1'500;
  constexpr int kEpisodeCommands = 120;
  std::map<std::string, int> caught;
  for (std::uint64_t episode = 0; episode < kEpisodesMax; ++episode) {
    Choices choices = episode_choices(7, episode);
    const Setup setup = prepared(*checks.target, checks.draw_config(choices));
    const std::unique_ptr<Generator> generator = checks.make_generator(setup, choices);
    const std::unique_ptr<RuleChecker> rules = checks.make_rules(setup);
    const std::unique_ptr<World> world = checks.target->make_world(setup);
    Observation now = default_observation(*checks.target);
    std::optional<Observation> before;
    EXPECT_FALSE(side.reset(setup));
    int num_left = -1;
    for (int index = 0; index < kEpisodeCommands && num_left != 0; ++index) {
      const Command command = generator->next_command(choices, now, *world);
      world->apply(command);
      EXPECT_FALSE(side.apply(command, *world, Observe::kState, now));
      Observation shown = now;
      if (num_left < 0 && lie(command, setup.config(), shown)) num_left = commands_after;
      num_left -= num_left > 0;
      if (hide) hide(shown);
      const auto found = rules->verdict(command, before ? &*before : nullptr, shown, *world);
      before = std::move(shown);
      if (!found) continue;
      EXPECT_GE(num_left, 0) << "a true observation: " << found->oracle << ", " << found->field
                             << ": expected " << found->expected << ", actual " << found->actual;
      ++caught[found->oracle];
      break;
    }
    if (caught.count(std::string(wanted)) > 0) break;
  }
  return caught;
}

/// Expects that the invariant of this id catches the lie in some episode.
template <class T, class Invariants>
void expect_lie_caught(const Checks& checks, Implementation& side, const Invariants& invariants,
                       std::string_view id, int commands_after, const Lie<T>& lie,
                       const Hide<T>& hide = {}) {
  using Shown = typename T::Observation;
  const ErasedLie erased_lie = [&](const Command& command, const Config& config,
                                   Observation& shown) {
    return lie(command.as<typename T::Command>(), config.as<typename T::Config>(),
               shown.as<Shown>());
  };
  ErasedHide erased_hide;
  if (hide) erased_hide = [&](Observation& shown) { hide(shown.as<Shown>()); };
  for (const auto& invariant : invariants) {
    if (invariant.id != id) continue;
    std::string others;
    const auto caught =
        caught_by(checks, side, erased_lie, commands_after, erased_hide, invariant.name);
    for (const auto& [name, count] : caught) others += " " + name + " " + std::to_string(count);
    EXPECT_GT(caught.count(std::string(invariant.name)), 0u) << id << " seen by:" << others;
    return;
  }
  FAIL() << "no invariant " << id;
}

/// A shown member, for changes.
template <class T>
T& in(Reusable<T>& member) {
  return member.emplace();
}

}  // namespace kvfence
