#pragma once

/// How often an episode draws each of its actions. Every episode has its own weights: some actions
/// are frequent, some rare, some absent. Together the episodes reach what one mixture does not.
/// Source: Groce, Zhang, Eide, Chen, Regehr, "Swarm testing", ISSTA 2012.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

#include "contract/core/check.h"
#include "properties/draws/choices.h"

namespace kvfence {

/// How far weights differ: a usual weight is multiplied by one of the factors, or becomes 0.
struct SwarmHabits {
  std::array<std::uint32_t, 4> factors;
  std::uint32_t off_in;  ///< one thing in so many does not happen in an episode
};

/// For commands that do not depend on others.
inline constexpr SwarmHabits kWildHabits = {{4, 4, 1, 16}, 16};
/// For the actions of an engine, which makes no progress if one of them dominates.
inline constexpr SwarmHabits kMildHabits = {{2, 2, 1, 6}, 12};

/// An action and its usual weight.
template <class Name>
struct UsualWeight {
  Name name;
  std::uint32_t weight;
};

/// The weights of one episode. Actions have names: values of an enumeration, words.
template <class Name, std::size_t kSize>
class Swarm {
 public:
  using UsualWeights = std::array<UsualWeight<Name>, kSize>;

  /// Draws twice per action, in order: its factor, then whether it happens at all.
  Swarm(const UsualWeights& usual, const SwarmHabits& habits, Choices& choices) : usual_(usual) {
    for (std::size_t at = 0; at < kSize; ++at) {
      const std::uint32_t factor = pick(choices, habits.factors);
      set_at(at, choices.once_in(habits.off_in) ? 0 : usual[at].weight * factor);
    }
  }

  std::uint32_t weight(const Name& name) const { return weights_[place(name)]; }
  void set(const Name& name, std::uint32_t weight) { set_at(place(name), weight); }

  /// To at least `times` the usual weight: for actions without which nothing else happens.
  void raise(std::initializer_list<Name> names, std::uint32_t times = 1) {
    for (const Name& name : names) {
      set(name, std::max(weight(name), times * usual_[place(name)].weight));
    }
  }

  /// One action, by weight, in one draw. Requires: some weight is not 0.
  const Name& draw(Choices& choices) const {
    std::uint32_t ticket = choices.below(sum_);
    std::size_t chosen = 0;
    while (ticket >= weights_[chosen]) ticket -= weights_[chosen++];
    return usual_[chosen].name;
  }

  /// The same, but mostly draws again if the action has nothing to work on.
  template <class IsIdle>
  Name draw_unless(IsIdle&& is_idle, Choices& choices) const {
    Name chosen = draw(choices);
    for (int tries = 0; tries < 3 && is_idle(chosen) && !choices.once_in(16); ++tries) {
      chosen = draw(choices);
    }
    return chosen;
  }

 private:
  /// Requires: there is an action of that name.
  std::size_t place(const Name& name) const {
    const auto found = std::ranges::find(usual_, name, &UsualWeight<Name>::name);
    KVFENCE_CHECK(found != usual_.end(), "an action of the swarm");
    return static_cast<std::size_t>(found - usual_.begin());
  }

  void set_at(std::size_t place, std::uint32_t weight) {
    sum_ = sum_ - weights_[place] + weight;
    weights_[place] = weight;
  }

  UsualWeights usual_;
  std::array<std::uint32_t, kSize> weights_{};
  std::uint32_t sum_ = 0;
};

/// A swarm over all commands of a target, by their verbs.
template <class Command>
using VerbSwarm = Swarm<std::string_view, std::variant_size_v<Command>>;

}  // namespace kvfence
