#pragma once

/// What a suite of runs has reached: a green suite in which no notice was swallowed has shown
/// nothing about requests that several children hold.

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "contract/connectors/multi/multi_connector_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::multi_connector {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kFirstChildChosen,
  kLaterChildChosen,
  kNothingFound,
  kLosingHit,
  kAsyncLoad,
  kAskedAgain,
  kAskedAgainBehindHit,
  kChoiceChanged,
  kChoiceKeptWithoutHit,
  kLoadedByChosen,
  kAllocatedWithoutChoice,
  kHeldByOne,
  kHeldBySeveral,
  kHeldByNobody,
  kFinishedWithParams,
  kAllGroups,
  kOneGroupOfHma,
  kExtraSavesTravel,
  kNoticeSwallowed,
  kSentInTheEnd,
  kReceivedWhileHeld,
  kSeveralChildrenSendAtOnce,
  kLoadErrorsOfTwo,
  kStatsOfOneClass,
  kStatsOfTwoClasses,
  kMetaOfSomeChildren,
  kRanksApart,
  kSentOnSomeRanks,
  kSentOnAllRanks,
  kMetaOfTwoRanks,
  kResetDone,
  kResetFailed,
  kResetUnsaid,
  kEventsOfTwo,
  kPreemptions,
  kStepWithoutSave,
  kErrorNotInProfile,
  kErrorNotInConfig,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorSeveralParams,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 41> kReachGoals = {{
    {Reached::kFirstChildChosen, "first_child_chosen", "the first child had tokens"},
    {Reached::kLaterChildChosen, "later_child_chosen", "a child behind the first had tokens first"},
    {Reached::kNothingFound, "nothing_found", "no child had tokens"},
    {Reached::kLosingHit, "losing_hit", "a child behind the chosen one had tokens, too"},
    {Reached::kAsyncLoad, "async_load", "the chosen child loads beside the steps"},
    {Reached::kAskedAgain, "asked_again", "a child wanted to be asked again"},
    {Reached::kAskedAgainBehindHit, "asked_again_behind_hit",
     "a child behind one with tokens wanted to be asked again"},
    {Reached::kChoiceChanged, "choice_changed", "another child was chosen than before", 1, true},
    {Reached::kChoiceKeptWithoutHit, "choice_kept_without_hit",
     "a lookup that found nothing left a chosen child", 1, true},
    {Reached::kLoadedByChosen, "loaded_by_chosen", "a chosen child got blocks and tokens", 1, true},
    {Reached::kAllocatedWithoutChoice, "allocated_without_choice",
     "blocks were allocated and nobody was chosen", 1, true},
    {Reached::kHeldByOne, "held_by_one", "one child held a finished request"},
    {Reached::kHeldBySeveral, "held_by_several", "several children held a finished request"},
    {Reached::kHeldByNobody, "held_by_nobody", "no child held a finished request"},
    {Reached::kFinishedWithParams, "finished_with_params", "a child had parameters for the client"},
    {Reached::kAllGroups, "all_groups", "children were told of several groups"},
    {Reached::kOneGroupOfHma, "one_group_of_hma",
     "children were told of one group, though one of them takes several"},
    {Reached::kExtraSavesTravel, "extra_saves_travel", "metadata carried extra saves"},
    {Reached::kNoticeSwallowed, "notice_swallowed", "a notice was not the last one", 1, true},
    {Reached::kSentInTheEnd, "sent_in_the_end", "a rank reported a request as sent"},
    {Reached::kReceivedWhileHeld, "received_while_held",
     "a request was received that had extra saves", 1, true},
    {Reached::kSeveralChildrenSendAtOnce, "several_children_send_at_once",
     "two children sent one request in one step"},
    {Reached::kLoadErrorsOfTwo, "load_errors_of_two", "two children failed to load blocks at once"},
    {Reached::kStatsOfOneClass, "stats_of_one_class", "two children of a class had statistics"},
    {Reached::kStatsOfTwoClasses, "stats_of_two_classes", "two classes had statistics"},
    {Reached::kMetaOfSomeChildren, "meta_of_some_children",
     "some children had worker metadata, and some had none"},
    {Reached::kRanksApart, "ranks_apart", "a rank was a whole step behind another", 1, true},
    {Reached::kSentOnSomeRanks, "sent_on_some_ranks",
     "all ranks reported, and the scheduler did not hear of a request that one had sent"},
    {Reached::kSentOnAllRanks, "sent_on_all_ranks", "the scheduler heard that a request is sent"},
    {Reached::kMetaOfTwoRanks, "meta_of_two_ranks", "the metadata of several ranks came together"},
    {Reached::kResetDone, "reset_done", "a reset succeeded"},
    {Reached::kResetFailed, "reset_failed", "a reset failed"},
    {Reached::kResetUnsaid, "reset_unsaid", "a child did not say how its reset went"},
    {Reached::kEventsOfTwo, "events_of_two", "two children had events"},
    {Reached::kPreemptions, "preemptions", "children heard of preemptions"},
    {Reached::kStepWithoutSave, "step_without_save", "a step without tokens ended"},
    {Reached::kErrorNotInProfile, "error_not_in_profile", "refused with not_in_profile"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
    {Reached::kErrorSeveralParams, "error_several_params", "refused with several_params"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// Before a run.
  void start(const Config& config) {
    config_ = config;
    sent_.clear();
  }

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  // For accepted commands.
  template <class Alternative>
  void count_accepted(const Alternative&, const Observation&, const Observation&) {}
  void count_accepted(const GetNumNewMatchedTokens&, const Observation&, const Observation&);
  void count_accepted(const UpdateStateAfterAlloc&, const Observation&, const Observation&);
  void count_accepted(const BuildConnectorMeta&, const Observation&, const Observation&);
  void count_accepted(const UpdateConnectorOutput&, const Observation&, const Observation&);
  void count_accepted(const RequestFinished&, const Observation&, const Observation&);
  void count_accepted(const TakeEvents&, const Observation&, const Observation&);
  void count_accepted(const ResetCache&, const Observation&, const Observation&);
  void count_accepted(const HandlePreemptions&, const Observation&, const Observation&);
  void count_accepted(const StartLoadKV&, const Observation&, const Observation&);
  void count_accepted(const GetKVConnectorOutput&, const Observation&, const Observation&);
  void count_stats(const GetKVConnectorOutput& command);

  Config config_;
  std::set<std::string> sent_;  ///< on some rank, and not yet with the scheduler
};

}  // namespace kvfence::multi_connector
