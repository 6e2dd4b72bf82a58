#pragma once

/// What the tests of reachability goals share, for the table of any target.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "contract/engine/engine_target.h"

namespace kvfence {

/// The goals that were counted between two states of the counts, in their order: as often as they
/// were.
template <class Reach>
std::vector<typename Reach::Reached> counted_between(const Reach& before, const Reach& after) {
  std::vector<typename Reach::Reached> counted;
  for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
    const auto reached = static_cast<typename Reach::Reached>(index);
    const std::uint64_t num_times = after.count_of(reached) - before.count_of(reached);
    counted.insert(counted.end(), num_times, reached);
  }
  return counted;
}

/// The same, once each.
template <class Reach>
std::vector<typename Reach::Reached> reached_between(const Reach& before, const Reach& after) {
  std::vector<typename Reach::Reached> reached;
  for (const typename Reach::Reached goal : counted_between(before, after)) {
    if (reached.empty() || reached.back() != goal) reached.push_back(goal);
  }
  return reached;
}

/// That no two goals have the same name, and each asks for something.
template <class Reach>
void expect_named_once_and_positive(const Reach& reach) {
  std::set<std::string_view> names;
  for (std::size_t index = 0; index < Reach::num_goals(); ++index) {
    const auto goal = reach.goal(index);
    EXPECT_TRUE(names.insert(goal.name).second) << goal.name;
    EXPECT_GT(goal.at_least, 0U) << goal.name;
  }
}

/// A step that schedules a request for the first time, behind tokens that are there.
template <class Observation>
Observation with_new(Observation observation, const std::string& name,
                     std::uint32_t num_computed_tokens, std::uint32_t num_tokens) {
  engine::ScheduledNew& added = observation.new_reqs.emplace().emplace_back();
  added.request = name;
  added.num_computed_tokens = num_computed_tokens;
  engine::ScheduledRequest& scheduled = observation.scheduled.emplace().emplace_back();
  scheduled.request = name;
  scheduled.num_tokens = num_tokens;
  return observation;
}

}  // namespace kvfence
