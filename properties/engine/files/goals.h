#pragma once

/// What a suite of runs with a synchronous connector has reached: a green suite in which no engine
/// ended at a file has shown nothing about that.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "contract/engine/engine_target.h"
#include "properties/core/goals_counts.h"

namespace kvfence::engine::files {

/// The situations that are counted. The order is that of kReachGoals.
enum class Reached : std::uint8_t {
  kStore,
  kLoad,
  kLoadBehindHit,
  kLoadOfForeignFile,
  kLoadOfOwnFile,
  kLoadOfResumed,
  kLoadOfOutputs,
  kLoadOfSeveral,
  kLoadBesideStore,
  kHitBeyondMatch,
  kMatchOfNothing,
  kStoreOfNothing,
  kStoreOfHit,
  kStoreOfSeveral,
  kFolderStoredTwice,
  kFileWrittenAgain,
  kPartNotStored,
  kOwnFolderNotFound,
  kStoreOfGone,
  kFailedLoad,
  kFailedSave,
  kFailedBehindOthers,
  kFailedOnLaterRank,
  kFailedWithStepBehind,
  kFailedLoadOfResumed,
  kFolderMadeByLoad,
  kHalfFile,
  kStartedAgain,
  kLoadByNewEngine,
  kPartlyWrittenEntry,
  kEntryRemoved,
  kFileRemoved,
  kFileTruncated,
  kFill,
  kFillBehindHit,
  kFillOfSeveral,
  kFillOfSeveralGroups,
  kFillOfResumed,
  kNotFilledAgain,
  kNothingToFill,
  kNullBlockFilled,
  kSharedBlockFilled,
  kFilledEnds,
  kChunk,
  kPreempted,
  kTwoStepsInFlight,
  kAbortedInFlight,
  kResetDone,
  kResetRefused,
  kResetOfConnector,
  kErrorUnknownRequest,
  kErrorUnknownKey,
  kErrorBadRange,
  kErrorAlreadyDeclared,
  kErrorNoTokens,
  kErrorBeyondModelLength,
  kErrorNotInConfig,
  kErrorNoStepInFlight,
  kErrorStepsInFlight,
  kErrorWrongTokenCount,
};

using ReachGoal = kvfence::ReachGoal<Reached>;

/// Every goal: what the command line and the documentation list.
inline constexpr std::array<ReachGoal, 60> kReachGoals = {{
    {Reached::kStore, "store", "a prompt was written to files"},
    {Reached::kLoad, "load", "files were read for a request"},
    {Reached::kLoadBehindHit, "load_behind_hit", "a load brought also what the GPU's cache had", 1,
     true},
    {Reached::kLoadOfForeignFile, "load_of_foreign_file",
     "a file was read that another engine had written"},
    {Reached::kLoadOfOwnFile, "load_of_own_file", "a file was read that a step had written"},
    {Reached::kLoadOfResumed, "load_of_resumed", "files were read for a resumed request"},
    {Reached::kLoadOfOutputs, "load_of_outputs", "files were read that hold outputs"},
    {Reached::kLoadOfSeveral, "load_of_several", "a step loads for several requests"},
    {Reached::kLoadBesideStore, "load_beside_store", "a step loads and stores"},
    {Reached::kHitBeyondMatch, "hit_beyond_match",
     "a match was found, and the GPU's cache had more than that"},
    {Reached::kMatchOfNothing, "match_of_nothing",
     "a prompt without a whole block found the folder of no tokens"},
    {Reached::kStoreOfNothing, "store_of_nothing", "files of no tokens were written"},
    {Reached::kStoreOfHit, "store_of_hit", "a store took what the GPU's cache had"},
    {Reached::kStoreOfSeveral, "store_of_several", "a step stores for several requests"},
    {Reached::kFolderStoredTwice, "folder_stored_twice", "a step stores twice into a folder"},
    {Reached::kFileWrittenAgain, "file_written_again",
     "a step wrote a file that was there before it", 1, true},
    {Reached::kPartNotStored, "part_not_stored",
     "a prompt was not stored, since its first step did not compute all of it"},
    {Reached::kOwnFolderNotFound, "own_folder_not_found",
     "a prompt of whole blocks and one token did not find the folder that it is kept in", 1, true},
    {Reached::kStoreOfGone, "store_of_gone", "a request was stored that had been ended", 1, true},
    {Reached::kFailedLoad, "failed_load", "a file that could not be read ended the engine"},
    {Reached::kFailedSave, "failed_save", "a file that could not be written ended the engine"},
    {Reached::kFailedBehindOthers, "failed_behind_others",
     "a step ended at a file behind others that it had read or written"},
    {Reached::kFailedOnLaterRank, "failed_on_later_rank", "a rank failed behind one that did not"},
    {Reached::kFailedWithStepBehind, "failed_with_step_behind",
     "an engine ended with another step planned"},
    {Reached::kFailedLoadOfResumed, "failed_load_of_resumed",
     "a resumed request ended the engine, since nobody wrote what it loads"},
    {Reached::kFolderMadeByLoad, "folder_made_by_load", "looking for a file made its folder", 1,
     true},
    {Reached::kHalfFile, "half_file", "a file that is not whole ended the engine", 1, true},
    {Reached::kStartedAgain, "started_again", "an engine ended behind one that had ended"},
    {Reached::kLoadByNewEngine, "load_by_new_engine",
     "a file was read that an engine before had written"},
    {Reached::kPartlyWrittenEntry, "partly_written_entry",
     "another engine wrote the files of some layers"},
    {Reached::kEntryRemoved, "entry_removed", "a folder was removed"},
    {Reached::kFileRemoved, "file_removed", "a file was removed"},
    {Reached::kFileTruncated, "file_truncated", "a file lost its end"},
    {Reached::kFill, "fill", "blocks were filled with dummies"},
    {Reached::kFillBehindHit, "fill_behind_hit",
     "a fill had fewer tokens than its request, which went into the blocks of the hit"},
    {Reached::kFillOfSeveral, "fill_of_several", "a step fills for several requests"},
    {Reached::kFillOfSeveralGroups, "fill_of_several_groups", "a fill named blocks of two groups"},
    {Reached::kFillOfResumed, "fill_of_resumed",
     "a request was filled when it was resumed, since it had not been before"},
    {Reached::kNotFilledAgain, "not_filled_again",
     "a filled request was resumed and computed what it had lost"},
    {Reached::kNothingToFill, "nothing_to_fill",
     "a request was not filled, since the GPU's cache had all but its last token"},
    {Reached::kNullBlockFilled, "null_block_filled", "the null block was filled"},
    {Reached::kSharedBlockFilled, "shared_block_filled",
     "a fill went into a block that another request has, too", 1, true},
    {Reached::kFilledEnds, "filled_ends", "a filled request ended", 1, true},
    {Reached::kChunk, "chunk", "a step computed a part of a prompt"},
    {Reached::kPreempted, "preempted", "a step had a victim"},
    {Reached::kTwoStepsInFlight, "two_steps_in_flight",
     "a step was planned before the one before it came back"},
    {Reached::kAbortedInFlight, "aborted_in_flight", "a request was ended with its step planned", 1,
     true},
    {Reached::kResetDone, "reset_done", "a reset took keys of the GPU's cache", 1, true},
    {Reached::kResetRefused, "reset_refused", "a reset did not succeed"},
    {Reached::kResetOfConnector, "reset_of_connector", "the connector was reset, too"},
    {Reached::kErrorUnknownRequest, "error_unknown_request", "refused with unknown_request"},
    {Reached::kErrorUnknownKey, "error_unknown_key", "refused with unknown_key"},
    {Reached::kErrorBadRange, "error_bad_range", "refused with bad_range"},
    {Reached::kErrorAlreadyDeclared, "error_already_declared", "refused with already_declared"},
    {Reached::kErrorNoTokens, "error_no_tokens", "refused with no_tokens"},
    {Reached::kErrorBeyondModelLength, "error_beyond_model_length",
     "refused with beyond_model_length"},
    {Reached::kErrorNotInConfig, "error_not_in_config", "refused with not_in_config"},
    {Reached::kErrorNoStepInFlight, "error_no_step_in_flight", "refused with no_step_in_flight"},
    {Reached::kErrorStepsInFlight, "error_steps_in_flight", "refused with steps_in_flight"},
    {Reached::kErrorWrongTokenCount, "error_wrong_token_count", "refused with wrong_token_count"},
}};

/// Counts of one suite.
class Reach : public ReachCounts<kReachGoals> {
 public:
  /// A run begins under that configuration, which has to be valid; the counts stay.
  void start(const Config& config);

  /// Takes in one command, whatever it was answered. `before` is the whole observation of the
  /// command before, answer included; a default one for the first command of a run.
  ///
  /// Cost: linear in the requests, blocks and files, and the folder names of a step's prompts.
  void count(const Command& command, const Observation& before, const Observation& after,
             const World& world);

 private:
  /// What is known of a planned step.
  struct Step {
    std::set<std::string> requests;
    std::set<std::string> resumed_loads;
  };

  void count_step(const Observation& before, const Observation& after, const World& world);
  void count_transfers(const Observation& before, const Observation& after);
  void count_unstored(const Observation& before, const Observation& after, const World& world);
  void count_fills(const Observation& after);
  void count_update(const Observation& before, const Observation& after);
  void count_failure(const FailedFile& failed, const Observation& before, const Observation& after);
  void count_finish(const std::vector<std::string>& names, const Observation& before);
  void count_entry(const WriteEntry& entry);
  void count_reset(const ResetPrefixCache& command, const Observation& before,
                   const Observation& after);

  const SynchronousConnectorSpec& spec() const { return *setup_.files; }

  EngineSetup setup_;
  std::deque<Step> in_flight_;  ///< oldest first
  std::map<std::string, std::uint32_t> num_prompt_tokens_;
  std::set<std::string> filled_;
  /// By folder: which engine wrote its files last, 1, 2, ...; 0: another one.
  std::map<std::string, std::uint32_t> writer_;
};

}  // namespace kvfence::engine::files
