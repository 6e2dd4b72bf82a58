#pragma once

/// The bookkeeping of reachability goals that all targets share. A target declares an enumeration
/// of situations and a goal for each, and derives its Reach from ReachCounts.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "contract/core/status.h"

namespace kvfence {

/// One situation that a suite of runs has to reach. `Situation` is the target's enumeration.
template <class Situation>
struct ReachGoal {
  using Reached = Situation;

  Reached reached;
  std::string_view name;  ///< error_<code> is reached by a refusal with that code
  std::string_view doc;
  std::uint64_t at_least = 1;
  bool needs_state = false;  ///< counted only where observations hold the state
};

/// Whether each goal stands at the place of its situation in the enumeration.
template <class Goals>
constexpr bool stand_in_order(const Goals& goals) {
  for (std::size_t index = 0; index < goals.size(); ++index) {
    if (static_cast<std::size_t>(goals[index].reached) != index) return false;
  }
  return true;
}

/// Counts of one suite, by the goals that kGoals lists in the order of their enumeration. A value:
/// one a thread, merged at the end.
template <const auto& kGoals>
class ReachCounts {
  static_assert(stand_in_order(kGoals));

 public:
  using Reached = typename std::decay_t<decltype(kGoals[0])>::Reached;

  struct Goal {
    std::string_view name;
    std::uint64_t count = 0;
    std::uint64_t at_least = 0;
    bool needs_state = false;
    bool reached() const { return count >= at_least; }
  };

  void merge(const ReachCounts& other) {
    for (std::size_t index = 0; index < num_goals(); ++index) {
      counts_[index] += other.counts_[index];
    }
  }

  std::uint64_t count_of(Reached reached) const { return counts_[index_of(reached)]; }

  /// By position in kGoals.
  Goal goal(std::size_t index) const {
    const auto& declared = kGoals[index];
    return {declared.name, counts_[index], declared.at_least, declared.needs_state};
  }
  static constexpr std::size_t num_goals() { return kGoals.size(); }

  /// Goals that need state count like all others: a suite without state cannot reach them and has
  /// to say which goals it claims.
  bool all_reached() const {
    for (std::size_t index = 0; index < num_goals(); ++index) {
      if (!goal(index).reached()) return false;
    }
    return true;
  }

 protected:
  void add(Reached reached, bool happened = true) { counts_[index_of(reached)] += happened; }

  /// Counts the goal of that refusal; nothing for a code that the target never gives.
  void add_error(ErrorCode error) {
    static const std::array<std::size_t, kNumErrorCodes> goal_of = goals_by_error();
    const std::size_t index = goal_of[static_cast<std::size_t>(error)];
    if (index < num_goals()) ++counts_[index];
  }

 private:
  static constexpr std::size_t index_of(Reached reached) {
    return static_cast<std::size_t>(reached);
  }

  /// num_goals() for a code without a goal.
  static std::array<std::size_t, kNumErrorCodes> goals_by_error() {
    std::array<std::size_t, kNumErrorCodes> goal_of{};
    for (std::size_t code = 0; code < goal_of.size(); ++code) {
      const std::string name = "error_" + std::string(to_text(static_cast<ErrorCode>(code)));
      std::size_t index = 0;
      while (index < num_goals() && kGoals[index].name != name) ++index;
      goal_of[code] = index;
    }
    return goal_of;
  }

  std::array<std::uint64_t, kGoals.size()> counts_{};
};

}  // namespace kvfence
