#pragma once

/// Situations that a suite of runs with a MultiConnector has to reach.

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

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
  kScriptedAlone,
  kScriptedBesideReal,
  kLosingHit,
  kAskedAgainAfterHit,
  kChoiceChanged,
  kScriptedLoads,
  kHeldBySeveral,
  kNoticeSwallowed,
  kSentInTheEnd,
  kReceivedWhileHeld,
  kRanksApart,
  kSeveralGroupsTold,
  kLoadErrorsOfTwo,
  kStatsOfOneClass,
  kJobsOfTwoRanks,
  kClientParams,
  kEndedByParams,
  kEndedByReport,
  kResetFailed,
  kResetUnsaid,
  kCrossLayers,
  kLaterHandshake,
  kShutdownFailed,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 37> kReachGoals = {{
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
    {Reached::kScriptedAlone, "scripted_alone", "a run with two or more scripted children alone"},
    {Reached::kScriptedBesideReal, "scripted_beside_real", "a run with scripted and real children"},
    {Reached::kLosingHit, "losing_hit", "two scripted children had tokens for one lookup"},
    {Reached::kAskedAgainAfterHit, "asked_again_after_hit",
     "a child after one with tokens wanted to be asked again"},
    {Reached::kChoiceChanged, "choice_changed", "another child was chosen than before", 1, true},
    {Reached::kScriptedLoads, "scripted_loads", "a scripted child was chosen to load"},
    {Reached::kHeldBySeveral, "held_by_several", "several children held a finished request"},
    {Reached::kNoticeSwallowed, "notice_swallowed", "a notice was not the last one", 1, true},
    {Reached::kSentInTheEnd, "sent_in_the_end",
     "the scheduler heard that a request is sent which several children held"},
    {Reached::kReceivedWhileHeld, "received_while_held",
     "a request was received that had extra saves", 1, true},
    {Reached::kRanksApart, "ranks_apart", "one rank owed more notices than another", 1, true},
    {Reached::kSeveralGroupsTold, "several_groups_told",
     "children heard of the end of a request with several groups"},
    {Reached::kLoadErrorsOfTwo, "load_errors_of_two", "two children failed to load blocks at once"},
    {Reached::kStatsOfOneClass, "stats_of_one_class", "two children of a class had statistics"},
    {Reached::kJobsOfTwoRanks, "jobs_of_two_ranks", "a child heard of jobs of several ranks"},
    {Reached::kClientParams, "client_params", "a client got parameters of a child"},
    {Reached::kEndedByParams, "ended_by_params", "two children had parameters"},
    {Reached::kEndedByReport, "ended_by_report", "a child reported what it did not have"},
    {Reached::kResetFailed, "reset_failed", "a scripted child could not be reset"},
    {Reached::kResetUnsaid, "reset_unsaid", "a child did not say how its reset went"},
    {Reached::kCrossLayers, "cross_layers", "a child got KV caches with the layers together"},
    {Reached::kLaterHandshake, "later_handshake", "not the first child had a handshake"},
    {Reached::kShutdownFailed, "shutdown_failed", "a scripted child failed to shut down"},
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
  void count_calls(const Observation& after);
  void count_reports(const Update& command, const Observation& before, const Observation& after);

  std::uint32_t num_children_ = 1;
  std::vector<std::string> classes_;  ///< by child; empty: it is not scripted
  std::set<std::string> shared_;      ///< requests that several children held
};

}  // namespace kvfence::engine::multi
