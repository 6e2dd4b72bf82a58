#pragma once

/// What a list of commands adds up to in a tiering manager with scripted tiers: the primary tier's
/// books, jobs, queued promotions, what the tiers hold and are about to say. The invariants hold an
/// implementation's observations against it.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "contract/tiering_target.h"
#include "properties/offload_ledger.h"

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
  Ledger(const OffloadingManagerConfig& primary, std::uint32_t num_tiers)
      : primary_(primary), tiers_(num_tiers) {}

  /// Takes in a command, whatever has to be answered. TakeEvents changes nothing here: see
  /// primary().take().
  Expected apply(const Command& command);

  offload::Ledger& primary() { return primary_; }
  const offload::Ledger& primary() const { return primary_; }
  const std::vector<Transfer>& jobs() const { return jobs_; }  ///< by number
  std::vector<Transfer> pending() const;                       ///< as they will be submitted
  std::uint32_t num_pending() const { return static_cast<std::uint32_t>(promotions_.size()); }
  std::vector<TierState> tiers() const;

  /// Queued, or under way.
  bool is_promoted(std::uint32_t key) const;
  bool is_cascaded(std::uint32_t key) const;
  /// No job, queued promotion, load or store is left.
  bool is_at_rest() const;

 private:
  struct Tier {
    std::set<std::uint32_t> held;
    std::map<std::uint32_t, std::uint32_t> ask_again;
    std::map<std::uint32_t, std::vector<std::uint32_t>> stores;  ///< under way in the tier
    std::vector<TierFinish> finished;                            ///< not yet reported
  };

  struct Promotion {
    std::uint32_t key = 0;
    std::uint32_t tier = 0;
    std::string request;
    SlotId slot = 0;
  };

  static bool polls(const Command& command);
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
  ErrorCode refusal_of_tier(std::uint32_t tier) const;

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

  offload::Ledger primary_;
  std::vector<Tier> tiers_;
  std::vector<Transfer> jobs_;
  std::vector<Promotion> promotions_;  ///< queued, in the order of the lookups
  std::map<std::string, std::set<std::uint32_t>> request_level_;
  std::uint32_t next_job_ = 0;
  bool has_polled_ = false;
};

}  // namespace kvfence::tiering
