#pragma once

/// True episodes of an implementation, in each of which one observation is changed as a mistake of
/// some kind would change it. For the tests of what the invariants of a target see.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "contract/core/declare.h"
#include "contract/core/implementation.h"
#include "properties/core/campaign.h"
#include "properties/core/checks.h"

namespace kvfence {

/// Changes an observation; false: there is nothing to lie about.
template <class Target>
using Lie =
    std::function<bool(const typename Target::Command& command,
                       const typename Target::Config& config, typename Target::Observation& shown)>;

/// Takes from every observation what the invariants are not to see.
template <class Target>
using Hide = std::function<void(typename Target::Observation& shown)>;

/// How often each invariant saw the lie, until the wanted one did. Each episode tells it once;
/// commands_behind it nobody looks any more.
template <class Target>
std::map<std::string, int> caught_by(Implementation<Target>& side, const Lie<Target>& lie,
                                     int commands_behind, const Hide<Target>& hide,
                                     std::string_view wanted) {
  constexpr std::uint64_t kEpisodesMax = 1'500;
  constexpr int kEpisodeCommands = 120;
  std::map<std::string, int> caught;
  for (std::uint64_t episode = 0; episode < kEpisodesMax; ++episode) {
    Choices choices = episode_choices(7, episode);
    const auto config = Checks<Target>::Generator::draw_config(choices);
    typename Checks<Target>::Generator generator(config, choices);
    auto invariants = Checks<Target>::make_invariants(config);
    auto world = Target::make_world(config);
    typename Target::Observation now;
    side.reset(config);
    int num_left = -1;
    for (int index = 0; index < kEpisodeCommands && num_left != 0; ++index) {
      const auto command = generator.next(choices, now, world);
      world.apply(command);
      side.submit(command, world, Observe::kState);
      side.collect(now);
      typename Target::Observation shown = now;
      if (num_left < 0 && lie(command, config, shown)) num_left = commands_behind;
      num_left -= num_left > 0;
      if (hide) hide(shown);
      const auto found = invariants.check(command, shown, world, 0);
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

/// That some lie is caught by the invariant of this id.
template <class Target, class Invariants>
void expect_lie_caught(Implementation<Target>& side, const Invariants& invariants,
                       std::string_view id, int commands_behind, const Lie<Target>& lie,
                       const Hide<Target>& hide = {}) {
  for (const auto& invariant : invariants) {
    if (invariant.id != id) continue;
    std::string others;
    const auto caught = caught_by<Target>(side, lie, commands_behind, hide, invariant.name);
    for (const auto& [name, count] : caught) others += " " + name + " " + std::to_string(count);
    EXPECT_GT(caught.count(std::string(invariant.name)), 0u) << id << " seen by:" << others;
    return;
  }
  FAIL() << "no invariant " << id;
}

/// A member that is there, to be changed.
template <class T>
T& in(Reusable<T>& member) {
  return member.emplace();
}

}  // namespace kvfence
