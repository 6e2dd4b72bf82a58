#pragma once

/// What a list of commands adds up to in a tiering manager with scripted tiers: the primary tier's
/// books, jobs, queued promotions, what the tiers hold and are about to say. The invariants hold an
/// implementation's observations against it.
///
/// A file tier in which nothing was made to go wrong does as one does that knows keys alone, but
/// that it loads what it holds, and nothing else. From the first fault or damage on, what its files
/// make of a lookup or a job is not added up here but taken as it is shown, as far as it can be:
/// nothing is served that was not stored, nor, until it is stored again, what could not be loaded
/// or has another size; a block is stored exactly if its file is there; a whole file stays.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "contract/tiering/tiering_target.h"
#include "properties/offload/ledger.h"

namespace kvfence::tiering {

/// What a command has to answer.
struct Expected {
  ErrorCode error = ErrorCode::kNone;
  std::vector<TierCallRecord> calls;
  std::optional<LookupResult> result;
  std::optional<std::vector<SlotId>> slots;
  std::optional<bool> stored;
  std::optional<offload::StorePlan> plan;  ///< of a store that can be
  std::optional<bool> request_level;
  std::vector<std::uint32_t> failed_promotions;  ///< keys whose job was reported as failed
};

/// A value: copyable. Cost of each call: the keys of the command times all that is there.
class Ledger {
 public:
  Ledger(const OffloadingManagerConfig& primary, std::uint32_t num_tiers,
         const std::vector<std::uint32_t>& file_tiers = {})
      : primary_(primary), tiers_(num_tiers) {
    for (std::uint32_t place : file_tiers) tiers_[place].has_files = true;
  }

  /// Takes in a command, whatever has to be answered. TakeEvents changes nothing here: see
  /// primary().take(). shown: whose word is taken for what files make of it; without, nothing goes
  /// wrong in a file tier.
  Expected apply(const Command& command, const Observation* shown = nullptr);

  offload::Ledger& primary() { return primary_; }
  const offload::Ledger& primary() const { return primary_; }
  const std::vector<Transfer>& jobs() const { return jobs_; }  ///< by number
  std::vector<Transfer> pending() const;                       ///< as they will be submitted
  std::uint32_t num_pending() const { return static_cast<std::uint32_t>(promotions_.size()); }
  std::vector<TierState> tiers() const;

  bool has_files() const;
  bool has_files(std::uint32_t tier) const { return tiers_[tier].has_files; }
  /// Whether what a tier shows can be said beforehand.
  bool is_exact(std::uint32_t tier) const { return tiers_[tier].is_exact; }
  /// Whether a tier that is not exact may hold that.
  bool may_hold(std::uint32_t tier, const TierState& state) const;

  /// Queued, or under way.
  bool is_promoted(std::uint32_t key) const;
  bool is_cascaded(std::uint32_t key) const;
  /// No job, queued promotion, load or store is left.
  bool is_at_rest() const;

 private:
  /// A job in a tier.
  struct Job {
    bool is_load = false;
    std::vector<std::uint32_t> keys;
  };

  /// A job that is over, as far as that can be said.
  struct Finished {
    std::uint32_t job = 0;
    bool success = true;
    bool is_tried = false;     ///< by a file tier: success is what files make of it
    std::optional<bool> must;  ///< succeed, or fail: as the files that are there show
    /// The key of a load of one; nothing once something else happened to its file.
    std::optional<std::uint32_t> load_of;
  };

  struct Tier {
    std::set<std::uint32_t> held;
    std::map<std::uint32_t, std::uint32_t> ask_again;
    std::map<std::uint32_t, Job> jobs;  ///< under way in the tier
    std::vector<Finished> finished;     ///< not yet reported

    bool has_files = false;
    bool is_exact = true;          ///< nothing was made to go wrong
    std::set<std::uint32_t> seen;  ///< was stored, was tried to be, or was put there by others
    /// Could not be loaded, and nothing has happened to its file since.
    std::set<std::uint32_t> lost;
    std::set<std::uint32_t> torn;     ///< got another size, and nothing has happened to it since
    std::set<std::uint32_t> damaged;  ///< ever
    std::optional<std::set<std::uint32_t>> last_held;  ///< as it was shown by the last command
    std::set<std::uint32_t> kept;                      ///< of these, what has to be there still
    bool ends_early = false;  ///< a file was to end before its end, which makes it a bad one
    std::uint32_t num_faults_of_remove = 0;
    bool is_lied_to = false;  ///< was to be told that a file is missing
  };

  struct Promotion {
    std::uint32_t key = 0;
    std::uint32_t tier = 0;
    std::string request;
    SlotId slot = 0;
  };

  static bool polls(const Command& command);
  /// What a file tier is shown to have answered at this call of the command.
  const std::string* shown_answer(std::string_view method, std::uint32_t tier) const;
  void take_result(std::uint32_t tier, std::size_t index, Finished& finished) const;
  void see_file(Tier& tier, std::uint32_t key);
  /// What a tier is shown to hold behind this command.
  const std::vector<std::uint32_t>* shown_held(std::uint32_t tier) const;
  std::optional<bool> must_be_stored(std::uint32_t tier,
                                     const std::vector<std::uint32_t>& keys) const;
  void begin_of_files();
  void end_of_files();
  void poll(Expected& expected);
  void end_job(const Transfer& job, bool success, Expected& expected);
  void cascade(std::uint32_t tier, const std::vector<std::uint32_t>& keys,
               const std::string& request, Expected& expected);
  TierCallRecord& call(std::string_view method, std::uint32_t tier, const std::string& request,
                       Expected& expected) const;
  /// Of an operation that every tier is told of.
  void tell_all(std::string_view method, const std::string& request,
                const std::vector<std::uint32_t>& keys, Expected& expected) const;
  std::uint32_t num_loads(std::uint32_t key) const;

  // One for each operation: what refuses it behind the poll.
  template <class Alternative>
  ErrorCode refusal(const Alternative&) const {
    return ErrorCode::kNone;
  }
  ErrorCode refusal(const PrepareLoad& command) const;
  ErrorCode refusal(const CompleteLoad& command) const;
  ErrorCode refusal(const PrepareStore& command) const;
  ErrorCode refusal(const CompleteStore& command) const;
  ErrorCode refusal(const OnNewRequest& command) const;
  ErrorCode refusal(const TierFinish& command) const { return refusal_of_tier(command.tier); }
  ErrorCode refusal(const TierAskAgain& command) const { return refusal_of_tier(command.tier); }
  ErrorCode refusal(const TierAdd& command) const { return refusal_of_tier(command.tier); }
  ErrorCode refusal(const TierDrop& command) const { return refusal_of_tier(command.tier); }
  ErrorCode refusal(const TierFaults& command) const;
  ErrorCode refusal(const TierDamage& command) const { return refusal_of_files(command.tier); }
  ErrorCode refusal_of_tier(std::uint32_t tier) const;
  ErrorCode refusal_of_files(std::uint32_t tier) const;

  // One for each operation that is not refused.
  void run(const Lookup& command, Expected& expected);
  void run(const Touch& command, Expected& expected);
  void run(const PrepareLoad& command, Expected& expected);
  void run(const CompleteLoad& command, Expected& expected);
  void run(const PrepareStore& command, Expected& expected);
  void run(const CompleteStore& command, Expected& expected);
  void run(const OnNewRequest& command, Expected& expected);
  void run(const OnRequestFinished& command, Expected& expected);
  void run(const OnScheduleEnd& command, Expected& expected);
  void run(const ResetCache&, Expected&) {}
  void run(const TakeEvents&, Expected&) {}
  void run(const TierFinish& command, Expected& expected);
  void run(const TierAskAgain& command, Expected& expected);
  void run(const TierAdd& command, Expected& expected);
  void run(const TierDrop& command, Expected& expected);
  void run(const TierFaults& command, Expected& expected);
  void run(const TierDamage& command, Expected& expected);

  offload::Ledger primary_;
  std::vector<Tier> tiers_;
  std::vector<Transfer> jobs_;
  std::vector<Promotion> promotions_;  ///< queued, in the order of the lookups
  std::map<std::string, std::set<std::uint32_t>> request_level_;
  std::uint32_t next_job_ = 0;
  bool has_polled_ = false;
  const Observation* shown_ = nullptr;  ///< of the command that is taken in
};

}  // namespace kvfence::tiering
