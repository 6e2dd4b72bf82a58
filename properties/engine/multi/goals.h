#pragma once

/// Situations that a suite of runs with a MultiConnector has to reach.

#include <array>
#include <cstdint>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::multi {

enum class Reached : std::uint8_t {
  kOffloadingLoads,
  kSimpleLoads,
  kFilesLoad,
  kAllSave,
  kTwoUnderWay,
  kReportOfTwo,
  kAbortedUnderWay,
  kPreemptedUnderWay,
  kLoadFailed,
  kEngineEnded,
  kThreeChildren,
  kSeveralGroups,
  kSeveralRanks,
  kResetAll,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 14> kReachGoals = {{
    {Reached::kOffloadingLoads, "offloading_loads", "the offloading child was chosen to load"},
    {Reached::kSimpleLoads, "simple_loads", "the simple child was chosen to load"},
    {Reached::kFilesLoad, "files_load", "the child that keeps files was chosen to load"},
    {Reached::kAllSave, "all_save", "one step had stores of two children"},
    {Reached::kTwoUnderWay, "two_under_way", "transfers of two children were under way", 1, true},
    {Reached::kReportOfTwo, "report_of_two", "one report had jobs of two children"},
    {Reached::kAbortedUnderWay, "aborted_under_way",
     "requests were ended from outside while transfers of two children were under way", 1, true},
    {Reached::kPreemptedUnderWay, "preempted_under_way",
     "a request was preempted while transfers of two children were under way", 1, true},
    {Reached::kLoadFailed, "load_failed", "a load failed"},
    {Reached::kEngineEnded, "engine_ended", "a file ended the engine"},
    {Reached::kThreeChildren, "three_children", "a run with three children"},
    {Reached::kSeveralGroups, "several_groups", "a run with several groups"},
    {Reached::kSeveralRanks, "several_ranks", "a run with several ranks"},
    {Reached::kResetAll, "reset_all", "all children's caches were to be reset"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  std::uint32_t num_children_ = 1;
};

}  // namespace kvfence::engine::multi
