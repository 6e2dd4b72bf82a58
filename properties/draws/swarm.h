#pragma once

/// How often an episode draws each of its actions. Every episode has its own weights: some actions
/// are frequent, some rare, some absent. Together the episodes reach what one mixture does not.
/// Source: Groce, Zhang, Eide, Chen, Regehr, "Swarm testing", ISSTA 2012.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

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

/// The weights of one episode. Index: names an action; an enumeration without gaps or std::size_t.
template <class Index, std::size_t kSize>
class Swarm {
 public:
  using Weights = std::array<std::uint32_t, kSize>;

  /// Draws twice per action, in order: its factor, then whether it happens at all.
  Swarm(const Weights& usual, const SwarmHabits& habits, Choices& choices) : usual_(usual) {
    for (std::size_t at = 0; at < kSize; ++at) {
      const std::uint32_t factor =
          habits.factors[choices.below(static_cast<std::uint32_t>(habits.factors.size()))];
      set(static_cast<Index>(at), choices.once_in(habits.off_in) ? 0 : usual[at] * factor);
    }
  }

  std::uint32_t weight(Index index) const { return weights_[place(index)]; }

  void set(Index index, std::uint32_t weight) {
    sum_ = sum_ - weights_[place(index)] + weight;
    weights_[place(index)] = weight;
  }

  /// To at least `times` the usual weight: for actions without which nothing else happens.
  void raise(Index index, std::uint32_t times = 1) {
    set(index, std::max(weight(index), times * usual_[place(index)]));
  }

  /// One action, by weight, in one draw. Requires: some weight is not 0.
  Index draw(Choices& choices) const {
    std::uint32_t ticket = choices.below(sum_);
    std::size_t chosen = 0;
    while (ticket >= weights_[chosen]) ticket -= weights_[chosen++];
    return static_cast<Index>(chosen);
  }

  /// The same, but mostly draws again if the action has nothing to work on.
  template <class IsIdle>
  Index draw_unless(IsIdle&& is_idle, Choices& choices) const {
    Index chosen = draw(choices);
    for (int tries = 0; tries < 3 && is_idle(chosen) && !choices.once_in(16); ++tries) {
      chosen = draw(choices);
    }
    return chosen;
  }

 private:
  static std::size_t place(Index index) { return static_cast<std::size_t>(index); }

  Weights usual_;
  Weights weights_{};
  std::uint32_t sum_ = 0;
};

/// A command and its usual weight.
struct VerbWeight {
  std::string_view verb;
  std::uint32_t usual;
};

/// The weights of all commands of a target, by place in the variant.
template <class Command>
using VerbWeights = std::array<VerbWeight, std::variant_size_v<Command>>;

/// A swarm over the commands of a target, by place in the variant.
template <class Command>
using VerbSwarm = Swarm<std::size_t, std::variant_size_v<Command>>;

template <std::size_t kSize>
constexpr std::array<std::uint32_t, kSize> usual_weights(
    const std::array<VerbWeight, kSize>& verbs) {
  std::array<std::uint32_t, kSize> weights{};
  for (std::size_t at = 0; at < kSize; ++at) weights[at] = verbs[at].usual;
  return weights;
}

/// The place of a command. Requires: it is there.
template <class Alternative, std::size_t kSize>
constexpr std::size_t index_of(const std::array<VerbWeight, kSize>& verbs) {
  std::size_t index = 0;
  while (verbs[index].verb != Alternative::kVerb) ++index;
  return index;
}

}  // namespace kvfence
